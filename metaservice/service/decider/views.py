"""Readers' frozen views of the tables, each published when it is durable. Any thread can read them.

The decider has its own `TableState`, which is ahead of the view between a decision and its sync.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from metaservice.core import limits
from metaservice.core.table.meta import TableMeta
from metaservice.service.decider.names import AnyCase, NameIndex
from metaservice.store import keys
from metaservice.store.records.branches import Fork


class TableView(NamedTuple):
    """A table as of its newest durable version.

    `oldest` is the horizon: lower versions are kept only if something holds them. There are no commits below `trimmed`;
    None: look up the first one.
    The horizon advances while a reader works: `Views.oldest` has the current one. `fork`: what it has of another table.
    """

    raw_id: bytes
    meta: TableMeta
    head: int
    time_us: int
    oldest: int
    trimmed: int | None
    fork: Fork | None = None

    @property
    def folder_id(self) -> str:
        """The table in whose folder its files lie; empty: in its own."""
        return "" if self.fork is None else keys.uuid_text(self.fork.root)

    @property
    def base_id(self) -> str:
        """The table that a fork has its past from; empty: it is none."""
        return "" if self.fork is None else keys.uuid_text(self.fork.base)


def of_fork(meta: TableMeta, table: TableView) -> TableMeta:
    """Metadata of a table's past, as its own: a fork has it from another table."""
    return meta if table.fork is None else replace(meta, table_id=table.meta.table_id, name=table.meta.name)


class Viewed(Protocol):
    def view(self) -> TableView: ...


class Views:
    """The newest view of each table. Only the decider publishes them, after the sync.

    A removed table is gone for readers at once. Its name is freed with one of the next publications: a merge removes
    thousands.
    """

    def __init__(self) -> None:
        self._tables: dict[str, TableView] = {}
        self._names: AnyCase[str] = AnyCase()
        self._gone: list[TableView] = []  # whose names are not free yet
        self._ahead: dict[str, TableView] = {}
        self._name_changes = 0
        self._index: tuple[int, NameIndex] | None = None

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, table_id: str) -> bool:
        return table_id in self._tables

    def table_ids(self) -> list[str]:
        return list(self._tables)

    def names(self) -> Iterable[str]:
        tables = self._tables
        return [name for name, table_id in self._names.copy().items() if table_id in tables]

    def name_index(self) -> NameIndex:
        """Of all names; made again after a name came or went."""
        changes, kept = self._name_changes, self._index  # in this order: a change meanwhile makes the next one anew
        if kept is None or kept[0] != changes:
            kept = self._index = (changes, NameIndex(self.names()))
        return kept[1]

    def find(self, table_id: str) -> TableView | None:
        return self._tables.get(table_id)

    def find_by_name(self, name: str) -> TableView | None:
        table_id = self._names.find(name)
        return self._tables.get(table_id) if table_id is not None else None

    def oldest(self, table: TableView) -> int:
        """The current horizon, however old the view is."""
        return self._tables.get(table.meta.table_id, table).oldest

    def lay_ahead(self, tables: Mapping[str, TableView]) -> None:
        """Views for the next publication, made before it: of tables that keep their names."""
        self._ahead.update(tables)

    def follow(self, tables: Mapping[str, Viewed], changed: Iterable[str]) -> int:
        """Publish the tables that changed, or remove them; return the newest commit time but for views laid ahead."""
        ahead, self._ahead = self._ahead, {}
        if not ahead:
            self._free_names(limits.NAMES_FREED)
        newest_us = 0
        self._tables.update(ahead)  # a reader sees all of them, or none
        for table_id in changed:
            table = tables.get(table_id)
            if table is None:
                self.withdraw(table_id)
            else:
                view = table.view()
                newest_us = max(newest_us, view.time_us)
                self.publish(view)
        return newest_us

    def publish(self, table: TableView) -> None:
        meta = table.meta
        table_id = meta.table_id
        before = self._tables.get(table_id)
        self._tables[table_id] = table
        if before is None:
            self._name(meta.name, table_id)
        elif before.meta is not meta and before.meta.name != meta.name:
            self._name(meta.name, table_id)
            self._free(before)
            self._name_changes += 1

    def withdraw(self, table_id: str) -> None:
        """Removes a dropped table."""
        before = self._tables.pop(table_id, None)
        if before is not None:
            self._gone.append(before)
            self._name_changes += 1

    def _name(self, name: str, table_id: str) -> None:
        if self._names.as_written(name) not in (name, None):  # one that differs in case alone may be free
            self._free_names(len(self._gone))
        self._names[name] = table_id
        self._name_changes += 1

    def _free_names(self, count: int) -> None:
        freed, self._gone = self._gone[:count], self._gone[count:]
        for before in freed:
            self._free(before)

    def _free(self, before: TableView) -> None:
        """Frees the name, unless another table has it by now."""
        if self._names.get(before.meta.name) == before.meta.table_id:
            del self._names[before.meta.name]
