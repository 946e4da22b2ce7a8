"""Records <-> bytes."""
