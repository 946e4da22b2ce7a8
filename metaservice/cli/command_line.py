"""Reads the command line and the environment, runs the command, and turns what went wrong into words and a code."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import click

from metaservice.cli.failures import CommandError, Exit, failure_of
from metaservice.cli.find import suggest_name
from metaservice.cli.output import Session
from metaservice.cli.registry import build_root
from metaservice.client import LakeTXError
from metaservice.shared.terminal import printable

WIDTH_MAX: Final = 120  # of help


def run(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """The exit code; Ctrl-C is left to `main`."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = run_words(words, environment)
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
        return Exit.PIPE_CLOSED
    except OSError as error:  # a full disk, for one
        drop_output()
        sys.stderr.write(f"laketx: {printable(str(error))}\n")
        return Exit.REFUSED
    return code


def run_words(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Click's own `main` would take Ctrl-C and closed pipes for itself."""
    root = build_root()
    with Session(now_us, environment) as session:
        try:
            with root.make_context("laketx", list(words), obj=session, max_content_width=WIDTH_MAX) as context:
                code = root.invoke(context)
                return code if isinstance(code, int) else Exit.DONE
        except click.exceptions.Exit as ended:  # after --help
            return ended.exit_code
        except LakeTXError as error:
            failure = suggest_name(session, failure_of(error, session.settings.place))
        except CommandError as error:
            failure = suggest_name(session, error)
            if failure.code is Exit.USAGE and re.search(r"(-o|--output)[ =]?json", " ".join(words)):
                session.settings.output = "json"  # Click may have come to the error first
        session.show_failure(failure)
        return failure.code


def drop_output() -> None:
    """What is left in the buffer can't be written; the interpreter would complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def now_us() -> int:
    return time.time_ns() // 1_000
