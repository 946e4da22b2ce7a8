"""The `laketx` command: one command a file, tables for people and JSON for programs."""

from __future__ import annotations

import importlib
import sys

INTERRUPTED = 130


def main() -> None:
    """Ctrl-C ends it quietly from the first moment on, while modules are still read."""
    try:
        code: int = importlib.import_module("metaservice.cli.command_line").run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
