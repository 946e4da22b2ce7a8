"""Data files of Iceberg's clients as entries of a transaction: what they say of themselves has to be true.

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
        self._schemas = sorted(schemas, key=lambda one: -one.schema_version)
        self._places = places
        if narrow := [one.name for one in meta.columns if one.type in NARROW]:
            raise InputError(
                "ICEBERG_WRITE",
                f"{narrow[0]} is narrower than Iceberg's int, in which its clients could write values that don't fit: "
                f"write {meta.name} with LakeTX",
            )
        if any(one.default_sql for one in meta.columns):
            raise InputError(
                "ICEBERG_WRITE", f"{meta.name} has columns with defaults, which Iceberg's clients leave out: use LakeTX"
            )

    def entries(self, added: Sequence[AddedFile], paths: Sequence[str]) -> list[common_pb2.DataFile]:
        """The entries of files with rows. `paths` are where they lie, or will lie, for the transaction."""
        pairs = list(zip(added, paths, strict=True))
        found = [self._entry(one) for one in pairs] if len(pairs) == 1 else in_threads(self._entry, pairs)
        entries = [one for one in found if one.rows]
        check_required(self._meta, entries)
        self._check_row_ids([(one, each) for one, each in zip(added, found, strict=True) if each.carries_row_ids])
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

    def _under_schema(self, added: AddedFile, found: pa.Schema) -> catalog_pb2.Table:
        """The table under the version of the schema that the file was written under, with the names in the file."""
        why = ""
        names = _names_by_id(found)
        for schema in self._schemas:
            named = {_name_in_file(names, column.name, column.column_id): column for column in schema.columns}
            problem = next(_differences(found, named), "")
            if not problem:
                return _with(self._meta, schema, named)
            why = why or problem
        raise InputError("ICEBERG_FILE", f"{added.path} doesn't fit {self._meta.name}: {why}")

    def _check_nulls(self, added: AddedFile, entry: common_pb2.DataFile) -> None:
        """NOT NULL has to be seen in the footer; what it counts is compared elsewhere."""
        counted = {one.column_id for one in entry.stats if one.HasField("nulls")}
        for one in self._meta.columns:
            is_plain = not pa.types.is_nested(column_field(one).type)
            if not one.nullable and is_plain and entry.rows and one.column_id not in counted:
                raise InputError(
                    "ICEBERG_FILE", f"{added.path} doesn't say that {one.name}, which is NOT NULL, has no NULL"
                )

    # -- row ids

    def _check_row_ids(self, files: Sequence[tuple[AddedFile, common_pb2.DataFile]]) -> None:
        """A row has its id alone, and it is one that a hidden row of its partition had."""
        left = dict(self._hidden)
        for added, entry in files:
            key = partition_key(entry.partition)
            mine = left.get(key, BitMap64())
            with self._places.open(added.path) as file:
                ids, count = _row_ids(file, mine)
            if len(ids) < count or ids - mine:
                raise InputError(
                    "ICEBERG_FILE",
                    f"{added.path} has rows with ids, and the commit removes no rows with these ids from their "
                    "partition; to move rows to another partition, write in format 2 (the warehouse v2)",
                )
            left[key] = mine - ids
            entry.carries_row_ids = bool(ids)

    # -- partitions

    def _partition(self, added: AddedFile, entry: common_pb2.DataFile, file: Any) -> common_pb2.Partition:
        """The manifest's, which has to be the one of the file's rows."""
        names, values = list(self._meta.partition_columns), list(added.partition.values())
        if len(names) != len(values):
            raise InputError("ICEBERG_FILE", f"{added.path} has {len(values)} partition values, not {len(names)}")
        found = common_pb2.Partition()
        columns = {one.name: one for one in self._meta.columns}
        stats = {one.column_id: one for one in entry.stats}
        for name, value in zip(names, values, strict=True):
            column = columns[name]
            wanted = _partition_value(value, column.type)
            if entry.rows and not _is_all(wanted, stats.get(column.column_id), entry.rows):
                _check_rows(added, file, column, wanted)
            found.values.add(column=name).value.CopyFrom(wanted)
        return found


def _row_ids(file: Any, known: BitMap64) -> tuple[BitMap64, int]:
    """The ids of rows in a file, and how many rows have one. It ends early where there are more than known ones."""
    found, count = BitMap64(), 0
    for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS, columns=[ROW_ID]):
        column = batch.column(0).drop_null()
        found |= BitMap64(column.to_numpy().astype(np.uint64))
        count += len(column)
        if count > len(known):
            break
    return found, count


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
    """Iceberg's libraries change names that Avro doesn't allow, each in its own way: there the id counts alone."""
    return name if AVRO_NAME.fullmatch(name) else names.get(number, name)


# -- what differs ------------------------------------------------------------------------------------------------------


def _differences(found: pa.Schema, known: Mapping[str, catalog_pb2.Column]) -> Iterator[str]:
    for one in found:
        if one.name in LINEAGE and field_id(one) == LINEAGE[one.name] and one.type == pa.int64():
            continue
        if one.name in FILE_IDS:
            yield f"the column {one.name} is reserved"
        elif one.name not in known:
            yield f"there is no column {one.name}"
        else:
            yield from _field_differences(one, column_field(known[one.name]), one.name)
    there = set(found.names)
    for name, column in known.items():
        if not column.nullable and name not in there:
            yield f"it lacks {name}, which is NOT NULL"


def _field_differences(found: pa.Field, wanted: pa.Field, path: str) -> Iterator[str]:
    number, own = field_id(wanted), field_id(found)
    if own != number:
        said = "no field id" if own is None else f"the field id {own}"
        yield f"{path} has {said}, and not {number}"
    yield from _type_differences(_plain(found.type), wanted.type, path)


def _type_differences(found: pa.DataType, wanted: pa.DataType, path: str) -> Iterator[str]:
    if pa.types.is_struct(wanted) and pa.types.is_struct(found):
        names = _names_by_id(found)
        named = {_name_in_file(names, field.name, field_id(field)): field for field in wanted}
        for field in found:
            if field.name in named:
                yield from _field_differences(field, named[field.name], f"{path}.{field.name}")
            else:
                yield f"there is no field {path}.{field.name}"
    elif pa.types.is_list(wanted) and (pa.types.is_list(found) or pa.types.is_large_list(found)):
        yield from _field_differences(found.value_field, wanted.value_field, f"{path}.element")
    elif pa.types.is_map(wanted) and pa.types.is_map(found):
        yield from _field_differences(found.key_field, wanted.key_field, f"{path}.key")
        yield from _field_differences(found.item_field, wanted.item_field, f"{path}.value")
    elif not _is_same(found, wanted):
        yield f"{path} is {found}, and not {wanted}"


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without what is a matter of memory alone."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        return bool(found.unit == wanted.unit and (found.tz is None) == (wanted.tz is None))
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return bool((found.precision, found.scale) == (wanted.precision, wanted.scale))
    return bool(found == wanted)


def _partition_value(value: Any, kind: str) -> common_pb2.Value:
    if isinstance(value, datetime) and kind in TIMES:
        moment = value if value.tzinfo else value.replace(tzinfo=EPOCH.tzinfo)
        return common_pb2.Value(timestamp_us=(moment - EPOCH) // MICROSECOND)
    return wire_value(value, kind)


def _is_all(wanted: common_pb2.Value, stats: common_pb2.ColumnStats | None, rows: int) -> bool:
    """Whether the footer says that all rows have the value; if not, their values are looked at."""
    if stats is None or not stats.HasField("nulls"):
        return False
    if wanted.HasField("null"):
        return stats.nulls == rows
    is_one = stats.HasField("min") and stats.min == stats.max and not stats.truncated and not stats.nulls
    return is_one and python_value(stats.min) == python_value(wanted)


def _check_rows(added: AddedFile, file: Any, column: catalog_pb2.Column, wanted: common_pb2.Value) -> None:
    file.seek(0)
    there = pq.ParquetFile(file)
    name = _names_by_id(there.schema_arrow).get(column.column_id)
    if name is None:
        return  # Iceberg allows files that leave out what their partition says
    value = python_value(wanted)
    for batch in there.iter_batches(columns=[name]):
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
