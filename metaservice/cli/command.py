"""What a command is, and how its options are declared: commands, help, completion and docs/cli.md come from these.

A module of this package that is a command has a `COMMAND`; `registry.py` lists them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from metaservice.cli.failures import did_you_mean, usage_failure

if TYPE_CHECKING:
    from metaservice.cli.output import Session

Arguments = argparse.Namespace
Run = Callable[["Session", Arguments], int | None]

TABLE: Final = "table"
DROPPED_TABLE: Final = "dropped table"
COLUMN: Final = "column"
TRANSACTION: Final = "transaction"
OPEN_TRANSACTION: Final = "open transaction"
PIN: Final = "pin"
TASK: Final = "task"
NAMESPACE: Final = "namespace"
FILE: Final = "file"
COMMAND_WORD: Final = "command"


class Parser(argparse.ArgumentParser):
    """Refuses by raising a CommandError that suggests the nearest word; knows what its arguments complete to."""

    def __init__(self, *, passes_on: bool = False, **settings: Any) -> None:
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        if sys.version_info >= (3, 14):
            settings.setdefault("color", False)  # its usage lines go into errors, which have colours of their own
        super().__init__(allow_abbrev=False, add_help=False, **settings)
        self.passes_on = passes_on
        self.completes: dict[str, str] = {}
        self.commands: dict[str, Parser] = {}
        self.command: Command | None = None
        self.hidden: set[str] = set()
        self.shared: argparse._ArgumentGroup | None = None

    def add(self, *names: str, completes: str = "", **settings: Any) -> None:
        """An argument or option; `completes` says what its value is."""
        action = self.add_argument(*names, **settings)
        if completes:
            self.completes[action.dest] = completes

    def options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def option(self, name: str) -> argparse.Action | None:
        return next((action for action in self._actions if name in action.option_strings), None)

    def actions(self) -> list[argparse.Action]:
        return [action for action in self._actions if not isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - the one way to tell

    def own_actions(self) -> list[argparse.Action]:
        """Without the options that every command has."""
        shared = self.shared._group_actions if self.shared is not None else []  # noqa: SLF001 - argparse has no other way
        return [action for action in self._actions if action not in shared]

    def format_usage(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self.own_actions(), self._mutually_exclusive_groups)
        return formatter.format_help()

    def format_help(self) -> str:
        """Commands first, what is the same everywhere last."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self.own_actions(), self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in sorted(self._action_groups, key=lambda each: (each is self.shared, each.title != "commands")):
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)  # noqa: SLF001
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def find(self, words: Sequence[str]) -> Parser:
        """The parser of a command, by its words."""
        parser = self
        for word in words:
            if word not in parser.commands:
                parser._refuse_command(word)
            parser = parser.commands[word]
        return parser

    def error(self, message: str) -> NoReturn:
        raise usage_failure(message, usage=self.format_usage().strip(), next_step=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - the one way to tell
            self._refuse_command(str(value))
        known = [str(choice) for choice in action.choices]
        name = "/".join(action.option_strings) or action.metavar or action.dest
        raise usage_failure(
            f"{name}: `{value}` is none of {', '.join(known)}",
            usage=self.format_usage().strip(),
            next_step=self._hint(str(value), known),
        )

    def refuse_extras(self, extras: Sequence[str]) -> NoReturn:
        first = extras[0]
        known = self.options() if first.startswith("-") else list(self.commands)
        raise usage_failure(
            f"{self.prog} takes no `{first}`",
            usage=self.format_usage().strip(),
            next_step=self._hint(first.partition("=")[0], known),
        )

    def _refuse_command(self, word: str) -> NoReturn:
        known = [name for name in self.commands if name not in self.hidden]
        raise usage_failure(f"{self.prog} has no command `{word}`", next_step=self._hint(word, known))

    def _hint(self, word: str, known: Sequence[str]) -> str:
        return did_you_mean(word, known) or f"{self.prog} --help"


@dataclass(frozen=True, slots=True)
class Command:
    """A command; one with `commands` is a group and runs nothing by itself."""

    name: str
    summary: str
    run: Run | None = None
    arguments: Callable[[Parser], None] | None = None
    commands: tuple[Command, ...] = ()
    details: str = ""
    # All that follows the command's name goes to it unread, --help too.
    passes_on: bool = False
    hidden: bool = False


def whole(least: int, most: int) -> Callable[[str], int]:
    """A type of option: a whole number within bounds."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from {least} to {most}")
        return number

    return read


def seconds(least: float, most: float) -> Callable[[str], float]:
    """A type of option: seconds within bounds."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(f"`{text}` is not a number of seconds from {least:g} to {most:g}")
        return number

    return read


def pair(text: str) -> tuple[str, str]:
    """A type of option: NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"`{text}` is not NAME=VALUE")
    return name, value


def add_table(parser: Parser, *, help: str = "Name or id of the table.") -> None:  # noqa: A002 - argparse's word
    parser.add("table", metavar="TABLE", help=help, completes=TABLE)


def add_limit(parser: Parser, default: int = 50, most: int = 100_000) -> None:
    parser.add(
        "--limit", type=whole(1, most), default=default, metavar="N", help=f"At most so many (default {default})."
    )


def add_yes(parser: Parser) -> None:
    parser.add("--yes", "-y", action="store_true", help="Don't ask.")
    parser.add("--dry-run", action="store_true", help="Only say what would be done.")
