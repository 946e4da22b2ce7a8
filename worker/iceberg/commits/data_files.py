"""Data files of Iceberg's clients as entries of a transaction. What a client declares of them is checked.

The footer decides: rows, names, ids and types of the columns, the partition. A file is under the newest version of the
schema that has its columns so; it may lack columns that can be NULL. Rows that a commit moves from one file to another
may keep their ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import FILE_IDS, ROW_ID
from worker.base.values import EPOCH, MICROSECOND, TIMES, PartitionKey, partition_key, python_value, wire_value
from worker.files.arrow_types import column_field, field_id
from worker.files.footers import check_required, data_file, in_threads
from worker.iceberg.commits.manifests import AddedFile
from worker.iceberg.commits.places import Places

NARROW: Final = frozenset({"tinyint", "smallint"})  # Iceberg has them as int
LINEAGE: Final = {ROW_ID: FILE_IDS[ROW_ID], "_last_updated_sequence_number": 2_147_483_539}  # in files of format 3
AVRO_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
BATCH_ROWS: Final = 1 << 18
Schemas = Sequence[catalog_pb2.SchemaVersion]
RowIds = Mapping[PartitionKey, BitMap64]


class DataFiles:
    """Files of one table."""

    def __init__(self, meta: catalog_pb2.Table, schemas: Schemas, places: Places, hidden: RowIds | None = None) -> None:
        """`hidden`: rows that the commit hides, whose ids rows of its files may have."""
        self._meta = meta
        self._hidden = hidden or {}
        self._schemas = sorted(schemas, key=lambda schema: -schema.schema_version)
        self._places = places
        if narrow := [column.name for column in meta.columns if column.type in NARROW]:
            raise InputError(
                "ICEBERG_WRITE",
                f"{narrow[0]} is narrower than Iceberg's int, in which its clients could write values that don't fit: "
                f"write {meta.name} with LakeTX",
            )
        if any(column.default_sql for column in meta.columns):
            raise InputError(
                "ICEBERG_WRITE", f"{meta.name} has columns with defaults, which Iceberg's clients leave out: use LakeTX"
            )

    def entries(self, added: Sequence[AddedFile], paths: Sequence[str]) -> list[common_pb2.DataFile]:
        """Return the entries of the files with rows. `paths` are their places in the transaction."""
        pairs = list(zip(added, paths, strict=True))
        all_entries = [self._entry(pair) for pair in pairs] if len(pairs) == 1 else in_threads(self._entry, pairs)
        entries = [entry for entry in all_entries if entry.rows]
        check_required(self._meta, entries)
        self._check_row_ids(
            [(file, entry) for file, entry in zip(added, all_entries, strict=True) if entry.carries_row_ids]
        )
        return entries

    def _entry(self, pair: tuple[AddedFile, str]) -> common_pb2.DataFile:
        added, path = pair
        try:
            with self._places.open(added.path) as file:
                size, footer = file.size(), pq.read_metadata(file)
                return self._checked(added, path, file, size, footer)
        except FileNotFoundError as error:
            raise InputError("ICEBERG_FILE", f"{added.path} is not there") from error
        except (OSError, pa.ArrowException) as error:
            raise InputError("ICEBERG_FILE", f"{added.path} can't be read: {error}") from error

    def _checked(self, added: AddedFile, path: str, file: Any, size: int, footer: Any) -> common_pb2.DataFile:
        if footer.num_rows != added.rows:
            raise InputError(
                "ICEBERG_FILE", f"{added.path} has {footer.num_rows} rows, and its manifest says {added.rows}"
            )
        if size != added.size:
            raise InputError("ICEBERG_FILE", f"{added.path} has {size} bytes, and its manifest says {added.size}")
        meta = self._under_schema(added, footer.schema.to_arrow_schema())
        entry = data_file(meta, path, footer, size, external=True)  # another program's: bounds of floats don't count
        entry.external = False
        entry.partition.CopyFrom(self._partition(added, entry, file))
        self._check_nulls(added, entry)
        return entry

    # -- columns

    def _under_schema(self, added: AddedFile, file_schema: pa.Schema) -> catalog_pb2.Table:
        """Return the table under the version of the schema that the file was written with, with the file's names."""
        why = ""
        names = _names_by_id(file_schema)
        for schema in self._schemas:
            named = {_name_in_file(names, column.name, column.column_id): column for column in schema.columns}
            problem = next(_differences(file_schema, named), "")
            if not problem:
                return _with(self._meta, schema, named)
            why = why or problem
        raise InputError("ICEBERG_FILE", f"{added.path} doesn't fit {self._meta.name}: {why}")

    def _check_nulls(self, added: AddedFile, entry: common_pb2.DataFile) -> None:
        """Check that the footer counts NULLs in columns that are NOT NULL. The counts are compared elsewhere."""
        counted = {stats.column_id for stats in entry.stats if stats.HasField("nulls")}
        for column in self._meta.columns:
            is_plain = not pa.types.is_nested(column_field(column).type)
            if not column.nullable and is_plain and entry.rows and column.column_id not in counted:
                raise InputError(
                    "ICEBERG_FILE", f"{added.path} doesn't say that {column.name}, which is NOT NULL, has no NULL"
                )

    # -- row ids

    def _check_row_ids(self, files: Sequence[tuple[AddedFile, common_pb2.DataFile]]) -> None:
        """Check that each row id is unique, and belongs to a hidden row of the same partition."""
        left = dict(self._hidden)
        for added, entry in files:
            key = partition_key(entry.partition)
            hidden = left.get(key, BitMap64())
            with self._places.open(added.path) as file:
                ids, count = _row_ids(file, hidden)
            if len(ids) < count or ids - hidden:
                raise InputError(
                    "ICEBERG_FILE",
                    f"{added.path} has rows with ids, and the commit removes no rows with these ids from their "
                    "partition; to move rows to another partition, write in format 2 (the warehouse v2)",
                )
            left[key] = hidden - ids
            entry.carries_row_ids = bool(ids)

    # -- partitions

    def _partition(self, added: AddedFile, entry: common_pb2.DataFile, file: Any) -> common_pb2.Partition:
        """Return the partition from the manifest. Refuse it if the file's rows belong to another one."""
        names, values = list(self._meta.partition_columns), list(added.partition.values())
        if len(names) != len(values):
            raise InputError("ICEBERG_FILE", f"{added.path} has {len(values)} partition values, not {len(names)}")
        partition = common_pb2.Partition()
        columns = {column.name: column for column in self._meta.columns}
        stats = {column_stats.column_id: column_stats for column_stats in entry.stats}
        for name, value in zip(names, values, strict=True):
            column = columns[name]
            expected = _partition_value(value, column.type)
            if entry.rows and not _is_all(expected, stats.get(column.column_id), entry.rows):
                _check_rows(added, file, column, expected)
            partition.values.add(column=name).value.CopyFrom(expected)
        return partition


def _row_ids(file: Any, possible: BitMap64) -> tuple[BitMap64, int]:
    """Return the row ids in a file, and how many rows have one. Stop early if more have one than is possible."""
    ids, count = BitMap64(), 0
    for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS, columns=[ROW_ID]):
        column = batch.column(0).drop_null()
        ids |= BitMap64(column.to_numpy().astype(np.uint64))
        count += len(column)
        if count > len(possible):
            break
    return ids, count


def _with(
    meta: catalog_pb2.Table, schema: catalog_pb2.SchemaVersion, named: Mapping[str, catalog_pb2.Column]
) -> catalog_pb2.Table:
    then = catalog_pb2.Table()
    then.CopyFrom(meta)
    del then.columns[:]
    then.columns.extend(named.values())
    for name, column in zip(named, then.columns, strict=True):
        column.name = name
    then.schema_version = schema.schema_version
    return then


# -- names in files ----------------------------------------------------------------------------------------------------


def _names_by_id(fields: Iterable[pa.Field]) -> dict[int | None, str]:
    return {field_id(field): field.name for field in fields}


def _name_in_file(names: Mapping[int | None, str], name: str, number: int | None) -> str:
    """Return a column's name in a file. Libraries change names that Avro doesn't allow: only ids match these."""
    return name if AVRO_NAME.fullmatch(name) else names.get(number, name)


# -- what differs ------------------------------------------------------------------------------------------------------


def _differences(file_schema: pa.Schema, columns: Mapping[str, catalog_pb2.Column]) -> Iterator[str]:
    for field in file_schema:
        if field.name in LINEAGE and field_id(field) == LINEAGE[field.name] and field.type == pa.int64():
            continue
        if field.name in FILE_IDS:
            yield f"the column {field.name} is reserved"
        elif field.name not in columns:
            yield f"there is no column {field.name}"
        else:
            yield from _field_differences(field, column_field(columns[field.name]), field.name)
    file_names = set(file_schema.names)
    for name, column in columns.items():
        if not column.nullable and name not in file_names:
            yield f"it lacks {name}, which is NOT NULL"


def _field_differences(actual: pa.Field, expected: pa.Field, path: str) -> Iterator[str]:
    number, own = field_id(expected), field_id(actual)
    if own != number:
        actual_id = "no field id" if own is None else f"the field id {own}"
        yield f"{path} has {actual_id}, and not {number}"
    yield from _type_differences(_plain(actual.type), expected.type, path)


def _type_differences(actual: pa.DataType, expected: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(expected) and pa.types.is_struct(actual):
        names = _names_by_id(actual)
        named = {_name_in_file(names, field.name, field_id(field)): field for field in expected}
        for field in actual:
            if field.name in named:
                yield from _field_differences(field, named[field.name], f"{path}.{field.name}")
            else:
                yield f"there is no field {path}.{field.name}"
    elif pa.types.is_list(expected) and (pa.types.is_list(actual) or pa.types.is_large_list(actual)):
        yield from _field_differences(actual.value_field, expected.value_field, f"{path}.element")
    elif pa.types.is_map(expected) and pa.types.is_map(actual):
        yield from _field_differences(actual.key_field, expected.key_field, f"{path}.key")
        yield from _field_differences(actual.item_field, expected.item_field, f"{path}.value")
    elif not _is_same(actual, expected):
        yield f"{path} is {actual}, and not {expected}"


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type without Arrow's choices of memory layout."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _is_same(actual: pa.DataType, expected: pa.DataType) -> bool:
    if pa.types.is_timestamp(actual) and pa.types.is_timestamp(expected):
        return bool(actual.unit == expected.unit and (actual.tz is None) == (expected.tz is None))
    if pa.types.is_decimal(actual) and pa.types.is_decimal(expected):
        return bool((actual.precision, actual.scale) == (expected.precision, expected.scale))
    return bool(actual == expected)


def _partition_value(value: Any, kind: str) -> common_pb2.Value:
    if isinstance(value, datetime) and kind in TIMES:
        moment = value if value.tzinfo else value.replace(tzinfo=EPOCH.tzinfo)
        return common_pb2.Value(timestamp_us=(moment - EPOCH) // MICROSECOND)
    return wire_value(value, kind)


def _is_all(expected: common_pb2.Value, stats: common_pb2.ColumnStats | None, rows: int) -> bool:
    """Return whether the footer proves that all rows have the value. Otherwise the values are read."""
    if stats is None or not stats.HasField("nulls"):
        return False
    if expected.HasField("null"):
        return stats.nulls == rows
    is_one = stats.HasField("min") and stats.min == stats.max and not stats.truncated and not stats.nulls
    return is_one and python_value(stats.min) == python_value(expected)


def _check_rows(added: AddedFile, file: Any, column: catalog_pb2.Column, expected: common_pb2.Value) -> None:
    file.seek(0)
    parquet = pq.ParquetFile(file)
    name = _names_by_id(parquet.schema_arrow).get(column.column_id)
    if name is None:
        return  # Iceberg allows files that leave out what their partition says
    value = python_value(expected)
    for batch in parquet.iter_batches(columns=[name]):
        stored = batch.column(0)
        if value is None:
            is_all = stored.null_count == len(stored)
        else:
            kind = _plain(stored.type)
            values = stored.dictionary_decode() if pa.types.is_dictionary(stored.type) else stored
            is_all = pc.all(pc.equal(values.cast(kind), pa.scalar(value, kind)), skip_nulls=False).as_py() is True
        if not is_all:
            raise InputError(
                "ICEBERG_FILE", f"{added.path} has rows of another partition than {column.name} = {value!r}"
            )
