"""`laketx serve`: becomes the service."""

from __future__ import annotations

import os
import sys

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def serve(args: tuple[str, ...]) -> None:
    """Runs the service in the foreground; all arguments go to it."""
    os.execv(sys.executable, [sys.executable, "-m", "metaservice", *args])  # noqa: S606  # this Python, no shell
