"""Compactions: by hand, and as tasks of the service."""
