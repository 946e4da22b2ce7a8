"""`laketx __complete`: what may stand where the cursor is; the scripts of `laketx completion` ask it.

    laketx __complete 3 laketx versions --server localhost:1 or      (word 3 begins with "or": names of tables)

A line for each word that may stand there: the word, a tab, what it means. A line `:files` stands for "names of files".
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from metaservice.cli.command import (
    COLUMN,
    COMMAND_WORD,
    DROPPED_TABLE,
    FILE,
    NAMESPACE,
    OPEN_TRANSACTION,
    PIN,
    TABLE,
    TASK,
    TRANSACTION,
    Arguments,
    Command,
    Parser,
)
from metaservice.cli.find import find_table, list_namespaces
from metaservice.cli.output import Session, Settings
from metaservice.cli.values import word
from metaservice.client import LakeTXError, MetaClient
from metaservice.terminal import printable
from protos.laketx.v1 import maintenance_pb2, transaction_pb2

TIMEOUT_S: Final = 1.0
TABLES_MAX: Final = 2_000
TRANSACTIONS_MAX: Final = 50
FILES: Final = ":files"
Found = Iterable[tuple[str, str]]


def run(session: Session, args: Arguments) -> None:
    """Never an error: who presses TAB gets nothing where nothing is known."""
    if not args.rest or not args.rest[0].isdecimal():
        return
    at, words = int(args.rest[0][:9]), args.rest[1:]
    before, current = without_equals(words[1:at], words[at] if at < len(words) else "")
    position = Position(args.root)
    for each in before:
        position.take(each)
    prefix, option = "", None
    if current.startswith("--") and "=" in current:
        name, _, current = current.partition("=")
        option, prefix = position.parser.option(name), f"{name}="
    settings = replace(settings_at(position, session.settings), timeout_s=TIMEOUT_S)
    with Session(settings, session.now_us) as asking:
        for text, meaning in position.list_possible(asking, current, option):
            if text == FILES or text.startswith(current):
                session.write(f"{text if text == FILES else printable(prefix + text)}\t{printable(meaning)}")


def settings_at(position: Position, settings: Settings) -> Settings:
    """With the server or folder that the line names."""
    if "server" in position.given:
        return replace(settings, server=position.given["server"], folder="")
    return replace(settings, folder=position.given.get("folder", settings.folder))


def without_equals(before: Sequence[str], current: str) -> tuple[list[str], str]:
    """bash breaks `--output=js` into three words: `--output`, `=`, `js`."""
    return [each for each in before if each != "="], "" if current == "=" else current


class Position:
    """Where in a command line the cursor stands: the command so far, and the option that waits for its value."""

    def __init__(self, root: Parser) -> None:
        self.root = root
        self.parser = root
        self.waiting: argparse.Action | None = None
        self.given: dict[str, str] = {}
        self.taken = 0
        self.words: list[str] = []
        self.only_arguments = False
        self.is_lost = False  # in a command that there isn't

    def take(self, text: str) -> None:
        if self.waiting is not None:
            self.given[self.waiting.dest] = text
            self.waiting = None
        elif self.only_arguments or not text.startswith("-") or text == "-":
            self._take_argument(text)
        elif text == "--":
            self.only_arguments = True
        else:
            name, equals, value = text.partition("=")
            action = self.parser.option(name)
            if action is not None and action.nargs != 0:
                if equals:
                    self.given[action.dest] = value
                else:
                    self.waiting = action

    def _take_argument(self, text: str) -> None:
        if text in self.parser.commands:
            self.parser = self.parser.commands[text]
        else:
            self.is_lost = self.is_lost or bool(self.parser.commands)
            self.taken += 1
            self.words.append(text)

    def list_possible(self, session: Session, current: str, option: argparse.Action | None) -> Found:
        if self.is_lost:
            return []
        waiting = option or self.waiting
        if waiting is not None:
            return self._list_values(session, waiting)
        if current.startswith("-") and not self.only_arguments:
            return [
                (name, action.help or "")
                for action in self.parser.actions()
                for name in action.option_strings
                if name.startswith("--") or current == name
            ]
        if self.parser.passes_on:
            return [(FILES, "")]
        if self.parser.commands:
            return list_commands(self.parser)
        arguments = [action for action in self.parser.actions() if not action.option_strings]
        for number, action in enumerate(arguments):
            if number == self.taken or (action.nargs in ("+", "*") and number <= self.taken):
                return self._list_values(session, action)
        return []

    def _list_values(self, session: Session, action: argparse.Action) -> Found:
        if action.choices is not None:
            return [(str(choice), "") for choice in action.choices]
        kind = self.parser.completes.get(action.dest, "")
        if kind == FILE:
            return [(FILES, "")]
        if kind == COMMAND_WORD:
            return self._list_command_words()
        if kind == COLUMN:
            return list_columns(session, self.words[0]) if self.words else []
        return LISTS[kind](session) if kind in LISTS else []

    def _list_command_words(self) -> Found:
        parser = self.root
        for each in self.words:
            if each not in parser.commands:
                return []
            parser = parser.commands[each]
        return list_commands(parser)


def list_commands(parser: Parser) -> Found:
    return [
        (name, child.command.summary if child.command is not None else "")
        for name, child in parser.commands.items()
        if name not in parser.hidden
    ]


def list_namespace_names(session: Session) -> Found:
    return asked(session, lambda client: [(name, "") for name in list_namespaces(client)])


def list_tables(session: Session) -> Found:
    return asked(
        session, lambda client: [(each.name, each.comment) for each in islice(client.list_tables(), TABLES_MAX)]
    )


def list_dropped_tables(session: Session) -> Found:
    def listed(client: MetaClient) -> Found:
        tables = islice(client.list_tables(include_dropped=True), TABLES_MAX)
        return {each.name: each.comment for each in tables if each.HasField("drop_time_us")}.items()

    return asked(session, listed)


def list_columns(session: Session, table: str) -> Found:
    return asked(session, lambda client: [(each.name, each.type) for each in find_table(client, table).columns])


def list_transactions(session: Session) -> Found:
    return asked(session, lambda client: map(told, islice(client.list_transactions(), TRANSACTIONS_MAX)))


def list_open_transactions(session: Session) -> Found:
    state = transaction_pb2.TRANSACTION_STATE_OPEN
    return asked(session, lambda client: map(told, islice(client.list_transactions(state=state), TRANSACTIONS_MAX)))


def told(transaction: transaction_pb2.Transaction) -> tuple[str, str]:
    state = word(transaction_pb2.TransactionState.Name, transaction.state)
    return transaction.txn_id, f"{state}, {transaction.principal.name}"


def list_pins(session: Session) -> Found:
    return asked(session, lambda client: {each.pin_id: each.principal.name for each in client.list_pins()}.items())


def list_tasks(session: Session) -> Found:
    def told_task(task: maintenance_pb2.MaintenanceTask) -> tuple[str, str]:
        return task.task_id, f"{word(maintenance_pb2.TaskState.Name, task.state)}, {task.table_name}"

    return asked(session, lambda client: map(told_task, islice(client.list_tasks(), TRANSACTIONS_MAX)))


LISTS: Final[Mapping[str, Callable[[Session], Found]]] = {
    TABLE: list_tables,
    DROPPED_TABLE: list_dropped_tables,
    NAMESPACE: list_namespace_names,
    TRANSACTION: list_transactions,
    OPEN_TRANSACTION: list_open_transactions,
    PIN: list_pins,
    TASK: list_tasks,
}


def asked(session: Session, ask: Callable[[MetaClient], Found]) -> Found:
    """Nothing where no service answers; a folder without one gets none by that."""
    folder = session.settings.folder
    if folder and not (Path(folder) / "_laketx").is_dir():
        return []
    try:
        return list(ask(session.client))
    except LakeTXError:
        return []


COMMAND = Command("__complete", "What may stand at the cursor.", run, passes_on=True, hidden=True)
