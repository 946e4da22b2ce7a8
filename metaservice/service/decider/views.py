"""Readers' frozen views of the tables, each published when it is durable. Any thread can read them.

The decider has its own `TableState`, which is ahead of the view between a decision and its sync.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

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


class Views:
    """The newest view of each table. Only the decider publishes them, after the sync."""

    def __init__(self) -> None:
        self._tables: dict[str, TableView] = {}
        self._names: AnyCase[str] = AnyCase()
        self._name_changes = 0
        self._index: tuple[int, NameIndex] | None = None

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, table_id: str) -> bool:
        return table_id in self._tables

    def table_ids(self) -> list[str]:
        return list(self._tables)

    def names(self) -> Iterable[str]:
        return list(self._names)

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

    def withdraw(self, table_id: str) -> None:
        """Removes a dropped table."""
        before = self._tables.pop(table_id, None)
        if before is not None:
            self._free(before)

    def _name(self, name: str, table_id: str) -> None:
        self._names[name] = table_id
        self._name_changes += 1

    def _free(self, before: TableView) -> None:
        """Frees the name, unless another table has it by now."""
        if self._names.get(before.meta.name) == before.meta.table_id:
            del self._names[before.meta.name]
            self._name_changes += 1
