"""What a merge of dlt changes: the rows to remove and to add, for a table and the tables nested in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import polars as pl

Read = Callable[[str, Sequence[str]], pl.DataFrame]  # the named columns of a table's current rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTable:
    """The columns by which a table's rows are matched. The first table of a chain is the root, others are nested."""

    name: str
    row_key: str | None = None  # identifies a row
    parent: str | None = None  # of a nested table: the table in which it is nested
    parent_key: str | None = None  # the row key of the parent's row
    root_key: str | None = None  # the row key of the root's row


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the root table is merged."""

    primary_key: Sequence[str] = ()
    merge_key: Sequence[str] = ()
    hard_delete: str | None = None  # rows with a value here, or true, are deleted
    newest_by: tuple[str, bool] | None = None  # of rows with one primary key: a column, and whether the highest counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The columns of a slowly changing dimension, and the instants to write."""

    valid_from: str
    valid_to: str
    row_version: str
    boundary: datetime
    active_until: datetime | None = None
    merge_key: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RowChange:
    """The rows of one table to remove, by the values of some columns, and the rows to add.

    With `ends_at` the rows are not removed: their column of that name gets that value.
    """

    added: pl.DataFrame
    removed: pl.DataFrame = field(default_factory=pl.DataFrame)
    ends_at: tuple[str, datetime] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return self.added.is_empty() and self.removed.is_empty()


Changes = dict[str, RowChange]


class MergeError(ValueError):
    """The hints of the tables don't tell how to merge them."""


def replaced_by_key(
    tables: Sequence[LoadedTable], rules: Rules, loaded: Mapping[str, pl.DataFrame], read: Read
) -> Changes:
    """Rows replace those with the same primary key or merge key, together with their nested rows.

    Without a key all rows are added. Rows that are marked as deleted remove and are not added.
    """
    root, nested = tables[0], tables[1:]
    rows = loaded[root.name]
    has_keys = bool(rules.primary_key or rules.merge_key)
    if nested and (has_keys or rules.hard_delete) and root.row_key is None:
        raise MergeError(f"{root.name} has nested tables, but no column with the hint row_key, unique or primary_key")
    added = _living(newest(rows, rules), rules)
    changes: Changes = {}
    old = old_columns = pl.DataFrame()
    if has_keys:
        columns = list(dict.fromkeys([*rules.primary_key, *rules.merge_key]))
        old = _matched(read(root.name, [*columns, *_other(root.row_key, columns)]), rows, rules)
        old_columns = old.select(columns).unique()
    changes[root.name] = RowChange(added, old_columns)
    for table in nested:
        given = loaded[table.name]
        removed = pl.DataFrame()
        if (has_keys or rules.hard_delete) and not given.is_empty():
            given = given.join(_values(added, root.row_key, _root_key(table)), on=table.root_key, how="semi")
        if has_keys:
            removed = _values(old, root.row_key, _root_key(table))
        changes[table.name] = RowChange(_last_of_each_key(given, table.row_key), removed)
    return changes


def replaced_whole(tables: Sequence[LoadedTable], rules: Rules, loaded: Mapping[str, pl.DataFrame]) -> Changes:
    """All rows are replaced by one row of each primary key, with its nested rows."""
    root = tables[0]
    kept = {root.name: newest(loaded[root.name], rules)}
    row_keys = {table.name: table.row_key for table in tables}
    for table in tables[1:]:
        rows, parent = loaded[table.name], table.parent or ""
        if not rows.is_empty() and table.parent_key is not None and parent in kept:
            rows = rows.join(_values(kept[parent], row_keys[parent], table.parent_key), on=table.parent_key, how="semi")
        kept[table.name] = rows
    return {name: RowChange(rows) for name, rows in kept.items()}


def inserted_if_new(
    tables: Sequence[LoadedTable], rules: Rules, loaded: Mapping[str, pl.DataFrame], read: Read
) -> Changes:
    """Rows are added if the table has none with their primary key.

    Nested rows are added if the table has none with their row key, and if their root row is there.
    """
    root, nested = tables[0], tables[1:]
    if not rules.primary_key:
        raise MergeError(f"{root.name} has no primary key")
    rows = newest(loaded[root.name], rules)
    dead = rows.filter(_mark(rows, rules))
    rows = _living(rows, rules)
    has_roots = root.row_key is not None and any(table.root_key is not None for table in nested)
    old = read(root.name, [*rules.primary_key, *(_other(root.row_key, rules.primary_key) if has_roots else ())])
    changes = {root.name: RowChange(_missing(rows, old, rules.primary_key))}
    for table in nested:
        given = loaded[table.name]
        if has_roots and table.root_key is not None and not given.is_empty():
            roots = [_values(part, root.row_key, table.root_key) for part in (changes[root.name].added, old)]
            given = given.join(pl.concat(roots), on=table.root_key, how="semi")
            given = given.join(_values(dead, root.row_key, table.root_key), on=table.root_key, how="anti")
        key = [_row_key(table)]
        changes[table.name] = RowChange(_missing(_last_of_each_key(given, key[0]), read(table.name, key), key))
    return changes


def ended_and_added(
    tables: Sequence[LoadedTable], validity: Validity, loaded: Mapping[str, pl.DataFrame], read: Read
) -> Changes:
    """Active rows that are no longer loaded end; loaded rows that aren't active are added and become active.

    With a merge key only active rows whose merge key was loaded end.
    """
    root, nested = tables[0], tables[1:]
    version, until = validity.row_version, validity.valid_to
    rows = loaded[root.name]
    old = read(root.name, list(dict.fromkeys([version, until, *validity.merge_key])))
    active_until = pl.lit(validity.active_until, dtype=old.schema[until])
    active = old.filter(pl.col(until).eq_missing(active_until))
    gone = active.join(rows.select(version), on=version, how="anti")
    if validity.merge_key:
        gone = gone.join(rows.select(validity.merge_key), on=list(validity.merge_key), how="semi")
    moment = old.schema[until]
    added = rows.join(active.select(version), on=version, how="anti").with_columns(
        pl.lit(validity.boundary, dtype=moment).alias(validity.valid_from),
        pl.lit(validity.active_until, dtype=moment).alias(until),
    )
    ended = gone.select(version, until).unique()
    changes = {root.name: RowChange(added, ended, (until, validity.boundary))}
    for table in nested:
        key = [_row_key(table)]
        changes[table.name] = RowChange(_missing(loaded[table.name], read(table.name, key), key))
    return changes


def newest(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """One row of each primary key: the one that the sort column puts first, otherwise the last one."""
    if not rules.primary_key or rows.is_empty():
        return rows
    keep: Literal["first", "last"] = "last"
    if rules.newest_by is not None:
        column, highest = rules.newest_by
        rows = rows.sort(column, descending=highest, nulls_last=True, maintain_order=True)
        keep = "first"
    return rows.unique(list(rules.primary_key), keep=keep, maintain_order=True)


def _matched(old: pl.DataFrame, rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """The old rows that share a key with a loaded row. NULL equals nothing."""
    keys = [list(key) for key in (rules.primary_key, rules.merge_key) if key]
    matches = [old.join(rows.select(key), on=key, how="semi") for key in keys]
    return pl.concat(matches)


def _living(rows: pl.DataFrame, rules: Rules) -> pl.DataFrame:
    """The rows that are not marked as deleted."""
    return rows.filter(~_mark(rows, rules))


def _mark(rows: pl.DataFrame, rules: Rules) -> pl.Expr:
    """Whether a row is marked as deleted."""
    if rules.hard_delete is None or rules.hard_delete not in rows.columns:
        return pl.lit(value=False)
    mark = pl.col(rules.hard_delete)
    return mark.fill_null(value=False) if rows.schema[rules.hard_delete] == pl.Boolean else mark.is_not_null()


def _missing(rows: pl.DataFrame, old: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    return rows if rows.is_empty() else rows.join(old.select(key), on=list(key), how="anti")


def _last_of_each_key(rows: pl.DataFrame, key: str | None) -> pl.DataFrame:
    return rows if key is None or rows.is_empty() else rows.unique([key], keep="last", maintain_order=True)


def _values(rows: pl.DataFrame, column: str | None, name: str) -> pl.DataFrame:
    assert column is not None
    return rows.select(pl.col(column).alias(name)).unique()


def _other(column: str | None, columns: Sequence[str]) -> list[str]:
    return [] if column is None or column in columns else [column]


def _row_key(table: LoadedTable) -> str:
    if table.row_key is None:
        raise MergeError(f"{table.name} has no column with the hint row_key, unique or primary_key")
    return table.row_key


def _root_key(table: LoadedTable) -> str:
    if table.root_key is None:
        raise MergeError(f"{table.name} has no column with the hint root_key, such as _dlt_root_id")
    return table.root_key
