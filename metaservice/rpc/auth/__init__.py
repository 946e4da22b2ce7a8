"""Authentication and authorization of calls."""
