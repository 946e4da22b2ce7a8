"""Version 1 of the records on disk."""
