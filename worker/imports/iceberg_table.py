"""A table of Apache Iceberg, read by its catalog: the facts of its current snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as ice
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import make_compatible_name
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform

from metaservice.shared.column_types import Array, Atomic, Decimal, Field, Map, Struct, Type, type_text
from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.files.arrow_types import field_id
from worker.files.footers import STATS_COLUMNS
from worker.imports.facts import SchemasOf, SourceFile, SourceSchema, SourceTable, plain_file
from worker.imports.iceberg_files import (
    Deletes,
    Entry,
    bounds_of,
    check_entry,
    is_data,
    partition_value,
    read_entries,
    read_manifests,
    refused,
)
from worker.imports.planning import Meter
from worker.imports.schema_evolution import as_then, fields_below, keep_their_names

CATALOG: Final = "laketx"  # its settings in pyiceberg's own configuration
STATIC: Final = ".metadata.json"
NAME_MAPPING: Final = "schema.name-mapping.default"
NO_PARTITION: Final = frozenset({"float", "double", "binary"})
WORDS: Final[Mapping[type[ice.IcebergType], str]] = {
    ice.BooleanType: "boolean",
    ice.IntegerType: "int",
    ice.LongType: "bigint",
    ice.FloatType: "float",
    ice.DoubleType: "double",
    ice.StringType: "string",
    ice.BinaryType: "binary",
    ice.DateType: "date",
    ice.TimestampType: "timestamp_ntz",
    ice.TimestamptzType: "timestamp",
}


def is_static(uri: str) -> bool:
    """Whether it is a metadata file, or the folder of a table with one, and no catalog."""
    scheme = uri.partition("://")[0] if "://" in uri else ""
    return uri.endswith(STATIC) or scheme in ("", "file")


def open_table(uri: str, name: str, options: Mapping[str, str]) -> Table:
    """From a catalog, by its URI; or from a metadata file."""
    try:
        if is_static(uri):
            return StaticTable.from_metadata(uri, dict(options))
        return load_catalog(CATALOG, uri=uri, **options).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise InputError("IMPORT_SOURCE", f"{uri} has no table {name}") from error
    except (OSError, ValueError) as error:
        raise InputError("IMPORT_SOURCE", f"{uri} can't be read: {error}") from error


def read_iceberg(table: Table, meter: Meter) -> SourceTable:
    """The table at its current snapshot."""
    current = SourceSchema(table.schema().schema_id, columns_of(table.schema()))
    mapping = _name_mapping(table)
    partition_columns, files = _files(table, current, meter)
    by_partition = frozenset(column.field_id for column in current.columns if column.name in partition_columns)
    schemas, schemas_of = _schemas(table, current, mapping, by_partition, meter)
    snapshot = table.current_snapshot()
    properties = {name: value for name, value in table.properties.items() if name not in (NAME_MAPPING, "comment")}
    return SourceTable(
        format="iceberg",
        table_id=str(table.metadata.table_uuid),
        location=table.location(),
        snapshot="" if snapshot is None else str(snapshot.snapshot_id),
        schemas=schemas,
        partition_columns=partition_columns,
        files=files,
        properties=properties,
        comment=table.properties.get("comment", ""),
        schemas_of=schemas_of,
    )


# -- columns -----------------------------------------------------------------------------------------------------------


def columns_of(schema: Any) -> tuple[Field, ...]:
    """Refused where tables here have no such type."""
    return tuple(_field(one, one.name, is_top=True) for one in schema.fields)


def _field(one: ice.NestedField, path: str, *, is_top: bool = False) -> Field:
    if getattr(one, "initial_default", None) is not None:
        raise refused(f"{path} has a default for rows that were there before it: rewrite the table at its source")
    nullable = not (is_top and one.required)
    return Field(one.name, _type(one.field_type, path), nullable, one.field_id, (one.doc or "") if is_top else "")


def _type(kind: ice.IcebergType, path: str) -> Type:
    match kind:
        case ice.StructType():
            return Struct(tuple(_field(one, f"{path}.{one.name}") for one in kind.fields))
        case ice.ListType():
            return Array(_type(kind.element_type, f"{path}.element"), kind.element_id)
        case ice.MapType():
            key, value = _type(kind.key_type, f"{path}.key"), _type(kind.value_type, f"{path}.value")
            return Map(key, value, kind.key_id, kind.value_id)
        case ice.DecimalType():
            return Decimal(kind.precision, kind.scale)
        case _:
            word = WORDS.get(type(kind))
    if word is None:
        raise InputError("TYPE_NOT_SUPPORTED", f"{path} is of Iceberg's type {kind}, which tables here don't have")
    return Atomic(word)


def _schemas(
    table: Table, current: SourceSchema, mapping: Mapping[str, int] | None, by_partition: frozenset[int], meter: Meter
) -> tuple[list[SourceSchema], SchemasOf | None]:
    """The schemas whose names files have; only the current one if all names are what they always were.

    Values of columns in `by_partition` are not read from files, so their names there don't matter.
    """
    listed = sorted(
        table.metadata.schemas, key=lambda schema: (schema.schema_id == current.schema_id, schema.schema_id)
    )
    own = [SourceSchema(schema.schema_id, tuple(map(_named, schema.fields))) for schema in listed]
    ids = {column.name: column.field_id for column in current.columns}
    keep = keep_their_names(schema.columns for schema in own) and not any(map(_change_in_files, own))
    if keep and all(ids.get(name, number) == number for name, number in (mapping or ids).items()):
        return [current], None
    schemas = as_then(current.columns, [variant for schema in own for variant in _in_files(schema, by_partition)])
    return schemas, _ByFooters(table.io, schemas, mapping or ids, by_partition, meter).schemas_of


def _change_in_files(schema: SourceSchema) -> bool:
    names = [column.name for column in schema.columns]
    for column in schema.columns:
        names += [field.name for _, field in fields_below(column.kind, column.field_id)]
    return any(make_compatible_name(name) != name for name in names)


def _in_files(schema: SourceSchema, by_partition: frozenset[int]) -> list[SourceSchema]:
    """Also under the names that Iceberg's libraries write into files for those that Avro doesn't allow."""
    columns = tuple(
        column if column.field_id in by_partition else replace(column, name=make_compatible_name(column.name))
        for column in schema.columns
    )
    if columns == schema.columns or len({column.name.lower() for column in columns}) < len(columns):
        return [schema]
    return [SourceSchema(-1 - schema.schema_id, columns), schema]


def _named(one: ice.NestedField) -> Field:
    """A column with its names and ids alone: one that is gone may be of any type."""
    return Field(one.name, _named_type(one.field_type), True, one.field_id)


def _named_type(kind: ice.IcebergType) -> Type:
    match kind:
        case ice.StructType():
            return Struct(tuple(_named(one) for one in kind.fields))
        case ice.ListType():
            return Array(_named_type(kind.element_type), kind.element_id)
        case ice.MapType():
            return Map(_named_type(kind.key_type), _named_type(kind.value_type), kind.key_id, kind.value_id)
        case _:
            return Atomic("binary")


def _name_mapping(table: Table) -> dict[str, int] | None:
    """The ids of the columns of files that have none."""
    mapping = table.name_mapping()
    if mapping is None:
        return None
    return {name: one.field_id for one in mapping for name in one.names if one.field_id is not None}


class _ByFooters:
    """Finds by whose names a file can be read, by the field ids in its footer."""

    def __init__(
        self,
        io: Any,
        schemas: Sequence[SourceSchema],
        mapping: Mapping[str, int],
        by_partition: frozenset[int],
        meter: Meter,
    ) -> None:
        self._io = io
        self._meter = meter
        self._schemas = schemas
        self._mapping = mapping
        self._by_partition = by_partition
        self._fields = {
            field.field_id: field.name
            for column in schemas[-1].columns
            for _, field in fields_below(column.kind, column.field_id)
        }

    def schemas_of(self, files: Sequence[SourceFile], known: Sequence[int]) -> list[int]:
        schemas = [one for one in self._schemas if one.schema_id in known]
        found = self._meter.each(lambda one: self._columns_in(one.path), files)
        return [self._schema_of(one.path, ids, schemas) for one, ids in zip(files, found, strict=True)]

    def _columns_in(self, path: str) -> dict[str, int | None]:
        with self._io.new_input(path).open() as stream:
            schema = pq.read_schema(stream)
        for field in chain.from_iterable(_fields_in(column.type) for column in schema):
            name = self._fields.get(field_id(field) or 0, field.name)
            if name.lower() != field.name.lower():
                raise InputError(
                    "IMPORT_SCHEMA",
                    f"the field {name} of a struct is {field.name} in {path}, and fields of structs in files of other "
                    "tables are read by name: rename it at its source, and rewrite the table there",
                )
        ids = {one.name: field_id(one) for one in schema}
        if all(one is None for one in ids.values()):
            return {name: self._mapping.get(name) for name in ids}
        return ids

    def _schema_of(self, path: str, ids: Mapping[str, int | None], schemas: Sequence[SourceSchema]) -> int:
        wanted = {one.field_id for one in schemas[-1].columns} - self._by_partition
        has = {one: name for name, one in ids.items() if one in wanted}
        for schema in reversed(schemas):
            names = {one.field_id: one.name for one in schema.columns if one.field_id in wanted}
            if all(names.get(one) == name for one, name in has.items()) and not any(
                name in ids for one, name in names.items() if one not in has
            ):
                return schema.schema_id
        raise InputError(
            "IMPORT_SCHEMA",
            f"the columns of {path} have names that no schema of the table has together: rewrite the table at its "
            "source",
        )


def _fields_in(kind: pa.DataType) -> Iterator[pa.Field]:
    """Those of all levels."""
    if pa.types.is_nested(kind):
        for at in range(kind.num_fields):
            yield kind.field(at)
            yield from _fields_in(kind.field(at).type)


# -- files -------------------------------------------------------------------------------------------------------------


def _files(table: Table, current: SourceSchema, meter: Meter) -> tuple[list[str], list[SourceFile]]:
    """The columns for whose values all files have a partition, and the files."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else read_manifests(table.io, snapshot.manifest_list)
    entries = list(chain.from_iterable(meter.each(lambda one: read_entries(table.io, one), manifests)))
    for one in entries:
        check_entry(one)
    data = [one for one in entries if is_data(one)]
    deletes = Deletes(table.io, [one for one in entries if not is_data(one)], meter)
    columns = {one.field_id: one for one in current.columns}
    used = sorted({one.spec_id for one in data}) or [table.spec().spec_id]
    values = {spec_id: PartitionColumns(table.specs()[spec_id], columns) for spec_id in used}
    kinds = {one.field_id: one.kind for one in current.columns[:STATS_COLUMNS]}
    files = [_file(one, values[one.spec_id], kinds, deletes) for one in data if one.file["record_count"]]
    return _partition_columns(list(values.values())), files


def _file(one: Entry, values: PartitionColumns, kinds: Mapping[int, Type], deletes: Deletes) -> SourceFile:
    path, rows = plain_file(one.path), one.file["record_count"]
    hidden = deletes.of(path, one.sequence, rows)
    return SourceFile(path, rows, one.file["file_size_in_bytes"], values.of(one), bounds_of(one.file, kinds), hidden)


class PartitionColumns:
    """The columns whose values a partition spec has as they are. What is made of columns hides in the statistics."""

    def __init__(self, spec: Any, columns: Mapping[int, Field]) -> None:
        self._places = [
            (at, columns[one.source_id])
            for at, one in enumerate(spec.fields)
            if isinstance(one.transform, IdentityTransform)
            and one.source_id in columns
            and type_text(columns[one.source_id].kind) not in NO_PARTITION
        ]

    @property
    def names(self) -> list[str]:
        return [column.name for _, column in self._places]

    def of(self, one: Entry) -> dict[str, common_pb2.Value]:
        values = list(one.file["partition"].values())
        return {column.name: partition_value(values[at], column.kind) for at, column in self._places}


def _partition_columns(specs: Sequence[PartitionColumns]) -> list[str]:
    """Those of all specs, in the order of the newest."""
    listed = [one.names for one in specs]
    return [name for name in listed[-1] if all(name in names for names in listed)]
