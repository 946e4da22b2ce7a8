"""The web console: its pages over real HTTP, against a real service."""
