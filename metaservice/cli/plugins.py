"""Commands that other packages add: each entry point of the group `laketx.commands` is a sequence of `Command`s.

    [project.entry-points."laketx.commands"]
    worker = "worker.commands:COMMANDS"

A group that is there already gets the added one's commands at its end. What such an entry point imports is loaded with
every command line, so it imports little; `later` brings in the rest when the command runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Final

from metaservice.cli.command import Arguments, Command, Run
from metaservice.cli.failures import CommandError, Exit

if TYPE_CHECKING:
    from metaservice.cli.output import Session

GROUP: Final = "laketx.commands"


def with_added(commands: Sequence[Command], found: Iterable[EntryPoint] | None = None) -> tuple[Command, ...]:
    """The commands and those that are added to them; an entry point whose module is not there adds none."""
    merged = tuple(commands)
    for each in sorted(entry_points(group=GROUP) if found is None else found, key=lambda one: one.name):
        try:
            added: Sequence[Command] = each.load()
        except ModuleNotFoundError:
            continue
        merged = merge(merged, added)
    return merged


def merge(commands: Sequence[Command], added: Sequence[Command]) -> tuple[Command, ...]:
    """New names go to the end; what is a group in both is one group."""
    by_name = {command.name: command for command in commands}
    for command in added:
        known = by_name.get(command.name)
        if known is None:
            by_name[command.name] = command
        elif known.commands and command.commands:
            by_name[command.name] = replace(known, commands=merge(known.commands, command.commands))
    return tuple(by_name.values())


def later(module: str, name: str, *, extra: str) -> Run:
    """A command's `run`, imported when it runs; `extra` is what has to be installed for it."""

    def run(session: Session, args: Arguments) -> int | None:
        try:
            found: Run = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            facts = {"module": str(error.name)}
            hint = f"pip install 'laketx[{extra}]'"
            raise CommandError(Exit.REFUSED, "NOT_INSTALLED", "the command needs more", facts, hint) from error
        return found(session, args)

    return run
