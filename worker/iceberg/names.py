"""Files without field ids: how readers of Iceberg find their columns, and what they would find wrongly."""

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
    """The schemas by their versions; 0 stands for the first."""
    first = min(schemas, key=lambda one: one.schema_version)
    return {0: first} | {one.schema_version: one for one in schemas}


def check_names(table: TableView, file: common_pb2.DataFile) -> None:
    """Refuses an imported file with field ids of its own: readers here go by names, Iceberg's by those ids."""
    if any(field_id(one) is not None for one in _fields(_schema_of(table, file))):
        raise InputError(
            "ICEBERG_NAMES",
            f"{table.name}: the imported file {file.path} has field ids of its own, which Iceberg would take for the "
            'table\'s; table.compact("cluster", sort_by=[…]) rewrites it, and newer versions can be shown',
        )


def is_marked(file: common_pb2.DataFile) -> bool:
    """Whether it was imported, or has a column beside the table's, which has no id in older files."""
    return not file.inlined and (file.external or file.carries_row_ids or file.kind == common_pb2.FILE_KIND_DELTA)


def doubtful(by_version: ByVersion, used: Counter[int], marked: Counter[int]) -> set[int]:
    """The versions of the schema under which files were written that readers may need names for.

    pyiceberg uses the ids of a file only if each of its columns and fields has one. Those of ours have, but not the
    older ones, and not those with arrays or maps that Spark wrote without the jar.
    """
    found = {version for version, count in marked.items() if count}
    return found | {version for version, count in used.items() if count and has_lists(by_version[version].columns)}


def lacks_ids(table: TableView, file: common_pb2.DataFile) -> bool:
    """Whether readers need names to read the file."""
    return file.external or any(field_id(one) is None for one in _fields(_schema_of(table, file)))


def name_mapping(
    table: str, now: catalog_pb2.SchemaVersion, by_version: ByVersion, written: Iterable[int]
) -> NameMapping:
    """The name mapping for files of these versions of the schema; empty: there are none."""
    listed = [by_version[one].columns for one in sorted(written)]
    return mapping_of(table, now.columns, listed) if listed else []


def _schema_of(table: TableView, file: common_pb2.DataFile) -> pa.Schema:
    files, path = storage(table.path(file.path))
    return pq.read_schema(path, filesystem=files)


def _fields(schema: pa.Schema) -> Iterator[pa.Field]:
    waiting = list(schema)
    while waiting:
        one = waiting.pop()
        yield one
        if pa.types.is_map(one.type):  # without the group of its entries, which has no id
            waiting += [one.type.key_field, one.type.item_field]
        else:
            waiting += [one.type.field(at) for at in range(one.type.num_fields)]
