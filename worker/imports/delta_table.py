"""A table of Delta Lake, read by its log: the facts of its newest version."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from worker.base.errors import InputError
from worker.files.deletion_vectors import read_bitmap, read_vector
from worker.files.external_paths import plain_path
from worker.files.footers import STATS_COLUMNS
from worker.files.storage import storage
from worker.imports.delta_log import Action, DeltaState, read_log
from worker.imports.delta_values import bounds_of, columns_of, partition_value, vector_file, z85_bytes
from worker.imports.facts import NOTHING, Columns, SchemasOf, SourceFile, SourceSchema, SourceTable, plain_file
from worker.imports.planning import Meter

READER_VERSION: Final = 3
FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
FRAME_BYTES: Final = 8  # the length before a vector in a file, and the checksum after it


def read_delta(path: str, meter: Meter) -> SourceTable:
    """Return the table at its newest version."""
    root = plain_path(path)
    state = read_log(root, meter)
    check_protocol(state.protocol, path)
    columns, names = columns_of(state.metadata["schemaString"])
    schemas, schemas_of = _schemas(columns, names)
    files = _Files(root, state, columns, names, meter).all()
    return SourceTable(
        format="delta",
        table_id=str(state.metadata["id"]),
        location=root,
        snapshot=str(state.version),
        schemas=schemas,
        partition_columns=list(state.metadata.get("partitionColumns") or ()),
        files=files,
        properties=dict(state.metadata.get("configuration") or {}),
        comment=str(state.metadata.get("description") or ""),
        schemas_of=schemas_of,
        ids_by_name={name: column.field_id for column, name in zip(columns, names, strict=True) if column.field_id},
    )


def check_protocol(protocol: Action, path: str) -> None:
    """Refuse a table whose readers need a feature that is not supported here."""
    unknown = set(protocol.get("readerFeatures") or ()) - FEATURES
    version = int(protocol.get("minReaderVersion", 1))
    if version > READER_VERSION:
        unknown.add(f"reader version {version}")
    if unknown:
        raise InputError("IMPORT_FEATURE", f"{path} needs readers that know {', '.join(sorted(unknown))}")


def _schemas(columns: Columns, names: Sequence[str]) -> tuple[list[SourceSchema], SchemasOf | None]:
    """Return the columns with their names in files, and with their logical names; one schema if they are the same."""
    own = [column.name for column in columns]
    stored = _schema_id(names)
    if own == list(names):
        return [SourceSchema(stored, columns)], None
    in_files = tuple(replace(column, name=name) for column, name in zip(columns, names, strict=True))
    schemas = [SourceSchema(stored, in_files), SourceSchema(_schema_id([*names, *own]), columns)]
    return schemas, lambda files, _: [stored] * len(files)


def _schema_id(names: Sequence[str]) -> int:
    """Return an id that depends on the names alone."""
    return zlib.crc32(json.dumps(list(names)).encode())


class _Files:
    """The live files of a version."""

    def __init__(self, root: str, state: DeltaState, columns: Columns, names: Sequence[str], meter: Meter) -> None:
        self._root = root
        self._state = state
        self._columns = columns[:STATS_COLUMNS]
        self._names = names[:STATS_COLUMNS]
        self._meter = meter
        partition_columns = state.metadata.get("partitionColumns") or ()
        named = {column.name: (column, name) for column, name in zip(columns, names, strict=True)}
        self._partition = [named[name] for name in partition_columns]

    def all(self) -> list[SourceFile]:
        adds = list(self._state.adds.values())
        hiding = [add for add in adds if add.get("deletionVector")]
        hidden = dict(zip((add["path"] for add in hiding), self._meter.each(self._hidden, hiding), strict=True))
        stats = {add["path"]: _stats(add) for add in adds}
        unknown = [add for add in adds if "numRecords" not in stats[add["path"]]]
        for add, rows in zip(unknown, self._meter.each(self._rows, unknown), strict=True):
            stats[add["path"]] = {"numRecords": rows}
        files = [self._file(add, stats[add["path"]], hidden.get(add["path"], NOTHING)) for add in adds]
        return [file for file in files if file.rows]

    def _file(self, add: Action, stats: Mapping[str, Any], hidden: BitMap64) -> SourceFile:
        path, rows = self._path(add["path"]), int(stats["numRecords"])
        if hidden and hidden.max() >= rows:
            raise InputError("FILE_UNREADABLE", f"{path} has {rows} rows, and its row {hidden.max()} is deleted")
        given = add.get("partitionValues") or {}
        values = {column.name: partition_value(given.get(name), column) for column, name in self._partition}
        return SourceFile(path, rows, int(add["size"]), values, bounds_of(stats, self._columns, self._names), hidden)

    def _path(self, text: str) -> str:
        """Return a file's path. Paths in the log are encoded as in a URI, and relative to the table or absolute."""
        path = unquote(text)
        is_whole = "://" in path or path.startswith(("/", "file:"))
        return plain_file(path if is_whole else f"{self._root}/{path}")

    def _rows(self, add: Action) -> int:
        files, path = storage(self._path(add["path"]))
        try:
            return int(pq.read_metadata(path, filesystem=files).num_rows)
        except (pa.ArrowInvalid, OSError) as error:
            raise InputError("FILE_UNREADABLE", f"{path}: {error}") from error

    def _hidden(self, add: Action) -> BitMap64:
        vector = add["deletionVector"]
        kind, text = vector["storageType"], str(vector["pathOrInlineDv"])
        if kind == "i":
            return read_bitmap(z85_bytes(text), f"the log of {self._root}")
        path = f"{self._root}/{vector_file(text)}" if kind == "u" else self._path(text)
        files, inside = storage(path)
        with files.open_input_file(inside) as stream:
            stream.seek(int(vector.get("offset") or 0))
            return read_vector(stream.read(int(vector["sizeInBytes"]) + FRAME_BYTES), path)


def _stats(add: Action) -> Mapping[str, Any]:
    stats = json.loads(add["stats"], parse_float=Decimal) if add.get("stats") else {}
    return stats if isinstance(stats, Mapping) else {}
