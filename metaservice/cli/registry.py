"""The commands, in the order in which help shows them; and the parser that is made of them.

The options that all commands share may stand before a command or after it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from metaservice.cli import (
    backup,
    bench,
    changes,
    check,
    clock,
    compaction,
    complete,
    completion,
    cursor,
    diff,
    explain,
    files,
    health,
    help,  # noqa: A004 - the command's name
    namespace,
    ping,
    pins,
    purge,
    serve,
    show,
    status,
    table,
    tag,
    txn,
    versions,
    watch,
    why,
    worker,
)
from metaservice.cli.command import FILE, Command, Parser, seconds, whole
from metaservice.cli.plugins import with_added

COMMANDS: Final[tuple[Command, ...]] = (
    serve.COMMAND,
    ping.COMMAND,
    health.COMMAND,
    status.COMMAND,
    namespace.COMMAND,
    table.COMMAND,
    versions.COMMAND,
    show.COMMAND,
    files.COMMAND,
    changes.COMMAND,
    diff.COMMAND,
    watch.COMMAND,
    txn.COMMAND,
    why.COMMAND,
    explain.COMMAND,
    pins.COMMAND,
    tag.COMMAND,
    cursor.COMMAND,
    compaction.COMMAND,
    worker.COMMAND,
    purge.COMMAND,
    clock.COMMAND,
    backup.BACKUP,
    backup.RESTORE,
    check.COMMAND,
    bench.COMMAND,
    completion.COMMAND,
    help.COMMAND,
    complete.COMMAND,
)
SERVER: Final = "127.0.0.1:7070"
TIMEOUT_S: Final = 5.0


def build_parser(commands: Sequence[Command] | None = None) -> Parser:
    """Of the commands given, or of all: these and those that other packages add."""
    root = Parser(prog="laketx", description="Looks at tables and transactions of LakeTX, and runs the service.")
    add_shared(root)
    root.add("--version", action="store_true", help="Show the version of this command and end.")
    add_commands(root, with_added(COMMANDS) if commands is None else commands)
    root.set_defaults(parser=root, run=None)
    return root


def add_commands(parser: Parser, commands: Sequence[Command]) -> None:
    group = parser.add_subparsers(metavar="COMMAND", title="commands", prog=parser.prog, parser_class=Parser)
    for command in commands:
        text = f"{command.summary}\n\n{command.details}".strip()
        # A hidden command has no line in its parent's help.
        shown = {} if command.hidden else {"help": command.summary}
        child = group.add_parser(command.name, description=text, passes_on=command.passes_on, **shown)  # type: ignore[arg-type]
        child.command = command
        child.set_defaults(parser=child, run=command.run)
        if command.hidden:
            parser.hidden.add(command.name)
        parser.commands[command.name] = child
        if command.passes_on:
            continue
        if command.arguments is not None:
            command.arguments(child)
        add_shared(child)
        if command.commands:
            add_commands(child, command.commands)


def add_shared(parser: Parser) -> None:
    """Without defaults: a command's would hide what stands before it. `command_line.py` fills them in."""
    group = parser.add_argument_group("options of every command")
    parser.shared = group

    def add(*names: str, **settings: object) -> None:
        group.add_argument(*names, default=argparse.SUPPRESS, **settings)  # type: ignore[arg-type]

    add("--server", metavar="ADDR", help=f"Address of the service (LAKETX_SERVER; default {SERVER}).")
    add("--folder", metavar="PATH", help="A folder with its own service, which is started if need be (LAKETX_FOLDER).")
    parser.completes["folder"] = FILE
    add("-o", "--output", choices=["table", "json"], help="Tables for people or JSON for programs (default table).")
    add("--user", metavar="NAME", help="Who does it, as history shows it (LAKETX_USER; default: the system's user).")
    add("--timeout", type=seconds(0.1, 86_400), metavar="S", help=f"Seconds to wait and retry (default {TIMEOUT_S:g}).")
    add(
        "--width", type=whole(20, 10_000), metavar="N", help="Columns of text (default: the terminal's, else no limit)."
    )
    add("--no-color", action="store_true", help="No colours (NO_COLOR).")
    add("-q", "--quiet", action="store_true", help="Data and errors alone.")
    add("-h", "--help", action="help", help="Show this help and end.")
