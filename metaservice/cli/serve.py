"""`laketx serve`: becomes the service."""

from __future__ import annotations

import os
import sys

from metaservice.cli.command import Passing, command
from metaservice.cli.output import Session


@command("serve", kind=Passing)
def run(session: Session, options: tuple[str, ...]) -> None:
    """Run the service in the foreground; all options go to it.

    laketx serve --data data --listen 127.0.0.1:7070
    """
    del session
    become("metaservice", *options)


def become(program: str, *words: str) -> None:
    """This process runs a module of ours from now on: work on a folder is the service's part."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", program, *words])  # noqa: S606  # this Python, no shell
