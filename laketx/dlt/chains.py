"""Commits the files of a load: a table and the tables nested in it, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema.utils import (
    get_active_record_timestamp,
    get_columns_names_with_prop,
    get_dedup_sort_tuple,
    get_first_column_name_with_prop,
    get_validity_column_names,
    is_nested_table,
)
from dlt.common.time import ensure_datetime_in_tz

from laketx.dlt.merges import (
    Changes,
    LoadedTable,
    MergeError,
    RowChange,
    Rules,
    Validity,
    ended_and_added,
    inserted_if_new,
    replaced_by_key,
    replaced_whole,
)
from laketx.lake import Lake
from laketx.transaction import MultiTableTransaction, TableInTransaction
from worker.files.arrow_types import arrow_schema

TableHints: TypeAlias = Any  # dlt has two types for it, one of them too narrow for its own functions
COMMITTED: Final = "_dlt_committed"  # the table of the chains that are committed while their load is not complete
IS_OLD: Final = "_dlt_is_old"  # the column of a merge's source that marks the rows that name an old row
OLD: Final = "_dlt_old_"  # before the columns by which such a row finds it


@dataclass(frozen=True, slots=True)
class Chain:
    """The tables of one root table in one load, and their files by table."""

    load_id: str
    schema_name: str
    tables: Sequence[TableHints]  # the root first
    files: Mapping[str, Sequence[str]]
    merge_strategy: str | None
    created_at: datetime | None  # of the load; a slowly changing dimension needs it

    @property
    def root(self) -> TableHints:
        """The table in which the others are nested."""
        return self.tables[0]

    @property
    def key(self) -> str:
        """What identifies the chain, also when it is committed again."""
        return f"{self.load_id}/{self.schema_name}/{self.root['name']}"


class _AlreadyCommittedError(Exception):
    """An earlier try has committed the chain."""


def commit_chain(lake: Lake, dataset: str, chain: Chain) -> None:
    """Commit the chain, unless an earlier try did.

    Raises ConflictError after a lost race, DestinationTerminalException for rows or hints that don't fit.
    """
    try:
        with lake.transaction(f"dlt load {chain.load_id} of {chain.root['name']}") as txn:
            committed = txn.table(f"{dataset}.{COMMITTED}")
            keys = committed.to_arrow(columns=["chain"], where=f"chain = {quoted(chain.key)}")
            if keys.num_rows:
                raise _AlreadyCommittedError
            committed.upsert([{"chain": chain.key, "load_id": chain.load_id}])
            _ChainWrite(lake, txn, dataset, chain).stage()
    except _AlreadyCommittedError:
        return
    except (MergeError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DestinationTerminalException(str(error)) from error


class _ChainWrite:
    """Stages the changes of a chain in a transaction."""

    def __init__(self, lake: Lake, txn: MultiTableTransaction, dataset: str, chain: Chain) -> None:
        self._chain = chain
        names = {table["name"]: f"{dataset}.{table['name']}" for table in chain.tables}
        self._targets = {name: txn.table(path) for name, path in names.items()}
        self._metas = {name: lake.table(path).meta for name, path in names.items()}

    def stage(self) -> None:
        """Stage a change of each table, as the root's write disposition says."""
        disposition = self._chain.root["write_disposition"]
        if disposition == "merge":
            for name, change in self._merged().items():
                _stage_rows(self._targets[name], self._metas[name].primary_key, change)
        elif disposition == "replace":
            self._replace()
        else:
            for table in self._chain.tables:
                self._append(table["name"])

    def _append(self, name: str) -> None:
        if self._chain.files.get(name):
            target = self._targets[name]
            if self._metas[name].primary_key:
                raise DestinationTerminalException(
                    f"{target.name} has a primary key, so a row that is appended would replace the row of its key: "
                    'load it with write_disposition="merge" or "replace", or drop the table'
                )
            target.append(self._stream(name))

    def _replace(self) -> None:
        chain = self._chain
        if self._metas[chain.root["name"]].primary_key:
            loaded = {table["name"]: self._loaded(table["name"]) for table in chain.tables}
            tables = [_loaded_table(table, chain.root) for table in chain.tables]
            for name, change in replaced_whole(tables, _rules(chain.root, by_merge_key=False), loaded).items():
                self._targets[name].overwrite(change.added.to_arrow())
            return
        for table in chain.tables:
            target = self._targets[table["name"]]
            if chain.files.get(table["name"]):
                target.overwrite(self._stream(table["name"]))
            else:
                target.truncate()

    def _stream(self, name: str) -> pa.RecordBatchReader:
        """The rows of the files, batch by batch."""
        files = list(self._chain.files[name])
        given = pa.unify_schemas([pq.read_schema(file) for file in files], promote_options="permissive")
        schema = _schema_for(given, arrow_schema(self._metas[name]))
        batches = ds.dataset(files, schema=given).to_batches()
        return pa.RecordBatchReader.from_batches(schema, (_fitted(batch, schema) for batch in batches))

    def _loaded(self, name: str) -> pl.DataFrame:
        """The rows of the files, in memory."""
        target = arrow_schema(self._metas[name])
        if not self._chain.files.get(name):
            return _frame(target.empty_table())
        return _frame(self._stream(name).read_all())

    def _merged(self) -> Changes:
        chain = self._chain
        root = chain.root
        loaded = {table["name"]: self._loaded(table["name"]) for table in chain.tables}
        tables = [_loaded_table(table, root) for table in chain.tables]
        if chain.merge_strategy == "scd2":
            return ended_and_added(tables, _validity(root, chain.created_at), loaded, self._read)
        rules = _rules(root, by_merge_key=chain.merge_strategy == "delete-insert")
        if chain.merge_strategy == "insert-only":
            return inserted_if_new(tables, rules, loaded, self._read)
        return replaced_by_key(tables, rules, loaded, self._read)

    def _read(self, name: str, columns: Sequence[str]) -> pl.DataFrame:
        return _frame(self._targets[name].to_arrow(columns=list(columns)))


def _stage_rows(target: TableInTransaction, primary_key: Sequence[str], change: RowChange) -> None:
    """Stage the change: as an upsert or an append if that is all it needs, otherwise as a merge."""
    if change.is_empty:
        return
    if primary_key:
        _stage_by_key(target, primary_key, change)
    elif change.removed.is_empty():
        target.append(change.added.to_arrow())
    else:
        _stage_merge(target, change)


def _stage_merge(target: TableInTransaction, change: RowChange) -> None:
    """Stage a merge whose source has a row for each old row, which it finds by its values, and the rows to add."""
    key = change.removed.columns
    removed = change.removed.rename({name: OLD + name for name in key})
    source = pl.concat([change.added, removed.with_columns(pl.lit(value=True).alias(IS_OLD))], how="diagonal")
    on = " AND ".join(f"target.{_name(column)} <=> source.{_name(OLD + column)}" for column in key)
    merge = target.merge(source.to_arrow(), on=f"source.{IS_OLD} AND {on}")
    if change.ends_at is None:
        merge = merge.when_matched_delete(condition=f"source.{IS_OLD}")
    else:
        merge = merge.when_matched_update(dict([change.ends_at]), condition=f"source.{IS_OLD}")
    values = {name: f"source.{_name(name)}" for name in change.added.columns}
    merge.when_not_matched_insert(values, condition=f"source.{IS_OLD} IS NULL").execute()


def _stage_by_key(target: TableInTransaction, primary_key: Sequence[str], change: RowChange) -> None:
    """Stage a change of a table with a primary key, where a row that is added replaces the row of its key."""
    key = list(primary_key)
    if change.ends_at is not None or not set(key) <= set(change.added.columns):
        raise MergeError(f"the load keeps several rows of one key, but {target.name} has a primary key: drop the table")
    if change.removed.is_empty():
        target.upsert(change.added.to_arrow())
        return
    if not set(key) <= set(change.removed.columns):
        raise MergeError(
            f"the primary key of {target.name} is {', '.join(key)}, and another one in the load: drop the table"
        )
    gone = change.removed.select(key).unique().join(change.added.select(key), on=key, how="anti")
    if gone.is_empty():
        target.upsert(change.added.to_arrow())
        return
    source = pl.concat([change.added, gone.with_columns(pl.lit(value=True).alias(IS_OLD))], how="diagonal")
    values = {name: f"source.{_name(name)}" for name in change.added.columns if name not in key}
    merge = target.merge(source.to_arrow(), on=key).when_matched_delete(condition=f"source.{IS_OLD}")
    if values:
        merge = merge.when_matched_update(values)
    added = {name: f"source.{_name(name)}" for name in change.added.columns}
    merge.when_not_matched_insert(added, condition=f"source.{IS_OLD} IS NULL").execute()


def _schema_for(given: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The types to which the loaded columns are cast: those of the table."""
    return pa.schema([(name, table.field(name).type) for name in given.names])


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the table's types. A time of day is a text there.

    Raises ArrowInvalid for a value that doesn't fit.
    """
    columns = [pc.cast(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _frame(rows: pa.Table) -> pl.DataFrame:
    return cast(pl.DataFrame, pl.from_arrow(rows))


def _name(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def quoted(text: str) -> str:
    """Return the text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _loaded_table(table: TableHints, root: TableHints) -> LoadedTable:
    row_key = get_first_column_name_with_prop(table, "row_key") or get_first_column_name_with_prop(table, "unique")
    if row_key is None and len(keys := get_columns_names_with_prop(table, "primary_key")) == 1:
        row_key = keys[0]
    if not is_nested_table(table):
        return LoadedTable(name=table["name"], row_key=row_key)
    parent, parent_key = table.get("parent"), get_first_column_name_with_prop(table, "parent_key")
    root_key = get_first_column_name_with_prop(table, "root_key") or (parent_key if parent == root["name"] else None)
    return LoadedTable(name=table["name"], row_key=row_key, parent=parent, parent_key=parent_key, root_key=root_key)


def _rules(root: TableHints, *, by_merge_key: bool) -> Rules:
    newest_by = get_dedup_sort_tuple(root)
    return Rules(
        primary_key=get_columns_names_with_prop(root, "primary_key"),
        merge_key=get_columns_names_with_prop(root, "merge_key") if by_merge_key else (),
        hard_delete=get_first_column_name_with_prop(root, "hard_delete"),
        newest_by=None if newest_by is None else (newest_by[0], newest_by[1] == "desc"),
    )


def _validity(root: TableHints, created_at: datetime | None) -> Validity:
    valid_from, valid_to = get_validity_column_names(root)
    row_version = get_first_column_name_with_prop(root, "x-row-version")
    assert valid_from is not None
    assert valid_to is not None
    assert row_version is not None
    boundary: Any = root.get("x-boundary-timestamp") or created_at
    active_until = get_active_record_timestamp(root)
    return Validity(
        valid_from=valid_from,
        valid_to=valid_to,
        row_version=row_version,
        boundary=ensure_datetime_in_tz(boundary, UTC),
        active_until=None if active_until is None else ensure_datetime_in_tz(active_until, UTC),
        merge_key=get_columns_names_with_prop(root, "merge_key"),
    )
