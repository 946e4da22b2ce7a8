"""Version 1 of the public wire."""
