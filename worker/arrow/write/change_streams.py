"""A batch of a change stream becomes one write: the newest change of each key, unless the table has a newer one.

op  id  ts        upserted  id 1 of ts 7
c    1   5        repeated  id 1 of ts 5: the batch has a newer change of that key
u    1   7        deleted   id 2, if the table has it; absent otherwise
d    2   6        late      whatever is older than the sequence that the table stores for its key
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from metaservice.client import is_partial, key_spans_partitions, keys_checked
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.image_folds import whole_images
from worker.arrow.scan.version_rows import VersionRows
from worker.arrow.write import partial_images
from worker.arrow.write.input_rows import check_names, fitted
from worker.arrow.write.key_lookups import elsewhere, near_keys
from worker.arrow.write.merge_sources import plain_source
from worker.arrow.write.staged_rows import (
    frame_of,
    identity_columns,
    refuse_twice,
    tombstone_columns,
    tombstones,
    with_op,
    write_keyed,
)
from worker.arrow.write.updates import places_of
from worker.arrow.write.writes import plan_overwrite, plan_upsert
from worker.base.errors import InputError
from worker.base.schema import UPSERT
from worker.commit.stages import Stage, Staged
from worker.commit.writes import Write
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema

UPSERTS: Final = ("c", "r", "u", "i", "insert", "update", "upsert")
DELETES: Final = ("d", "delete")
ORDERED: Final = (
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
)
AT: Final = "_laketx_at"
SEQUENCE: Final = "_laketx_sequence"

Places = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class ChangeColumns:
    """The columns that describe the changes, and the words of the operation column."""

    op: str
    sequence: str
    upserts: Collection[Any] = UPSERTS
    deletes: Collection[Any] = DELETES
    soft_delete: str | None = None  # a boolean column of the table that is true for deleted rows, which stay


@dataclass(frozen=True)
class ChangeCounts:
    """The number of given rows with each outcome; each row has one outcome."""

    upserted: int = 0
    deleted: int = 0
    absent: int = 0  # deletes of keys that the table doesn't have
    late: int = 0
    repeated: int = 0


@dataclass
class ChangeWrite:
    """The write of a batch; `counts` are the counts of its last stage."""

    write: Write
    counts: ChangeCounts


@dataclass(frozen=True)
class _Batch:
    """The newest change of each key, in the order of the rows."""

    rows: pa.Table  # with the columns of the table alone
    keys: pa.Table  # the columns by which rows are unique, in the table's types
    sequence: pa.ChunkedArray
    are_deletes: np.ndarray[Any, np.dtype[np.bool_]]
    repeated: int
    stored: str | None  # the column of the table that has the sequence


def plan_changes(
    table: TableView, rows: pa.Table, columns: ChangeColumns, *, replaces_all: bool = False
) -> ChangeWrite:
    """Return the write of these changes. It reads the table if there are deletes or if the table stores sequences.

    `replaces_all`: the table is truncated before them.
    """
    meta = table.meta
    if not meta.primary_key:
        raise InputError("KEY_MISSING", f"{meta.name} has no primary key: changes are applied by key")
    if not len(rows) and not rows.num_columns:  # an empty list of dicts
        return ChangeWrite(plan_upsert(table, arrow_schema(meta).empty_table()), ChangeCounts())
    batch = _batch(meta, plain_source(rows), columns)
    if columns.soft_delete is not None:
        batch = replace(batch, rows=_with_soft_deletes(meta, batch, columns.soft_delete))
    keeps_deleted = columns.soft_delete is not None
    gone = batch.are_deletes & (not keeps_deleted)
    upserts = _upserts(meta, batch.rows.take(pa.array(np.flatnonzero(~gone))))
    names = batch.rows.column_names
    if replaces_all:
        deleted = int((batch.are_deletes & keeps_deleted).sum())
        counts = ChangeCounts(len(upserts) - deleted, deleted, absent=int(gone.sum()), repeated=batch.repeated)
        return ChangeWrite(plan_overwrite(table, upserts, "all"), counts)
    if not len(batch.keys) or (batch.stored is None and not gone.any()):
        deleted = int(batch.are_deletes.sum())
        counts = ChangeCounts(len(upserts) - deleted, deleted, repeated=batch.repeated)
        return ChangeWrite(plan_upsert(table, upserts, [names]), counts)
    near = near_keys(batch.keys.select(list(meta.primary_key)), meta)
    spans = key_spans_partitions(meta)
    write = Write(table, common_pb2.OPERATION_MERGE, reads=[common_pb2.Read(predicate=near)])
    planned = ChangeWrite(write, ChangeCounts())
    places = np.cumsum(~gone) - 1  # where the row of a change is among the upserts

    def stage(stage: Stage) -> Staged:
        then = table.at(stage.read_version)
        old = _old_rows(then, stage.read_version, near, batch)
        if keys_checked(meta) is not None:
            refuse_twice(old, meta)
        is_there, late = _matched(meta, old, batch)
        upserted = ~late & ~gone
        deleted = ~late & gone & (is_there >= 0)
        flags = int((upserted & batch.are_deletes).sum())
        planned.counts = ChangeCounts(
            upserted=int(upserted.sum()) - flags,
            deleted=int(deleted.sum()) + flags,
            absent=int((~late & gone & (is_there < 0)).sum()),
            late=int(late.sum()),
            repeated=batch.repeated,
        )
        images = with_op(upserts.take(pa.array(places[upserted])), UPSERT)
        removed = old.take(pa.array(is_there[deleted]))
        if spans:
            moved = elsewhere(old.take(pa.array(is_there[upserted & (is_there >= 0)])), images, then.meta)
            removed = pa.concat_tables([removed, moved])
        hiding = tombstones(then.meta, removed)
        if is_partial(meta):
            images, hiding = partial_images.setting(images, meta, [names]), whole_images(hiding)
        return write_keyed(stage, pa.concat_tables([images, hiding], promote_options="default"), is_base=False)

    planned.write = replace(write, stage=stage, looks_keys_up=spans)
    return planned


def _upserts(meta: catalog_pb2.Table, rows: pa.Table) -> pa.Table:
    """Return the rows in the table's shape. If there are none, the changes are deletes, which need the key alone."""
    if len(rows):
        return fitted(rows, meta)
    check_names(rows.column_names, meta)
    return arrow_schema(meta).empty_table()


def alike(meta: catalog_pb2.Table, rows: Sequence[dict[str, Any]], columns: ChangeColumns) -> Sequence[dict[str, Any]]:
    """The rows, where others would keep what they have: upserts have the same columns, and deletes no others.

    Refuses upserts with different columns. A column that only deletes have would be NULL in the upserts.
    """
    if not is_partial(meta):
        return rows
    words = set() if columns.soft_delete else {_word(value) for value in columns.deletes}
    upserts = [row.keys() for row in rows if _word(row.get(columns.op)) not in words]
    partial_images.check_alike(meta, upserts)
    if not upserts:
        return rows
    columns_set = {name.lower() for name in (*upserts[0], *identity_columns(meta), columns.op, columns.sequence)}
    return [{name: value for name, value in row.items() if name.lower() in columns_set} for row in rows]


# -- the rows that are given -------------------------------------------------------------------------------------------


def _batch(meta: catalog_pb2.Table, rows: pa.Table, columns: ChangeColumns) -> _Batch:
    own = {column.name.lower(): column for column in meta.columns}
    op, sequence = (_named(rows, name) for name in (columns.op, columns.sequence))
    are_deletes = _deletes(rows.column(op), columns)
    stored = own.get(sequence.lower())
    _check_sequence(rows.column(sequence), sequence)
    names = identity_columns(meta)
    given = [_named(rows, name) for name in names]
    for name in given:
        if name.lower() in {key.lower() for key in meta.primary_key}:
            _refuse_null(rows.column(name), "NULL_NOT_ALLOWED", f"the key column {name}")
    needed = [*zip(names, given, strict=True), *([] if stored is None else [(stored.name, sequence)])]
    narrow = catalog_pb2.Table(
        name=meta.name,
        columns=[own[name.lower()] for name in dict.fromkeys(name for name, _ in needed)],
        primary_key=meta.primary_key,
        properties=meta.properties,
    )
    typed = fitted(rows.select(list(dict.fromkeys(name for _, name in needed))), narrow)
    keys = typed.select(names)
    order = rows.column(sequence) if stored is None else typed.column(stored.name)
    newest = _newest(keys, order)
    at = pa.array(newest)
    kept = [name for name in rows.column_names if name.lower() in own or name not in (op, sequence)]
    return _Batch(
        rows=rows.select(kept).take(at),
        keys=keys.take(at),
        sequence=order.take(at),
        are_deletes=are_deletes[newest],
        repeated=len(rows) - len(newest),
        stored=None if stored is None else stored.name,
    )


def _named(rows: pa.Table, name: str) -> str:
    names = [given for given in rows.column_names if given.lower() == name.lower()]
    if not names:
        raise InputError("COLUMN_MISSING", f"the changes lack {name}: they have {', '.join(rows.column_names)}")
    return str(names[0])


def _deletes(values: pa.ChunkedArray, columns: ChangeColumns) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return for each row whether it is a delete; an unknown operation is refused with its row."""
    words = {_word(value): False for value in columns.upserts} | {_word(value): True for value in columns.deletes}
    encoded = pc.dictionary_encode(values.combine_chunks(), null_encoding="encode")
    kinds = encoded.dictionary.to_pylist()
    places = encoded.indices.to_numpy(zero_copy_only=False)
    unknown = [at for at, value in enumerate(kinds) if value is None or _word(value) not in words]
    if unknown:
        row = int(np.flatnonzero(np.isin(places, unknown))[0])
        value = kinds[int(places[row])]
        raise InputError(
            "OPERATION_UNKNOWN",
            f"row {row + 1} of the changes has the operation {'NULL' if value is None else repr(value)}: "
            f"upserts are {_listed(columns.upserts)}, deletes are {_listed(columns.deletes)}",
        )
    return np.array([words[_word(value)] for value in kinds], bool)[places] if kinds else np.zeros(0, bool)


def _word(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _listed(values: Collection[Any]) -> str:
    return ", ".join(map(str, values))


def _check_sequence(values: pa.ChunkedArray, name: str) -> None:
    if not len(values):
        return
    if not pa.types.is_null(values.type) and not any(fits(values.type) for fits in ORDERED):
        raise InputError(
            "SEQUENCE_INVALID",
            f"{name} is {values.type}: a sequence is a column of integers, decimals, dates, times or texts",
        )
    _refuse_null(values, "SEQUENCE_INVALID", f"the sequence {name}")


def _refuse_null(values: pa.ChunkedArray, reason: str, what: str) -> None:
    if values.null_count:
        row = pc.index(pc.is_null(values), True).as_py()
        raise InputError(reason, f"row {row + 1} of the changes has NULL in {what}")


def _newest(keys: pa.Table, sequence: pa.ChunkedArray) -> Places:
    """Return the place of the newest change of each key; of equal sequences, the later row is newer."""
    frame = frame_of(keys.append_column(SEQUENCE, sequence)).with_row_index(AT)
    newest = frame.sort(SEQUENCE, AT).unique(keys.column_names, keep="last")
    return np.sort(newest[AT].to_numpy()).astype(np.int64)


def _with_soft_deletes(meta: catalog_pb2.Table, batch: _Batch, name: str) -> pa.Table:
    column = next((column for column in meta.columns if column.name.lower() == name.lower()), None)
    if column is None or column.type != "boolean" or column.name in places_of(meta):
        raise InputError("COLUMN_UNKNOWN", f"soft_delete names a boolean column of {meta.name}, not {name}")
    rest = batch.rows.select([other for other in batch.rows.column_names if other.lower() != name.lower()])
    return rest.append_column(column.name, pa.array(batch.are_deletes))


# -- the rows of the table ---------------------------------------------------------------------------------------------


def _old_rows(then: TableView, version: int, near: common_pb2.Predicate, batch: _Batch) -> pa.Table:
    """Return the rows of the table near the keys, with the columns of tombstones and the stored sequence."""
    reader = VersionRows(then, version)
    kept = {*tombstone_columns(then.meta), *([] if batch.stored is None else [batch.stored])}
    names = [field.name for field in arrow_schema(then.meta) if field.name in kept]
    return pa.concat_tables([reader.empty(names), *reader.tables(names, near, float("inf"))])


def _matched(
    meta: catalog_pb2.Table, old: pa.Table, batch: _Batch
) -> tuple[Places, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the place of each change's row among the old rows, or -1, and whether that row has a higher sequence."""
    names = identity_columns(meta)
    stored = frame_of(old.select(names)).with_row_index(AT)
    if batch.stored is not None:
        stored = stored.with_columns(pl.Series(SEQUENCE, frame_of(old.select([batch.stored]))[batch.stored]))
    both = frame_of(batch.keys).join(stored, on=names, how="left", nulls_equal=True, maintain_order="left")
    places = both[AT].cast(pl.Int64).fill_null(-1).to_numpy()
    if batch.stored is None:
        return places, np.zeros(len(places), bool)
    given = frame_of(pa.table({SEQUENCE: batch.sequence}))[SEQUENCE]
    return places, (both[SEQUENCE] > given).fill_null(False).to_numpy()
