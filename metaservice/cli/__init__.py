"""The `laketx` command: one command a file, tables for people and JSON for programs."""

from metaservice.cli.main import main

__all__ = ["main"]
