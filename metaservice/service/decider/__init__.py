"""The thread that decides, what it knows, and what readers see of it."""
