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


def load(entry_points: Iterable[EntryPoint]) -> tuple[click.Command, ...]:
    """Load commands of entry points. Skip a missing module in silence, one that can't be imported with a note."""
    added: list[click.Command] = []
    for entry_point in sorted(entry_points, key=lambda entry_point: entry_point.name):
        try:
            added += entry_point.load()
        except ModuleNotFoundError:
            continue
        except ImportError as error:
            click.echo(f"note: the commands of {entry_point.name} are left out: {error}", err=True)
    return tuple(added)


def merge(present: click.Command | None, added: Sequence[click.Command]) -> click.Command | None:
    """Keep a present command; add to a group the commands that it lacks."""
    for command in added:
        if present is None:
            present = command
        elif isinstance(present, click.Group) and isinstance(command, click.Group):
            for name, each in command.commands.items():
                if name not in present.commands:
                    present.add_command(each, name)
    return present


def later(module: str, name: str, *, extra: str) -> Callable[..., object]:
    """Return the function that a command runs, imported at its first run; `extra` is the extra that it needs."""

    def run(*given: object, **options: object) -> object:
        try:
            function: Callable[..., object] = getattr(import_module(module), name)
            return function(*given, **options)
        except ModuleNotFoundError as error:  # also of what the command loads while it runs
            facts = {"module": str(error.name)}
            hint = f"pip install 'laketx[{extra}]'"
            raise CommandError(Exit.REFUSED, "NOT_INSTALLED", "the command needs more", facts, hint) from error

    return run
