"""Tables of Iceberg to be taken in: a catalog in SQLite, and row-level deletes, which pyiceberg doesn't write."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyroaring import BitMap64

from worker.iceberg.metadata.deletes import vector

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)
OF_VECTORS = [
    {"name": "referenced_data_file", "type": ["null", "string"], "field-id": 143},
    {"name": "content_offset", "type": ["null", "long"], "field-id": 144},
    {"name": "content_size_in_bytes", "type": ["null", "long"], "field-id": 145},
]


class Icebergs:
    """A catalog with a warehouse beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = SqlCatalog("laketx", uri=self.uri, warehouse=f"file://{folder}/warehouse")
        self.catalog.create_namespace("shop")

    def create(self, name: str, schema: Any, **options: Any) -> Table:
        return self.catalog.create_table(f"shop.{name}", schema, **options)

    def load(self, name: str) -> Table:
        return self.catalog.load_table(f"shop.{name}")

    def hide(self, name: str, positions: Mapping[str, Sequence[int]], *, form: int = 2, content: int = 1) -> None:
        """Commits a snapshot with deletes: of format 2 a file of positions, of format 3 vectors.

        With `content` 2 they are deletes by values, as far as the metadata says.
        """
        table = self.load(name)
        folder = Path(table.location().removeprefix("file://")) / "data"
        files = _puffin(folder, positions) if form == 3 else [_positions_file(folder, positions, content)]
        _commit(self, name, table, files, form)


def data_files(table: Table) -> dict[str, list[dict[str, Any]]]:
    """The rows of each data file, deleted ones too."""
    found = [one.file.file_path for one in table.scan().plan_files()]
    return {path: pq.read_table(path.removeprefix("file://")).to_pylist() for path in found}


def _positions_file(folder: Path, positions: Mapping[str, Sequence[int]], content: int) -> dict[str, Any]:
    path = folder / f"{uuid.uuid4()}-deletes.parquet"
    rows = [{"file_path": one, "pos": at} for one in sorted(positions) for at in sorted(positions[one])]
    pq.write_table(pa.Table.from_pylist(rows, POSITIONS), path)
    return {
        "content": content,
        "file_path": f"file://{path}",
        "file_format": "PARQUET",
        "record_count": len(rows),
        "file_size_in_bytes": path.stat().st_size,
        "equality_ids": [1] if content == 2 else None,
    }


def _puffin(folder: Path, positions: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    path = folder / f"{uuid.uuid4()}-deletes.puffin"
    body, files = b"PFA1", []
    for one, at in positions.items():
        blob = vector(BitMap64(at))
        files.append(
            {
                "content": 1,
                "file_path": f"file://{path}",
                "file_format": "PUFFIN",
                "record_count": len(at),
                "file_size_in_bytes": 0,
                "referenced_data_file": one,
                "content_offset": len(body),
                "content_size_in_bytes": len(blob),
            }
        )
        body += blob
    path.write_bytes(body)
    return files


def _commit(lake: Icebergs, name: str, table: Table, files: Sequence[dict[str, Any]], form: int) -> None:
    """A snapshot with one manifest of deletes more, as a new metadata file."""
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    snapshot = next(one for one in metadata["snapshots"] if one["snapshot-id"] == metadata["current-snapshot-id"])
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    sequence, number = metadata["last-sequence-number"] + 1, uuid.uuid4().int >> 66
    listed, list_schema, list_meta = _read(Path(snapshot["manifest-list"].removeprefix("file://")))
    model = next(one for one in listed if not one["content"])
    entries, schema, meta = _read(Path(model["manifest_path"].removeprefix("file://")))
    data_file = next(one for one in schema["fields"] if one["name"] == "data_file")["type"]
    known = {one["name"] for one in data_file["fields"]}
    data_file["fields"] += [one for one in OF_VECTORS if one["name"] not in known]
    partition = entries[0]["data_file"]["partition"]
    made = [
        {
            "status": 1,
            "snapshot_id": number,
            "sequence_number": None,
            "file_sequence_number": None,
            "data_file": {"partition": partition, **one},
        }
        for one in files
    ]
    manifest = folder / f"{uuid.uuid4()}-deletes.avro"
    manifest.write_bytes(_avro(made, schema, {**meta, "content": "deletes"}))
    fresh = {**model, "manifest_path": f"file://{manifest}", "manifest_length": manifest.stat().st_size, "content": 1}
    fresh |= {"sequence_number": sequence, "min_sequence_number": sequence, "added_snapshot_id": number}
    manifest_list = folder / f"snap-{number}.avro"
    manifest_list.write_bytes(_avro([*listed, fresh], list_schema, list_meta))
    added = {**snapshot, "snapshot-id": number, "parent-snapshot-id": snapshot["snapshot-id"]}
    added |= {"sequence-number": sequence, "manifest-list": f"file://{manifest_list}"}
    added |= {"timestamp-ms": max(int(time.time() * 1000), snapshot["timestamp-ms"] + 1)}
    if form == 3:
        metadata |= {"format-version": 3, "next-row-id": 1_000}
        added |= {"first-row-id": 0, "added-rows": 0}
        metadata["snapshots"] = []
    metadata["snapshots"].append(added)
    metadata |= {"current-snapshot-id": number, "last-sequence-number": sequence, "refs": {}}
    metadata |= {"last-updated-ms": added["timestamp-ms"], "snapshot-log": []}
    metadata["refs"] = {"main": {"snapshot-id": number, "type": "branch"}}
    path = folder / f"{9000 + sequence:05}-{uuid.uuid4()}.metadata.json"
    path.write_text(json.dumps(metadata))
    lake.catalog.drop_table(f"shop.{name}")
    lake.catalog.register_table(f"shop.{name}", f"file://{path}")


def _read(path: Path) -> tuple[list[Any], Any, dict[str, str]]:
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        meta = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
        schema = json.loads(json.dumps(reader.writer_schema))
        return list(reader), schema, meta


def _avro(rows: Sequence[Any], schema: Any, meta: Mapping[str, str]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), rows, metadata=dict(meta))
    return sink.getvalue()
