"""Compaction and clustering: by hand, and as tasks of the service."""
