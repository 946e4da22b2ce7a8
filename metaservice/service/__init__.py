"""Use cases: they read the state, let core decide, and write the decision."""
