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
    """Return whether a location is a metadata file, or the folder of a table with one, and no catalog."""
    scheme = uri.partition("://")[0] if "://" in uri else ""
    return uri.endswith(STATIC) or scheme in ("", "file")


def open_table(uri: str, name: str, options: Mapping[str, str]) -> Table:
    """Open a table from a catalog, by its URI, or from a metadata file."""
    try:
        if is_static(uri):
            return StaticTable.from_metadata(uri, dict(options))
        return load_catalog(CATALOG, uri=uri, **options).load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise InputError("IMPORT_SOURCE", f"{uri} has no table {name}") from error
    except (OSError, ValueError) as error:
        raise InputError("IMPORT_SOURCE", f"{uri} can't be read: {error}") from error


def read_iceberg(table: Table, meter: Meter) -> SourceTable:
    """Return the table at its current snapshot."""
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
    """Return the columns of a schema. Refuse a type that tables here don't have."""
    return tuple(_field(field, field.name, is_top=True) for field in schema.fields)


def _field(field: ice.NestedField, path: str, *, is_top: bool = False) -> Field:
    if getattr(field, "initial_default", None) is not None:
        raise refused(f"{path} has a default for rows that were there before it: rewrite the table at its source")
    nullable = not (is_top and field.required)
    return Field(
        field.name, _type(field.field_type, path), nullable, field.field_id, (field.doc or "") if is_top else ""
    )


def _type(kind: ice.IcebergType, path: str) -> Type:
    match kind:
        case ice.StructType():
            return Struct(tuple(_field(field, f"{path}.{field.name}") for field in kind.fields))
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
    """Return the schemas by whose names files are read: only the current one if no name ever changed.

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
    """Return a schema, and before it the one with the names that Iceberg's libraries write into files for Avro."""
    columns = tuple(
        column if column.field_id in by_partition else replace(column, name=make_compatible_name(column.name))
        for column in schema.columns
    )
    if columns == schema.columns or len({column.name.lower() for column in columns}) < len(columns):
        return [schema]
    return [SourceSchema(-1 - schema.schema_id, columns), schema]


def _named(field: ice.NestedField) -> Field:
    """Return a column with its names and ids alone: a dropped column may be of any type."""
    return Field(field.name, _named_type(field.field_type), True, field.field_id)


def _named_type(kind: ice.IcebergType) -> Type:
    match kind:
        case ice.StructType():
            return Struct(tuple(_named(field) for field in kind.fields))
        case ice.ListType():
            return Array(_named_type(kind.element_type), kind.element_id)
        case ice.MapType():
            return Map(_named_type(kind.key_type), _named_type(kind.value_type), kind.key_id, kind.value_id)
        case _:
            return Atomic("binary")


def _name_mapping(table: Table) -> dict[str, int] | None:
    """Return the column ids for files that have none."""
    mapping = table.name_mapping()
    if mapping is None:
        return None
    return {name: field.field_id for field in mapping for name in field.names if field.field_id is not None}


class _ByFooters:
    """Finds the schema by whose names a file is read, from the field ids in its footer."""

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

    def schemas_of(self, files: Sequence[SourceFile], schema_ids: Sequence[int]) -> list[int]:
        schemas = [schema for schema in self._schemas if schema.schema_id in schema_ids]
        ids_by_file = self._meter.each(lambda file: self._columns_in(file.path), files)
        return [self._schema_of(file.path, ids, schemas) for file, ids in zip(files, ids_by_file, strict=True)]

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
        ids = {column.name: field_id(column) for column in schema}
        if all(number is None for number in ids.values()):
            return {name: self._mapping.get(name) for name in ids}
        return ids

    def _schema_of(self, path: str, ids: Mapping[str, int | None], schemas: Sequence[SourceSchema]) -> int:
        needed_ids = {column.field_id for column in schemas[-1].columns} - self._by_partition
        has = {number: name for name, number in ids.items() if number in needed_ids}
        for schema in reversed(schemas):
            names = {column.field_id: column.name for column in schema.columns if column.field_id in needed_ids}
            if all(names.get(number) == name for number, name in has.items()) and not any(
                name in ids for number, name in names.items() if number not in has
            ):
                return schema.schema_id
        raise InputError(
            "IMPORT_SCHEMA",
            f"the columns of {path} have names that no schema of the table has together: rewrite the table at its "
            "source",
        )


def _fields_in(kind: pa.DataType) -> Iterator[pa.Field]:
    """Yield the fields of all levels."""
    if pa.types.is_nested(kind):
        for at in range(kind.num_fields):
            yield kind.field(at)
            yield from _fields_in(kind.field(at).type)


# -- files -------------------------------------------------------------------------------------------------------------


def _files(table: Table, current: SourceSchema, meter: Meter) -> tuple[list[str], list[SourceFile]]:
    """Return the columns by whose values all files are partitioned, and the files."""
    snapshot = table.current_snapshot()
    manifests = [] if snapshot is None else read_manifests(table.io, snapshot.manifest_list)
    entries = list(chain.from_iterable(meter.each(lambda manifest: read_entries(table.io, manifest), manifests)))
    for entry in entries:
        check_entry(entry)
    data = [entry for entry in entries if is_data(entry)]
    deletes = Deletes(table.io, [entry for entry in entries if not is_data(entry)], meter)
    columns = {column.field_id: column for column in current.columns}
    used = sorted({entry.spec_id for entry in data}) or [table.spec().spec_id]
    values = {spec_id: PartitionColumns(table.specs()[spec_id], columns) for spec_id in used}
    kinds = {column.field_id: column.kind for column in current.columns[:STATS_COLUMNS]}
    files = [_file(entry, values[entry.spec_id], kinds, deletes) for entry in data if entry.file["record_count"]]
    return _partition_columns(list(values.values())), files


def _file(entry: Entry, values: PartitionColumns, kinds: Mapping[int, Type], deletes: Deletes) -> SourceFile:
    path, rows = plain_file(entry.path), entry.file["record_count"]
    hidden = deletes.of(path, entry.sequence, rows)
    return SourceFile(
        path, rows, entry.file["file_size_in_bytes"], values.of(entry), bounds_of(entry.file, kinds), hidden
    )


class PartitionColumns:
    """The columns of a partition spec with the transform identity. Other transforms are covered by statistics."""

    def __init__(self, spec: Any, columns: Mapping[int, Field]) -> None:
        self._places = [
            (at, columns[field.source_id])
            for at, field in enumerate(spec.fields)
            if isinstance(field.transform, IdentityTransform)
            and field.source_id in columns
            and type_text(columns[field.source_id].kind) not in NO_PARTITION
        ]

    @property
    def names(self) -> list[str]:
        return [column.name for _, column in self._places]

    def of(self, entry: Entry) -> dict[str, common_pb2.Value]:
        values = list(entry.file["partition"].values())
        return {column.name: partition_value(values[at], column.kind) for at, column in self._places}


def _partition_columns(specs: Sequence[PartitionColumns]) -> list[str]:
    """Return the columns that all specs have, in the order of the newest spec."""
    listed = [spec.names for spec in specs]
    return [name for name in listed[-1] if all(name in names for names in listed)]
