"""Compactions: by hand, and those that the service plans."""
