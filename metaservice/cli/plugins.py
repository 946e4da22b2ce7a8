"""Commands that other packages add: each entry point of the group `laketx.commands` is a sequence of commands of Click.

    [project.entry-points."laketx.commands"]
    worker = "laketx.commands.declarations:COMMANDS"

A group that is there already gets the added one's commands at its end. What such an entry point imports is loaded
whenever all commands are listed, so it imports little; `later` brings in the rest when the command runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import click

from metaservice.cli.failures import CommandError, Exit

GROUP: Final = "laketx.commands"


@cache
def added_commands() -> tuple[click.Command, ...]:
    return load(entry_points(group=GROUP))


def load(found: Iterable[EntryPoint]) -> tuple[click.Command, ...]:
    """An entry point whose module is not there adds none; one that can't be imported adds none, and a note says so."""
    added: list[click.Command] = []
    for each in sorted(found, key=lambda one: one.name):
        try:
            added += each.load()
        except ModuleNotFoundError:
            continue
        except ImportError as error:
            click.echo(f"note: the commands of {each.name} are left out: {error}", err=True)
    return tuple(added)


def merge(known: click.Command | None, added: Sequence[click.Command]) -> click.Command | None:
    """A command that is there stays; a group gets what it lacks."""
    for command in added:
        if known is None:
            known = command
        elif isinstance(known, click.Group) and isinstance(command, click.Group):
            for name, each in command.commands.items():
                if name not in known.commands:
                    known.add_command(each, name)
    return known


def later(module: str, name: str, *, extra: str) -> Callable[..., object]:
    """What a command runs, imported when it runs; `extra` is what has to be installed for it."""

    def run(*given: object, **options: object) -> object:
        try:
            found: Callable[..., object] = getattr(import_module(module), name)
            return found(*given, **options)
        except ModuleNotFoundError as error:  # also of what the command loads while it runs
            facts = {"module": str(error.name)}
            hint = f"pip install 'laketx[{extra}]'"
            raise CommandError(Exit.REFUSED, "NOT_INSTALLED", "the command needs more", facts, hint) from error

    return run
