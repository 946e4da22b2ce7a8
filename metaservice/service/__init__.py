"""Use cases: read what is known, let core decide, write the decision."""
