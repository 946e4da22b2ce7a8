"""What a version of an append table shows, as facts: its files, and the positions of their hidden rows.

What Iceberg can't say is refused, so that no reader sees other rows than readers here do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from iceberg.locations import location_of
from iceberg.metadata.facts import ShownFile, SnapshotFacts
from iceberg.metadata.schemas import check_promotions, has_lists
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.base.arrow_shapes import field_id
from worker.base.errors import InputError
from worker.base.schema import ROW_ID
from worker.base.storage import in_pages, storage
from worker.base.table_view import TableView
from worker.read.file_identity import ScannedFile
from worker.read.hidden_ids import with_hidden_ids
from worker.read.position_blocks import positions_of

NOTHING: Final = BitMap64()
Schemas = Sequence[catalog_pb2.SchemaVersion]


def check_kind(meta: catalog_pb2.Table) -> None:
    """Refuses a table whose rows Iceberg's files can't hide yet."""
    if meta.primary_key:
        raise InputError(
            "ICEBERG_KEYED",
            f"{meta.name} has a primary key, and such tables are not shown to Iceberg yet; "
            "`laketx export` writes its rows into one file",
        )


def snapshot_facts(table: TableView, schemas: Schemas, version: int) -> SnapshotFacts:
    """A version that is pinned."""
    listed = list(table.client.list_files(table.table_id, version=version))
    schema = schema_at(schemas, version)
    files = {one.file.path: one for one in listed if one.HasField("file")}
    check_files(table.name, [one.file for one in files.values()])
    written = written_schemas(schemas, [one.file for one in files.values()])
    check_promotions(table.name, schema.columns, [one.columns for one in written])
    for one in files.values():
        if one.file.external:
            check_names(table, one.file)
    sets = [one for one in listed if one.HasField("delete_set")]
    scanned = [ScannedFile(one.file, one.data_version) for one in files.values()]
    shown = []
    for each in sorted(with_hidden_ids(table, scanned, sets), key=lambda one: one.file.path):
        hidden = NOTHING if each.hidden is None else hidden_positions(table, each)
        if len(hidden) < each.file.rows:
            path = location_of(table.path(each.file.path))
            shown.append(ShownFile(files[each.file.path], path, hidden))
    return SnapshotFacts(commit_of(table, version), schema, shown)


def commit_of(table: TableView, version: int) -> read_pb2.Version:
    wanted = read_pb2.VersionFilter(from_version=version, to_version=version)
    return next(iter(table.client.list_versions(table.table_id, wanted=wanted)))


def schema_at(schemas: Schemas, version: int) -> catalog_pb2.SchemaVersion:
    return max((one for one in schemas if one.version <= version), key=lambda one: one.version)


def written_schemas(schemas: Schemas, files: Sequence[common_pb2.DataFile]) -> list[catalog_pb2.SchemaVersion]:
    """The schemas that the files were written under; 0 stands for the first."""
    first = min(one.schema_version for one in schemas)
    used = {file.schema_version or first for file in files}
    return [one for one in schemas if one.schema_version in used]


# -- what is refused ---------------------------------------------------------------------------------------------------


def check_files(table: str, files: Sequence[common_pb2.DataFile]) -> None:
    inlined = sum(file.inlined for file in files)
    if inlined:
        raise InputError(
            "ICEBERG_INLINED",
            f"{table}: the rows of {inlined} small writes are in the service, not in files; "
            'table.compact("major") writes them out, then export a version from then on',
        )


def check_names(table: TableView, file: common_pb2.DataFile) -> None:
    """Refuses an imported file with field ids of its own: readers here go by names, Iceberg's by those ids."""
    files, path = storage(table.path(file.path))
    schema = pq.read_schema(path, filesystem=files)
    if any(field_id(one) is not None for one in _fields(schema)):
        raise InputError(
            "ICEBERG_NAMES",
            f"{table.name}: the imported file {file.path} has field ids of its own, which Iceberg would take for the "
            'table\'s; table.compact("major") rewrites it, then export a version from then on',
        )


def lacks_ids(table: TableView, file: common_pb2.DataFile, written: Schemas) -> bool:
    """Whether readers need names: of imported files, of those with arrays or maps, of those whose `_row_id` has no id.

    pyiceberg uses the ids of a file only if each of its columns and fields has one.
    """
    if file.external or any(has_lists(one.columns) for one in written):
        return True
    if not file.carries_row_ids:
        return False
    files, path = storage(table.path(file.path))
    return any(field_id(one) is None for one in pq.read_schema(path, filesystem=files))


def _fields(schema: pa.Schema) -> Iterator[pa.Field]:
    waiting = list(schema)
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [one.type.field(at) for at in range(one.type.num_fields)]


# -- hidden rows -------------------------------------------------------------------------------------------------------


def hidden_positions(table: TableView, one: ScannedFile) -> BitMap64:
    """The positions of a file's hidden rows. A file that carries row ids is asked for them."""
    if one.hidden is None:
        return NOTHING
    first = one.file.first_row_id
    if not one.file.carries_row_ids:
        return BitMap64(positions_of(one.hidden) - np.uint64(first))
    files, path = storage(table.path(one.file.path))
    with in_pages(path, files) as opened:
        column = opened.read([ROW_ID]).column(ROW_ID)
    positions = np.arange(len(column), dtype=np.int64)
    own = column.is_null().to_numpy()
    ids = np.where(own, positions + first, column.fill_null(0).to_numpy())
    return BitMap64(np.flatnonzero(np.isin(ids.view(np.uint64), positions_of(one.hidden))).astype(np.uint64))
