"""Reads the command line and the environment, runs the command, and turns what went wrong into words and a code."""

from __future__ import annotations

import getpass
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata

from metaservice.cli.command import Arguments, Run
from metaservice.cli.failures import CommandError, Exit, failure_of, usage_failure
from metaservice.cli.find import suggest_name
from metaservice.cli.output import Session, Settings
from metaservice.cli.registry import SERVER, TIMEOUT_S, build_parser
from metaservice.client import LakeTXError
from metaservice.terminal import printable


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
    try:
        parsed = parse(words)
    except CommandError as error:
        Session(settings_of(unread(words), environment), now_us).show_failure(error)
        return error.code
    with Session(settings_of(parsed, environment), now_us, environment) as session:
        try:
            return run_command(session, parsed)
        except (CommandError, LakeTXError) as error:
            refused = error if isinstance(error, CommandError) else failure_of(error, session.settings.place)
            refused = suggest_name(session, refused)
            session.show_failure(refused)
            return refused.code


def drop_output() -> None:
    """What is left in the buffer can't be written; the interpreter would complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parse(words: Sequence[str]) -> Arguments:
    """Refuses with a CommandError; `rest` is what goes on to another program, unread."""
    root = build_parser()
    parsed, extras = root.parse_known_args(list(words))
    parsed.root, parsed.rest = root, extras
    if "server" in parsed and "folder" in parsed:
        raise usage_failure("--server or --folder, not both")
    if extras and not parsed.parser.passes_on:
        parsed.parser.refuse_extras(extras)
    return parsed


def run_command(session: Session, parsed: Arguments) -> int:
    if getattr(parsed, "version", None) is True:
        session.say(f"laketx {version()}")
        return Exit.DONE
    if parsed.run is None:
        sys.stderr.write(parsed.parser.format_help())
        raise usage_failure(f"{parsed.parser.prog} needs a command")
    run_it: Run = parsed.run
    return run_it(session, parsed) or Exit.DONE


def unread(words: Sequence[str]) -> Arguments:
    """Of a command line that can't be read: whether its error is wanted as JSON."""
    text = " ".join(words)
    wants_json = any(each in text for each in ("-o json", "-ojson", "--output json", "--output=json"))
    return Arguments(output="json" if wants_json else "table", no_color="--no-color" in words)


def settings_of(parsed: Arguments, environment: Mapping[str, str]) -> Settings:
    given = vars(parsed)
    server, folder = given.get("server") or "", given.get("folder") or ""
    if not server and not folder:
        server, folder = environment.get("LAKETX_SERVER") or "", environment.get("LAKETX_FOLDER") or ""
    return Settings(
        server=server or SERVER,
        folder="" if server else folder,
        user=given.get("user") or environment.get("LAKETX_USER") or system_user(),
        client_name=f"laketx-cli/{version()}",
        as_json=given.get("output") == "json",
        color=not given.get("no_color", False) and not environment.get("NO_COLOR"),
        width=given.get("width"),
        timeout_s=given.get("timeout") or TIMEOUT_S,
        quiet=given.get("quiet", False),
    )


def version() -> str:
    try:
        return metadata.version("laketx")
    except metadata.PackageNotFoundError:
        return "unknown"


def system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return ""


def now_us() -> int:
    return time.time_ns() // 1_000
