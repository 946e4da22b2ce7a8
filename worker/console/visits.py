"""A request of somebody who is logged in, and what a page answers to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from metaservice.cli.find import TABLE_ID
from metaservice.client import BlockedError, DeniedError, LakeTXError, MetaClient, NotFoundError
from protos.laketx.v1 import catalog_pb2, read_pb2
from worker.connection.lake_connection import Connection

Item = TypeVar("Item")
GONE: Final = (NotFoundError, DeniedError, BlockedError)  # of a table that is dropped, or that the caller may not see
DROPPED: Final = "TABLE_DROPPED"
NUMBER: Final = re.compile(r"[0-9]{1,18}")


class PageError(Exception):
    """A page that can't be shown: its status, a title and the next step, for people."""

    def __init__(self, status: int, title: str, step: str) -> None:
        super().__init__(title)
        self.status, self.title, self.step = status, title, step


@dataclass(frozen=True, slots=True)
class Shown:
    """A page: its template and facts. `live` is the address of the events after which it is asked for again."""

    template: str
    facts: Mapping[str, Any]
    status: int = 200
    live: str = ""


LIVE_SERVICE: Final = "/live/service"


def live_of(table: catalog_pb2.Table) -> str:
    """The address of the table's events."""
    return f"/live/tables/{table.table_id}"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request, with the caller's own connection: the service decides what it shows."""

    request: Request
    lake: Connection
    now_us: int
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def client(self) -> MetaClient:
        return self.lake.client

    def text(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    def number(self, name: str) -> int | None:
        """A whole number of the query; None: it has none."""
        return number_of(name, self.text(name))

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def table(self) -> catalog_pb2.Table:
        """The table that the path names by its id."""
        table_id = self.part("table_id")
        if not TABLE_ID.fullmatch(table_id):
            raise no_table()
        try:
            return self.client.get_table(table_id=table_id)
        except NotFoundError as error:
            raise no_table() from error


Page = Callable[[Visit], Shown | Response]


def no_table() -> PageError:
    """The same for a table that isn't there and for one that the caller may not see."""
    return PageError(404, "There is no such table", "It was dropped, or you have no right to read it.")


def is_gone(error: LakeTXError) -> bool:
    """Whether a table was dropped, or the caller may not see it any more; anything else may pass."""
    return isinstance(error, NotFoundError | DeniedError) or (
        isinstance(error, BlockedError) and error.reason == DROPPED
    )


def number_of(name: str, text: str) -> int | None:
    if text and not NUMBER.fullmatch(text):
        raise PageError(400, f"{name} is not a whole number", "Correct the address, or go back.")
    return int(text) if text else None


def taken(items: Iterator[Item], most: int) -> tuple[list[Item], bool]:
    """The first items, and whether there are more."""
    first = list(islice(items, most + 1))
    return first[:most], len(first) > most


def allowed(items: Iterable[Item]) -> list[Item] | None:
    """The items; None: the caller may not see them."""
    try:
        return list(items)
    except DeniedError:
        return None


def commit_time_us(client: MetaClient, table_id: str, version: int) -> int:
    """The time of a commit; 0 if it is no longer known."""
    alone = read_pb2.VersionFilter(from_version=version, to_version=version)
    try:
        commit = next(client.list_versions(table_id, matching=alone, page_size=1), None)
    except GONE:
        return 0
    return commit.commit_time_us if commit is not None else 0


class TableNames:
    """Names of tables by id, each asked for once; empty for one that is gone, or that the caller may not see."""

    def __init__(self, client: MetaClient) -> None:
        self._client = client
        self._tables: dict[str, catalog_pb2.Table | None] = {}

    def table(self, table_id: str) -> catalog_pb2.Table | None:
        if table_id not in self._tables:
            try:
                self._tables[table_id] = self._client.get_table(table_id=table_id)
            except GONE:
                self._tables[table_id] = None
        return self._tables[table_id]

    def __getitem__(self, table_id: str) -> str:
        table = self.table(table_id)
        return table.name if table is not None else ""
