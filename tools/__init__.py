"""What `make` runs to generate and check files: each module is one command, `python -m tools.NAME`."""
