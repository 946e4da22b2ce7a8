"""A table that an import keeps: its properties about the source, its live files, and who changed it since.

user.import.format     iceberg
user.import.table      9c12d441-03fe-4693-9a96-a0705ddf69c1     the source's own id
user.import.location   s3://bucket/orders
user.import.snapshot   3051729675574597004                      what the last run took in
user.import.schemas    0:1 2:2                                  ids of the source's schemas, and versions here
user.import.ids.0      1 2 5                                    the source's ids of the columns, in their order
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Final

import numpy as np
from pyroaring import BitMap64

from metaservice.shared.column_types import Field, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.deleted_row_ids import hidden_ids
from worker.base.errors import InputError, word
from worker.base.values import partition_key
from worker.connection.table_view import TableView
from worker.files.position_blocks import positions_of
from worker.imports.facts import Columns, SourceTable
from worker.imports.planning import KnownFile

PREFIX: Final = "user.import."
FORMAT: Final = f"{PREFIX}format"
TABLE: Final = f"{PREFIX}table"
LOCATION: Final = f"{PREFIX}location"
SNAPSHOT: Final = f"{PREFIX}snapshot"
SCHEMAS: Final = f"{PREFIX}schemas"
IDS: Final = f"{PREFIX}ids"
IDS_IN_ONE: Final = 300
SCHEMAS_KEPT: Final = 200
TAKEN_MAX: Final = 40  # of the source's properties
VALUE_CHARS_MAX: Final = 4_000
MARK: Final = "laketx.import"  # of the transactions of an import
COMMITS_LOOKED_AT: Final = 10_000


def properties_of(source: SourceTable) -> dict[str, str]:
    """Return the properties that describe the source. The source's own properties are kept below `user.<format>.`."""
    properties = {FORMAT: source.format, TABLE: source.table_id, LOCATION: source.location[:VALUE_CHARS_MAX]}
    for name in sorted(source.properties)[:TAKEN_MAX]:
        plain = "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "_" for char in name)
        properties[f"user.{source.format}.{plain[:200]}"] = source.properties[name][:VALUE_CHARS_MAX]
    return properties


def schema_versions(properties: Mapping[str, str]) -> dict[int, int]:
    """Return the versions of the table's schema by the ids of the source's schemas, from old to new."""
    pairs = [text.partition(":") for text in properties.get(SCHEMAS, "").split()]
    return {int(source): int(version) for source, _, version in pairs}


def schemas_text(versions: Mapping[int, int]) -> str:
    return " ".join(f"{source}:{version}" for source, version in list(versions.items())[-SCHEMAS_KEPT:])


def ids_texts(columns: Columns) -> dict[str, str]:
    """Return the properties that store the columns' ids. A source that identifies columns by name has none."""
    ids = [str(column.field_id) for column in columns if column.field_id]
    parts = [ids[at : at + IDS_IN_ONE] for at in range(0, len(ids), IDS_IN_ONE)]
    return {f"{IDS}.{at}": " ".join(part) for at, part in enumerate(parts)}


def columns_of(meta: catalog_pb2.Table, source: SourceTable) -> Columns:
    """The table's columns with the source's ids."""
    kept = " ".join(meta.properties.get(f"{IDS}.{at}", "") for at in range(len(meta.columns) // IDS_IN_ONE + 1)).split()
    ids = [int(text) for text in kept] or [source.ids_by_name.get(text.name, 0) for text in meta.columns]
    if len(ids) != len(meta.columns):
        raise InputError(
            "IMPORT_CHANGED",
            f"{meta.name} has {len(meta.columns)} columns, and had {len(ids)} after the last import: undo the change",
        )
    return tuple(
        Field(column.name, read_type(column.type), column.nullable, number, column.comment)
        for column, number in zip(meta.columns, ids, strict=True)
    )


def check_table(meta: catalog_pb2.Table, source: SourceTable) -> None:
    """Refuses a table that is no import of this source."""
    table_id = meta.properties.get(TABLE)
    if table_id is None:
        raise InputError(
            "IMPORT_NAME_TAKEN", f"{meta.name} is there, and is no import of {source.location}: choose a name with --as"
        )
    if table_id != source.table_id:
        raise InputError(
            "IMPORT_NAME_TAKEN",
            f"{meta.name} is an import of the table {table_id} at {meta.properties.get(LOCATION)}, and "
            f"{source.location} is {source.table_id}: choose another name with --as",
        )


def check_unchanged(table: TableView, version: int) -> None:
    """Refuses a table that others wrote to since the last run, unless a restore brought its rows back."""
    changed = None
    for version_info in islice(table.client.list_versions(table.table_id), COMMITS_LOOKED_AT):
        if version_info.version > version or version_info.operation == common_pb2.OPERATION_ALTER:
            continue
        if MARK not in version_info.properties and version_info.operation != common_pb2.OPERATION_CREATE:
            changed = version_info
        elif changed is None or _shown(table, version_info.version) == _shown(table, version):
            return
        else:
            break
    if changed is not None:
        what = word(common_pb2.Operation.Name(changed.operation), "OPERATION_")
        raise InputError(
            "IMPORT_CHANGED",
            f"{table.name} was changed here since the last import, first by {what} at version {changed.version} by "
            f"{changed.principal.name or 'somebody'}: restore version {changed.version - 1}, or import the source "
            "under another name",
        )


def _shown(table: TableView, version: int) -> dict[str, BitMap64]:
    return {path: file.hidden for path, file in known_files(table, version).items()}


def known_files(table: TableView, version: int) -> dict[str, KnownFile]:
    """Return the live files of a version by path, including those without visible rows."""
    files: dict[object, list[tuple[common_pb2.DataFile, int]]] = defaultdict(list)
    sets: dict[object, list[common_pb2.LiveEntry]] = defaultdict(list)
    for entry in table.client.list_files(table.table_id, version=version):
        if entry.HasField("file"):
            files[partition_key(entry.file.partition)].append((entry.file, entry.data_version))
        else:
            sets[partition_key(entry.delete_set.partition)].append(entry)
    files_by_path = {}
    for key, listed in files.items():
        newest_first = sorted(listed, key=lambda listing: -listing[1])
        hidden = hidden_ids(table, newest_first, sets[key]) if sets[key] else (BitMap64() for _ in newest_first)
        for (file, _), ids in zip(newest_first, hidden, strict=True):
            files_by_path[file.path] = KnownFile(file, positions(file, ids))
    return files_by_path


def positions(file: common_pb2.DataFile, ids: BitMap64) -> BitMap64:
    return BitMap64(positions_of(ids) - np.uint64(file.first_row_id)) if ids else BitMap64()


def row_ids(file: common_pb2.DataFile, at: BitMap64) -> BitMap64:
    return BitMap64(positions_of(at) + np.uint64(file.first_row_id))
