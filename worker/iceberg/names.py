"""Files without field ids: the names by which Iceberg's readers find columns, and files that they would misread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.files.arrow_types import field_id
from worker.files.storage import storage
from worker.iceberg.metadata.schemas import has_lists, mapping_of

Schemas = Sequence[catalog_pb2.SchemaVersion]
ByVersion = Mapping[int, catalog_pb2.SchemaVersion]
NameMapping = list[dict[str, Any]]


def written_by(schemas: Schemas) -> ByVersion:
    """Return the schemas by version. Version 0 is the first one."""
    first = min(schemas, key=lambda schema: schema.schema_version)
    return {0: first} | {schema.schema_version: schema for schema in schemas}


def check_names(table: TableView, file: common_pb2.DataFile) -> None:
    """Refuse an imported file with its own field ids: readers here use names, Iceberg's readers use those ids."""
    if any(field_id(field) is not None for field in _fields(_schema_of(table, file))):
        raise InputError(
            "ICEBERG_NAMES",
            f"{table.name}: the imported file {file.path} has field ids of its own, which Iceberg would take for the "
            'table\'s; table.compact("cluster", sort_by=[…]) rewrites it, and newer versions can be shown',
        )


def is_marked(file: common_pb2.DataFile) -> bool:
    """Return whether a file was imported, or has an extra column, which has no id in older files."""
    return not file.inlined and (file.external or file.carries_row_ids or file.kind == common_pb2.FILE_KIND_DELTA)


def doubtful(by_version: ByVersion, used: Counter[int], marked: Counter[int]) -> set[int]:
    """Return the schema versions of files for which readers may need names.

    pyiceberg uses the ids of a file only if each of its columns and fields has one. Our files have
    these ids, except older ones and those with arrays or maps that Spark wrote without the jar.
    """
    versions = {version for version, count in marked.items() if count}
    return versions | {version for version, count in used.items() if count and has_lists(by_version[version].columns)}


def lacks_ids(table: TableView, file: common_pb2.DataFile) -> bool:
    """Return whether readers need names to read the file."""
    return file.external or any(field_id(field) is None for field in _fields(_schema_of(table, file)))


def name_mapping(
    table: str, now: catalog_pb2.SchemaVersion, by_version: ByVersion, written: Iterable[int]
) -> NameMapping:
    """Return the name mapping for files of these versions of the schema; empty if there are none."""
    listed = [by_version[version].columns for version in sorted(written)]
    return mapping_of(table, now.columns, listed) if listed else []


def _schema_of(table: TableView, file: common_pb2.DataFile) -> pa.Schema:
    files, path = storage(table.path(file.path))
    return pq.read_schema(path, filesystem=files)


def _fields(schema: pa.Schema) -> Iterator[pa.Field]:
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        yield field
        if pa.types.is_map(field.type):  # without the group of its entries, which has no id
            waiting += [field.type.key_field, field.type.item_field]
        else:
            waiting += [field.type.field(at) for at in range(field.type.num_fields)]
