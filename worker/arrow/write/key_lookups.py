"""Where keys live: rows by their keys, in all partitions, old by the key columns of the files that may have them.

A writer to a table whose key spans partitions looks its keys up at its read version. Where one lives in another
partition than its new row, it leaves a tombstone part: one commit, so that no version has the key twice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import reduce
from itertools import chain
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from metaservice.client import is_partial, key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import can_be_listed, expression
from worker.arrow.scan import image_folds
from worker.arrow.scan.key_files import files_with_rows, forget_old, key_files_of
from worker.arrow.scan.key_places import KeyPlaces, are_hashes_exact, key_hashes, key_places
from worker.arrow.scan.plans import ScannedFile, newest_plan
from worker.arrow.scan.version_rows import VERSION, VersionRows
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.staged_rows import GROUP, frame_of, tombstone_columns, tombstones
from worker.base.condition_forms import all_of, equality
from worker.base.errors import InputError
from worker.base.schema import OP, SET, TOMBSTONE, UPSERT
from worker.base.values import PartitionKey, bound_of, partition_key, python_value, wire_value
from worker.commit.stages import Stage
from worker.connection.table_view import TableView

KEYS_NAMED: Final = 1_000  # more keys are a read of the whole table
BYTES_TOGETHER: Final = 64 << 20  # of rows that are compared with the keys at once


def fitted_keys(keys: pa.Table, meta: catalog_pb2.Table) -> pa.Table:
    """Return rows of the key columns, and of given partition columns, in the table's types."""
    columns = {column.name: column for column in meta.columns}
    names = list(dict.fromkeys([*meta.primary_key, *meta.partition_columns]))
    given = {name.lower(): name for name in keys.column_names}
    if not set(map(str.lower, meta.primary_key)) <= given.keys() <= set(map(str.lower, names)):
        raise InputError("COLUMN_MISSING", f"keys have {', '.join(names)}, not {', '.join(given.values())}")
    narrow = catalog_pb2.Table(
        name=meta.name,
        columns=[columns[name] for name in names if name.lower() in given],
        primary_key=meta.primary_key,
        properties=meta.properties,
    )
    return fitted(keys, narrow)


def named_keys(keys: pa.Table, meta: catalog_pb2.Table) -> common_pb2.Predicate:
    """Return a condition that is true for these keys; for many or long keys it is true for all rows."""
    if not len(keys) or not _are_named(keys):
        return common_pb2.Predicate(literal=len(keys) > 0)
    types = {column.name: column.type for column in meta.columns}
    if keys.num_columns == 1:
        [name] = keys.column_names
        values = [wire_value(value, types[name]) for value in keys.column(0).to_pylist()]
        return common_pb2.Predicate(in_list=common_pb2.InList(column=name, values=values))
    parts = []
    for row in keys.to_pylist():
        both = [equality(name, wire_value(value, types[name])) for name, value in row.items()]
        parts.append(common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=both)))
    return common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=parts))


def near_keys(keys: pa.Table, meta: catalog_pb2.Table) -> common_pb2.Predicate:
    """Return a condition that is true for every row with one of the keys; for many or long keys it has their bounds."""
    if not len(keys) or _are_named(keys):
        return named_keys(keys, meta)
    types = {column.name: column.type for column in meta.columns}
    parts = []
    for name in keys.column_names:  # a NULL is not within bounds; partition columns may have it
        is_bounded = types[name] not in ("boolean", "binary") and not keys.column(name).null_count
        ends = pc.min_max(keys.column(name)) if is_bounded else None
        for end, comparison in (
            ("min", common_pb2.COMPARISON_GREATER_OR_EQUAL),
            ("max", common_pb2.COMPARISON_LESS_OR_EQUAL),
        ):
            value = None if ends is None else bound_of(ends[end].as_py(), types[name], is_max=end == "max")
            if value is not None:
                compare = common_pb2.Compare(column=name, comparison=comparison, value=value)
                parts.append(common_pb2.Predicate(compare=compare))
    return all_of(parts)


def _are_named(keys: pa.Table) -> bool:
    """Return whether a condition names each of the keys."""
    return len(keys) <= KEYS_NAMED and can_be_listed(keys)


def _among(rows: pa.Table, keys: pl.DataFrame) -> pa.Table:
    """Return the rows that have one of the keys."""
    places = frame_of(rows.select(keys.columns)).with_row_index(GROUP)
    near = places.join(keys, on=keys.columns, how="semi", nulls_equal=True)[GROUP]
    return rows.take(pa.array(near.to_numpy()))


def rows_with(
    reader: VersionRows,
    meta: catalog_pb2.Table,
    keys: pa.Table,
    columns: Sequence[str],
    *,
    near: common_pb2.Predicate | None = None,
    files: Sequence[ScannedFile] | None = None,
) -> pa.Table:
    """Return the visible rows of one version that have one of the keys, whatever their partition, in no order.

    No bucket is merged: the newest image of a key in a partition is what it has there, or all of them are folded.
    `near` is `near_keys`, if it is known; `files` are those that have their rows, and maybe others, likewise.
    """
    wide = list(dict.fromkeys([*columns, *keys.column_names, *_places(meta)]))
    if not len(keys):
        return reader.empty(columns)
    near = near or near_keys(keys, meta)
    if files is None:
        files = reader.files_near(near)
        if key_spans_partitions(meta):
            files = key_places(reader.table, files, key_hashes(keys, meta)).files_with_keys()
    return _newest(meta, _images_of(reader, files, keys, near, wide), columns)


def _images_of(
    reader: VersionRows,
    files: Sequence[ScannedFile],
    keys: pa.Table,
    near: common_pb2.Predicate,
    columns: Sequence[str],
) -> pa.Table:
    """The images and tombstones of the keys in these files. Files of many rows are joined together: most have few."""
    choose = _chooser(reader, keys, near)
    waiting, size = [], 0
    parts = []
    for rows in chain(reader.images(files, columns, near), [None]):
        if rows is not None:
            waiting.append(rows)
            size += rows.nbytes
        if waiting and (rows is None or size >= BYTES_TOGETHER):
            parts.append(choose(pa.concat_tables(waiting)))
            waiting, size = [], 0
    return pa.concat_tables(parts) if parts else reader.images_schema(columns).empty_table()


def _chooser(reader: VersionRows, keys: pa.Table, near: common_pb2.Predicate) -> Callable[[pa.Table], pa.Table]:
    """Return the choice of the rows that have one of the keys."""
    if len(keys) == 1:
        return lambda rows: rows.filter(reduce(pc.and_, [_equal(rows, keys, name) for name in keys.column_names]))
    if not _are_named(keys):  # the condition is no more than near them
        frame = frame_of(keys)
        return lambda rows: _among(rows, frame)
    condition = expression(near, reader.schema)
    return lambda rows: rows.filter(condition)


def _equal(rows: pa.Table, key: pa.Table, name: str) -> Any:
    """Return for each row whether it has the key's value in a column, which may be NULL. No key has floats."""
    value = key.column(name)[0]
    return pc.equal(rows.column(name), value) if value.is_valid else pc.is_null(rows.column(name))


def _newest(meta: catalog_pb2.Table, images: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the images that are the newest of their key in their partition, without tombstones."""
    if len(images) == 1 and SET not in images.column_names:
        return images.select(list(columns)).slice(0, int(images.column(OP)[0].as_py() != TOMBSTONE))
    if SET in images.column_names:
        versions = images.column(VERSION).to_numpy()
        return image_folds.visible(image_folds.folded(images, meta, _places(meta), versions)).select(list(columns))
    places = frame_of(images.select([*_places(meta), OP, VERSION])).with_row_index(GROUP)
    by_version = places.lazy().sort(VERSION).unique(_places(meta), keep="last")
    newest = by_version.filter(pl.col(OP) != TOMBSTONE).select(pl.col(GROUP).sort()).collect()
    return images.select(list(columns)).take(pa.array(newest[GROUP].to_numpy()))


def newest_rows(table: TableView, keys: pa.Table, columns: Sequence[str] | None) -> pa.Table | None:
    """Return the rows of the newest version that have one of the keys; None if that version has other columns.

    Their few files are read at once, so no pin keeps them: if a purge was faster, the next try has a pin.
    """
    spans, near = key_spans_partitions(table.meta), near_keys(keys, table.meta)
    indexed = key_files_of(table, key_hashes(keys, table.meta)) if spans and len(keys) else None
    planned = newest_plan(table, near, indexed.request if indexed else None)
    if planned is None:  # a service of the previous release
        return _pinned_rows(table, keys, columns)
    if indexed is not None:
        forget_old(table, planned, indexed)
    if _definition(planned.table.meta) != _definition(table.meta):
        return None
    reader = VersionRows(planned.table, planned.version, planned)
    tells_keys = are_hashes_exact(table.meta) and not is_partial(table.meta)
    files = None if indexed is None else files_with_rows(planned, indexed, tells_keys=tells_keys)
    names = reader.schema.names if columns is None else columns
    try:
        return rows_with(reader, planned.table.meta, keys, names, near=near, files=files)
    except FileNotFoundError:
        return _pinned_rows(table, keys, columns)


def _pinned_rows(table: TableView, keys: pa.Table, columns: Sequence[str] | None) -> pa.Table | None:
    pinned = table.lake.pins.own(table.table_id, None)
    then = table.at(pinned.version)
    if _definition(then.meta) != _definition(table.meta):
        return None
    reader = VersionRows(then, pinned.version)
    return rows_with(reader, then.meta, keys, reader.schema.names if columns is None else columns)


def _definition(meta: catalog_pb2.Table) -> Sequence[Any]:
    return meta.schema_version, meta.table_id, meta.buckets, *meta.primary_key


# -- keys that span partitions -----------------------------------------------------------------------------------------


def with_rows_left_behind(table: TableView, stage: Stage, delta: pa.Table) -> pa.Table:
    """Return the upserts, with tombstones for the rows of their keys in other partitions."""
    gone = elsewhere(_lived_at(table.at(stage.read_version), stage.read_version, delta), delta, stage.meta)
    return pa.concat_tables([delta, tombstones(stage.meta, gone)]) if len(gone) else delta


def with_rows_of(then: TableView, version: int, rows: pa.Table, new: pa.Table) -> pa.Table:
    """Rows of the table, with those that have the keys of new rows: each once, with the columns of a tombstone."""
    old = _lived_at(then, version, new)
    whole = pa.concat_tables([rows.select(old.column_names).cast(old.schema), old])
    places = frame_of(whole.select(_places(then.meta))).with_row_index(GROUP)
    first = places.unique(subset=_places(then.meta), keep="first", maintain_order=True)[GROUP]
    return whole.take(pa.array(first.to_numpy()))


def refuse_keys_elsewhere(table: TableView, stage: Stage, rows: pa.Table, named: Collection[PartitionKey]) -> None:
    """Refuses an overwrite of partitions with keys that live in others, which it leaves as they are.

    Without names it overwrites the partitions that it writes to.
    """
    meta = stage.meta
    old = _looked_up(table.at(stage.read_version), stage.read_version, rows)
    covered = set(named) or {partition for partition, _ in _by_partition(meta, rows)}
    for partition, part in _by_partition(meta, old):
        if partition not in covered:
            shown = ", ".join(f"{name}={part[name][0]}" for name in _places(meta))
            raise InputError(
                "KEY_EXISTS",
                f"the overwrite would write a key of {meta.name} that lives in another partition, {shown}, which it "
                "leaves as it is: overwrite that partition, too, or upsert the row",
            )


def _looked_up(then: TableView, version: int, rows: pa.Table) -> pa.Table:
    """Return the visible rows with the keys of these rows, with the columns of a tombstone."""
    reader = VersionRows(then, version)
    return rows_with(reader, then.meta, rows.select(list(then.meta.primary_key)), _kept_columns(reader, then.meta))


def _kept_columns(reader: VersionRows, meta: catalog_pb2.Table) -> list[str]:
    kept = tombstone_columns(meta)
    return [name for name in reader.schema.names if name in kept]


def _lived_at(then: TableView, version: int, rows: pa.Table) -> pa.Table:
    """Where the keys of these rows live, with the columns of a tombstone; also where only their hash does.

    A tombstone of a key that isn't there hides nothing. So an image that the key index names isn't read: it has the
    key and the partition that are known, and of other columns the values of the given row. If different keys may have
    one hash, a key is read where a tombstone could be another one's.
    """
    meta, reader = then.meta, VersionRows(then, version)
    columns, keys = _kept_columns(reader, meta), rows.select(list(meta.primary_key))
    if not len(keys):
        return reader.empty(columns)
    near = near_keys(keys, meta)
    places = key_places(then, reader.files_near(near), key_hashes(keys, meta))
    images = _images_of(reader, places.others, keys, near, columns)
    named = _named_images(places, meta, rows, images.schema)
    alive = _newest(meta, pa.concat_tables([images, named]), columns)
    if are_hashes_exact(meta) or not len(named):
        return alive
    unsure = elsewhere(named, alive, meta).select(list(meta.primary_key))
    return pa.concat_tables([alive, elsewhere(rows_with(reader, meta, unsure, columns), alive, meta)])


def _named_images(places: KeyPlaces, meta: catalog_pb2.Table, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the images that the key index names, with the values of the rows whose keys they have."""
    taken = rows.take(pa.array(places.keys))
    values = [
        {part.column: python_value(part.value) for part in scanned.file.partition.values} for scanned in places.covered
    ]
    files = pa.array(places.files)

    def column(field: pa.Field) -> Any:
        if field.name in meta.partition_columns:
            return pa.array([partition[field.name] for partition in values], field.type).take(files)
        return taken.column(field.name).cast(field.type)

    versions = np.array([scanned.data_version for scanned in places.covered], np.int64)
    own = {
        OP: pa.array(np.where(places.are_tombstones, TOMBSTONE, UPSERT).astype(np.int8)),
        VERSION: pa.array(versions[places.files]),
    }
    return pa.table([own[field.name] if field.name in own else column(field) for field in schema], schema=schema)


def elsewhere(old: pa.Table, rows: pa.Table, meta: catalog_pb2.Table) -> pa.Table:
    """Return the rows of `old` with a key and partition that none of the rows has."""
    names = _places(meta)
    places = frame_of(old.select(names)).with_row_index(GROUP)
    left = places.join(frame_of(rows.select(names)), on=names, how="anti", nulls_equal=True)[GROUP]
    return old.take(pa.array(left.to_numpy()))


def _places(meta: catalog_pb2.Table) -> list[str]:
    return list(dict.fromkeys([*meta.partition_columns, *meta.primary_key]))


def _by_partition(meta: catalog_pb2.Table, rows: pa.Table) -> Iterator[tuple[PartitionKey, pl.DataFrame]]:
    """Yield the keys of rows by partition."""
    types = {column.name: column.type for column in meta.columns}
    names = list(meta.partition_columns)
    for part in frame_of(rows.select(_places(meta))).partition_by(names):
        values = [
            common_pb2.PartitionValue(column=name, value=wire_value(part[name][0], types[name])) for name in names
        ]
        yield partition_key(common_pb2.Partition(values=values)), part
