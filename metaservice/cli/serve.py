"""`laketx serve`: becomes the service."""

from __future__ import annotations

import os
import sys

from metaservice.cli.command import Arguments, Command
from metaservice.cli.output import Session


def run(session: Session, args: Arguments) -> int:
    del session
    os.execv(sys.executable, [sys.executable, "-m", "metaservice", *args.rest])  # noqa: S606  # this Python, no shell


COMMAND = Command("serve", "Run the service in the foreground; all options go to it.", run, passes_on=True)
