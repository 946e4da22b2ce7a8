"""The `laketx` command: one command a file, tables for people and JSON for programs."""

from __future__ import annotations

import importlib
import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Ctrl-C ends it quietly from the first moment on, while modules are still read."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # noqa: TID251 - set, not read: gRPC says nothing of its own
    try:
        code: int = importlib.import_module("metaservice.cli.command_line").run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
