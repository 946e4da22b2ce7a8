"""The sources of a view: rows at a version and changes between two, under the names that the view's query uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from metaservice.client import MetaServiceError
from protos.laketx.v1 import catalog_pb2
from worker.arrow.changes.change_rows import ChangeRows
from worker.arrow.changes.commits import INSERT, POSTIMAGE
from worker.arrow.scan.version_rows import VersionRows, columns_schema
from worker.base.errors import InputError
from worker.base.schema import CHANGE_TYPE
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.views.definition import Definition, ViewSource
from worker.views.delta import CHANGES, FROM, NONE, TO, DeltaPlan, N, Restriction, relations_of
from worker.views.engine import run_with, types_in
from worker.views.key_rows import EXACT, KEYS_MAX, WHOLE, KeyRows, read_rows
from worker.views.operators import quoted


@contextmanager
def named_if_dropped(definition: Definition) -> Iterator[None]:
    """Name the source in the service's error about a table that was dropped; it has the id alone."""
    try:
        yield
    except MetaServiceError as error:
        by_id = {source.table_id: source.name for source in definition.sources.values()}
        name = by_id.get(error.facts.get("table_id", ""))
        if name is None or error.reason not in {"TABLE_DROPPED", "TABLE_UNKNOWN"}:
            raise
        is_kept = error.reason == "TABLE_DROPPED"
        advice = "undrop it, or drop the view" if is_kept else "it is no longer kept; drop the view"
        message = f"{name}, which the view reads, was dropped: {advice}"
        raise type(error)(error.kind, error.reason, {**error.facts, "source": name}, message) from error


class SourceTables:
    """The sources of a view at pinned versions: `before` and `after`."""

    def __init__(
        self, lake: Connection, sources: Mapping[str, ViewSource], before: Mapping[str, int], after: Mapping[str, int]
    ) -> None:
        """The versions are by name."""
        self._sources = sources
        self._before = before
        self._after = after
        self._lake = lake
        self._metas: dict[tuple[str, int], catalog_pb2.Table] = {}
        self._changes_read: dict[str, pa.Table] = {}
        self.rows_read = 0
        self.bytes_read = 0  # in memory
        self._nulls: dict[str, Mapping[int, int]] = {}

    @property
    def changed(self) -> list[str]:
        """The sources whose versions differ."""
        return [name for name in self._sources if self._before.get(name) != self._after[name]]

    def changed_rows(self) -> int:
        """Return how many rows came and went, in the columns that the query uses."""
        tables = [self._relation(name, CHANGES, None) for name in self.changed]
        return sum(int(np.abs(rows.column(N).to_numpy()).sum()) for rows in tables)

    def schema(self, name: str, version: int) -> pa.Schema:
        """Return the columns that the query uses, as they are at a version."""
        shown = columns_schema(self._meta(name, version))
        stored = self._stored_names(name, version)
        return pa.schema([shown.field(stored[column]).with_name(column) for column in stored])

    def altered(self) -> str | None:
        """Return a source whose columns have other types at both versions; None if there is none."""
        for name in self.changed:
            if not self.schema(name, self._before[name]).equals(self.schema(name, self._after[name])):
                return name
        return None

    def types(self) -> dict[str, Mapping[str, str]]:
        """Return the types of the columns in DuckDB's words."""
        return {name: types_in(self.schema(name, self._after[name])) for name in self._sources}

    def without_nulls(self, columns: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
        """Return which columns of sources had no NULL at `before`, as the schema or the bounds of the files say."""
        return frozenset(each for each in columns if self._has_no_null(*each))

    def run(self, plan: DeltaPlan, more: Mapping[str, pa.Table] | None = None) -> pa.Table:
        """Return the rows of a plan. Relations of which it needs the rows of a few keys are read so."""
        given = more or {}
        return run_with({**self.relations(plan.text, plan.restrictions, given), **given}, plan.text)

    def relations(
        self,
        text: str,
        restrictions: Mapping[tuple[str, str], Restriction] | None = None,
        given: Mapping[str, pa.Table] | None = None,
    ) -> dict[str, pa.Table]:
        """Return the relations that the text of a plan reads, except the given ones.

        If the rows of the same few keys are needed at both versions, those before are the ones after without the
        changes.
        """
        relations: dict[str, pa.Table] = {}
        self._find(text, restrictions or {}, given or {}, {}, relations)
        return {
            name: relations[name] for name in (f"{source}@{side}" for source, side in relations_of(text, self._sources))
        }

    def _find(
        self,
        text: str,
        restrictions: Mapping[tuple[str, str], Restriction],
        given: Mapping[str, pa.Table],
        keys: dict[str, pa.Array],
        relations: dict[str, pa.Table],
    ) -> None:
        """Add to `relations` what a text reads, and to `keys` the keys by which it is read."""
        needed = relations_of(text, self._sources)
        for name, side in sorted(needed, key=lambda place: (place[1] == FROM, place)):
            if f"{name}@{side}" in relations:
                continue
            restriction = restrictions.get((name, side)) if side in {FROM, TO} else None
            if restriction is not None and self._kind(name, side, restriction.column) not in EXACT:
                restriction = None
            if restriction is not None and restriction.keys not in keys:  # they need only relations of steps before
                self._find(restriction.keys, restrictions, given, keys, relations)
                keys[restriction.keys] = run_with({**relations, **given}, restriction.keys).column("k").unique()
            chosen = None if restriction is None else self._chosen(name, side, restriction, keys[restriction.keys])
            after = relations.get(f"{name}@{TO}") if restriction == restrictions.get((name, TO)) else None
            rows = None
            if restriction is not None and chosen is not None and side == FROM and self._is_exact(name):
                rows = None if after is None else self._before_changes(name, after, restriction.column, chosen.keys)
            relations[f"{name}@{side}"] = self._relation(name, side, chosen) if rows is None else rows

    def _relation(self, name: str, side: str, chosen: KeyRows | None) -> pa.Table:
        if side == NONE:
            return self.schema(name, self._after[name]).empty_table()
        if side == CHANGES:
            if name not in self._changes_read:
                self._changes_read[name] = self._changes(name)
            return self._changes_read[name]
        return self._rows(name, self._version(name, side), chosen)

    def _version(self, name: str, side: str) -> int:
        return {FROM: self._before, TO: self._after}[side][name]

    def _chosen(self, name: str, side: str, restriction: Restriction, keys: pa.Array) -> KeyRows | None:
        """The rows whose column has one of the keys; None if these are too many, or of another type."""
        version, column = self._version(name, side), restriction.column
        has_type = keys.type == self.schema(name, version).field(column).type
        stored, kind = self._stored_names(name, version)[column], self._kind(name, side, column)
        return KeyRows(stored, kind, keys) if has_type and len(keys) <= KEYS_MAX else None

    def _kind(self, name: str, side: str, column: str) -> str:
        """The type of a column of the query."""
        version = self._version(name, side)
        stored = self._stored_names(name, version)[column]
        return next(each.type for each in self._meta(name, version).columns if each.name == stored)

    def _is_exact(self, name: str) -> bool:
        """Whether equal values of the columns that the query uses are the same at both versions: 0.0 equals -0.0."""
        stored = set(self._stored_names(name, self._after[name]).values())
        kinds = {each.type for each in self._meta(name, self._after[name]).columns if each.name in stored}
        return kinds <= EXACT and self.schema(name, self._before[name]).equals(self.schema(name, self._after[name]))

    def _before_changes(self, name: str, after: pa.Table, column: str, keys: pa.Array) -> pa.Table:
        """The chosen rows at `before`, from those at `after`."""
        names = ", ".join(map(quoted, after.column_names))
        same = f"changes.{quoted(column)} IS NOT DISTINCT FROM keys.k"
        text = (
            f"WITH few AS (SELECT changes.* FROM changes SEMI JOIN keys ON {same}) "
            f"(SELECT {names} FROM after EXCEPT ALL "
            f"SELECT {names} FROM (SELECT {names}, unnest(range({N})) FROM few WHERE {N} > 0)) "
            f"UNION ALL SELECT {names} FROM (SELECT {names}, unnest(range(-{N})) FROM few WHERE {N} < 0)"
        )
        tables = {"changes": self._relation(name, CHANGES, None), "keys": pa.table({"k": keys}), "after": after}
        return run_with(tables, text).cast(after.schema)

    def _rows(self, name: str, version: int, chosen: KeyRows | None) -> pa.Table:
        then = TableView(self._lake, self._meta(name, version))
        stored = self._stored_names(name, version)
        reader = VersionRows(then, version)
        rows = read_rows(reader, _distinct(stored.values()), chosen, self._counted)
        return rows.select(list(stored.values())).rename_columns(list(stored))

    def _changes(self, name: str) -> pa.Table:
        """The rows that came and went, each once with N; changes of other columns cancel each other."""
        begin, end = self._before[name], self._after[name]
        stored = self._stored_names(name, end)
        reader = ChangeRows(TableView(self._lake, self._meta(name, end)), begin, end, "changes")
        [rows] = reader.tables([*_distinct(stored.values()), CHANGE_TYPE], None, WHOLE)
        named = self._counted(rows).select([*stored.values(), CHANGE_TYPE]).rename_columns([*stored, CHANGE_TYPE])
        names = ", ".join(map(quoted, stored))
        signed = f"SUM(CASE WHEN {quoted(CHANGE_TYPE)} IN ('{INSERT}', '{POSTIMAGE}') THEN 1 ELSE -1 END)"
        text = f"SELECT {names}, CAST({signed} AS BIGINT) AS {N} FROM changes GROUP BY {names} HAVING {signed} <> 0"
        return run_with({"changes": named}, text)

    def _counted(self, rows: pa.Table) -> pa.Table:
        self.rows_read += len(rows)
        self.bytes_read += rows.nbytes
        return rows

    def _has_no_null(self, name: str, column: str) -> bool:
        version = self._before[name]
        meta = self._meta(name, version)
        stored = next(each for each in meta.columns if each.column_id == self._sources[name].columns[column])
        if not stored.nullable:
            return True
        if name not in self._nulls:
            self._nulls[name] = null_counts(TableView(self._lake, meta), version)
        return self._nulls[name].get(stored.column_id) == 0

    def _meta(self, name: str, version: int) -> catalog_pb2.Table:
        meta = self._metas.get((name, version))
        if meta is None:
            meta = self._lake.client.get_table(table_id=self._sources[name].table_id, version=version)
            self._metas[name, version] = meta
        return meta

    def _stored_names(self, name: str, version: int) -> dict[str, str]:
        """The names of the columns at a version by those of the query; ids stay when columns are renamed."""
        source, meta = self._sources[name], self._meta(name, version)
        names = {column.column_id: column.name for column in meta.columns}
        for column, column_id in source.columns.items():
            if column_id not in names:
                raise InputError(
                    "VIEW_SOURCE_CHANGED",
                    f"the column {column} of {meta.name}, which the view reads, was dropped: the view stays at its "
                    "last version; drop it and create it without the column",
                )
        return {column: names[column_id] for column, column_id in source.columns.items()}


def null_counts(table: TableView, version: int) -> dict[int, int]:
    """Return at most how many NULLs the columns have at a version, by their ids; without those that no one knows of."""
    counts: dict[int, int] | None = None
    for part in table.client.plan_scan(table.table_id, version=version):
        for entry in part.entries:
            if not entry.HasField("file"):
                continue
            nulls = {stats.column_id: stats.nulls for stats in entry.file.stats if stats.HasField("nulls")}
            counts = nulls if counts is None else {key: counts[key] + nulls[key] for key in counts.keys() & nulls}
    return counts or {}


def _distinct(names: Iterable[str]) -> Sequence[str]:
    return list(dict.fromkeys(names))
