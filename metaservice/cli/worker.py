"""`laketx worker`: becomes the worker of table services."""

from __future__ import annotations

import os
import sys

from metaservice.cli.command import Arguments, Command
from metaservice.cli.output import Session


def run(session: Session, args: Arguments) -> int:
    del session
    os.execv(sys.executable, [sys.executable, "-m", "worker", *args.rest])  # noqa: S606  # this Python, no shell


COMMAND = Command("worker", "Run compactions that the service plans; needs Spark.", run, passes_on=True)
