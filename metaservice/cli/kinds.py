"""Kinds of values on the command line: how each is read and refused, and what TAB offers for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from metaservice.cli.failures import CommandError, did_you_mean, usage_failure
from metaservice.cli.find import TABLE_ID, find_table, list_namespaces
from metaservice.cli.output import Session
from metaservice.cli.values import read_time_us, word
from metaservice.client import LakeTXError, MetaClient
from protos.laketx.v1 import maintenance_pb2, transaction_pb2

COMPLETE_TIMEOUT_S: Final = 1.0
OFFERED_MAX: Final = 2_000
TRANSACTIONS_MAX: Final = 50
AT: Final = "@"
MAIN: Final = "main"
Offers = Iterable[tuple[str, str]]


def session_of(context: click.Context | None) -> Session:
    session = context.find_object(Session) if context is not None else None
    assert session is not None, "command_line.py makes it"
    return session


def name_of(parameter: click.Parameter | None) -> str:
    """As the help shows it: `--yes/-y`, `TABLE`."""
    if isinstance(parameter, click.Option):
        return "/".join(parameter.opts)
    return parameter.human_readable_name.removesuffix("...") if parameter is not None else "value"


class OneOf(click.Choice[str]):
    """One of some words; what is near one of them is asked about."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(self.choices)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self.choices:
            return value
        hint = did_you_mean(value, self.choices) or (f"{ctx.command_path} --help" if ctx is not None else "")
        usage = ctx.get_usage() if ctx is not None else ""
        message = f"{name_of(param)}: `{value}` is none of {', '.join(self.choices)}"
        raise usage_failure(message, usage=usage, next_step=hint)


class Number(click.ParamType[float, str]):
    """A number within bounds."""

    def __init__(self, name: str, kind: str, read: Callable[[str], float], least: float, most: float) -> None:
        self.name, self._read = name, read
        self.least, self.most, self.kind = least, most, kind

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = self._read(value)
        except ValueError:
            number = self.least - 1
        if not self.least <= number <= self.most:
            self.fail(f"`{value}` is not a {self.kind} from {self.least} to {self.most}", param, ctx)
        return number


def whole(least: int, most: int) -> Number:
    return Number("n", "whole number", int, least, most)


def seconds(least: float, most: float) -> Number:
    return Number("s", "number of seconds", float, least, most)


class Moment(click.ParamType[int, str]):
    """A time, as microseconds since 1970."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return read_time_us(value, session_of(ctx).now_us())


class Pair(click.ParamType[tuple[str, str], str]):
    """NAME=VALUE; or NAME alone, where the value may be left out."""

    def __init__(self, *, value_may_lack: bool = False) -> None:
        self.value_may_lack = value_may_lack
        self.name = "name[=value]" if value_may_lack else "name=value"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        name, equals, after = value.partition("=")
        if not name or not (equals or self.value_may_lack):
            self.fail(f"`{value}` is not {self.name.upper()}", param, ctx)
        return name, after


class StoredName(click.ParamType[str, str]):
    """A name or an id that the service stores. TAB offers those that it lists, for the table on the line."""

    def __init__(self, name: str, offers: Callable[[MetaClient, str], Offers]) -> None:
        self.name, self._offers = name, offers

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Offer nothing if no service answers; completion starts no service for a folder."""
        session, table = session_of(ctx), str(ctx.params.get("table") or next(iter(ctx.args), ""))
        try:
            session.settings.settle(session.environment)
            session.settings.timeout_s = COMPLETE_TIMEOUT_S
            folder = session.settings.folder
            if folder and not (Path(folder) / "_laketx").is_dir():
                return []
            offers = list(islice(self._offers(session.client, table), OFFERED_MAX))
        except (CommandError, LakeTXError):
            return []
        return [CompletionItem(text, help=meaning) for text, meaning in offers if text.startswith(incomplete)]


class NameOnBranch(StoredName):
    """A namespace's name. With `--branch` it is one on that branch, unless it says one itself."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        settings = session_of(ctx).settings
        if not settings.branch:
            return value
        settings.branch_used = True
        name, _, branch = value.partition(AT)
        branch = branch or settings.branch
        return name if branch.lower() == MAIN or not name else f"{name}{AT}{branch}"


class TableName(StoredName):
    """A table's or view's name, or a table's id. With `--branch` a name that says no branch is one on that branch."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        settings = session_of(ctx).settings
        if not settings.branch:
            return value
        settings.branch_used = True
        if TABLE_ID.fullmatch(value):
            return value
        table, at, version = value.rpartition(AT)
        if not at or not version.isdecimal():  # TABLE@7 is a version
            table, version = value, ""
        name, _, branch = table.partition(AT)
        branch = branch or settings.branch
        on_branch = name if branch.lower() == MAIN else f"{name}{AT}{branch}"
        return f"{on_branch}{AT}{version}" if version else on_branch


def tables(client: MetaClient) -> Offers:
    return ((each.name, each.comment) for each in client.list_tables())


def dropped_tables(client: MetaClient, _: str) -> Offers:
    listed = islice(client.list_tables(include_dropped=True), OFFERED_MAX)
    return {each.name: each.comment for each in listed if each.HasField("drop_time_us")}.items()


def transactions(client: MetaClient, state: transaction_pb2.TransactionState.ValueType) -> Offers:
    for each in islice(client.list_transactions(state=state), TRANSACTIONS_MAX):
        yield each.txn_id, f"{word(transaction_pb2.TransactionState.Name, each.state)}, {each.principal.name}"


def tasks(client: MetaClient, _: str) -> Offers:
    for each in islice(client.list_tasks(), TRANSACTIONS_MAX):
        yield each.task_id, f"{word(maintenance_pb2.TaskState.Name, each.state)}, {each.table_name}"


def tags(client: MetaClient, table: str) -> Offers:
    return ((each.name, each.comment) for each in client.list_tags(find_table(client, table).table_id))


def cursors(client: MetaClient, table: str) -> Offers:
    listed = client.list_cursors(find_table(client, table).table_id)
    return ((each.name, f"read up to version {each.version}") for each in listed)


TABLE: Final = TableName("table", lambda client, _: tables(client))
SOURCE_TABLE: Final = StoredName("table", lambda client, _: tables(client))  # of another catalog
NEW_TABLE: Final = TableName("name", lambda _, __: ())
DROPPED_TABLE: Final = StoredName("table", dropped_tables)
COLUMN: Final = StoredName("name", lambda client, table: ((c.name, c.type) for c in find_table(client, table).columns))
NAMESPACE: Final = StoredName("name", lambda client, _: ((name, "") for name in list_namespaces(client)))
BRANCHED_NAMESPACE: Final = NameOnBranch("name", lambda client, _: ((name, "") for name in list_namespaces(client)))
NEW_NAMESPACE: Final = NameOnBranch("name", lambda _, __: ())
BRANCH: Final = StoredName("branch", lambda client, _: ((each.name, each.comment) for each in client.list_branches()))
PERIODIC_TASK: Final = TableName(
    "name", lambda client, _: ((each.name, each.comment) for each in client.list_periodic_tasks())
)
VIEW: Final = TableName("name", lambda client, _: ((each.name, each.comment) for each in client.list_views()))
ANY, OPEN = transaction_pb2.TRANSACTION_STATE_UNSPECIFIED, transaction_pb2.TRANSACTION_STATE_OPEN
TRANSACTION: Final = StoredName("txn", lambda client, _: transactions(client, ANY))
OPEN_TRANSACTION: Final = StoredName("txn", lambda client, _: transactions(client, OPEN))
PIN: Final = StoredName(
    "pin", lambda client, _: {each.pin_id: each.principal.name for each in client.list_pins()}.items()
)
TASK: Final = StoredName("task", tasks)
TAG: Final = StoredName("name", tags)
CURSOR: Final = StoredName("cursor", cursors)
FILE: Final = click.Path()
TIME: Final = Moment()
VERSION_MAX: Final = 2**62
VERSION: Final = whole(0, VERSION_MAX)
PAIR: Final = Pair()
