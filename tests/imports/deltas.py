"""Commits of Delta that deltalake doesn't write: deletion vectors, other names in files, whole protocols."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from worker.iceberg.metadata.deletes import VECTOR, vector
from worker.imports.delta_values import B85, Z85

PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7}


def z85(raw: bytes) -> str:
    return base64.b85encode(raw).translate(bytes.maketrans(B85, Z85)).decode()


def log_of(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.json"))


def commit(table: Path, *actions: Mapping[str, Any]) -> int:
    """Writes the next version by hand."""
    folder = table / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    known = [int(one.name[:20]) for one in folder.iterdir() if one.name[:20].isdigit()]
    version = max(known, default=-1) + 1
    (folder / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return version


def protocol(*features: str) -> dict[str, Any]:
    return {"protocol": {**PROTOCOL, "readerFeatures": list(features), "writerFeatures": list(features)}}


def metadata(schema: Sequence[Mapping[str, Any]], *, partitions: Sequence[str] = (), **settings: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(schema)}),
            "partitionColumns": list(partitions),
            "configuration": settings,
        }
    }


def column(name: str, kind: Any, physical: str = "", number: int = 0) -> dict[str, Any]:
    mapped = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number} if physical else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapped}


def live_adds(table: Path) -> dict[str, dict[str, Any]]:
    """Of a log without a checkpoint that counts."""
    found: dict[str, dict[str, Any]] = {}
    for path in log_of(table):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for one in actions:
            if "remove" in one:
                found.pop(one["remove"]["path"], None)
        found |= {one["add"]["path"]: one["add"] for one in actions if "add" in one}
    return found


def add_file(table: Path, rows: pa.Table, partition: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    """Writes a file; the action that adds it."""
    name = f"part-{uuid.uuid4()}.parquet"
    pq.write_table(rows, table / name)
    size = (table / name).stat().st_size
    stats = json.dumps({"numRecords": len(rows)})
    return {
        "add": {
            "path": name,
            "partitionValues": dict(partition or {}),
            "size": size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": stats,
        }
    }


def hide(table: Path, positions: Mapping[str, Sequence[int]], form: str) -> int:
    """A commit with deletion vectors: `i` in the log, `u` in a file below the table, `p` in a file anywhere."""
    adds = live_adds(table)
    body, actions = b"\x01", [protocol("deletionVectors")]
    number = uuid.uuid4()
    prefix = "ab" if form == "u" else ""
    place = table / prefix / f"deletion_vector_{number}.bin"
    for path, at in positions.items():
        bitmap = BitMap64(at)
        blob = VECTOR + bitmap.serialize()
        before = adds[path]
        about: dict[str, Any] = {"sizeInBytes": len(blob), "cardinality": len(bitmap)}
        if form == "i":
            about |= {"storageType": "i", "pathOrInlineDv": z85(blob + b"\0" * (-len(blob) % 4))}
        else:
            named = f"{prefix}{z85(number.bytes)}" if form == "u" else f"file://{place}"
            about |= {"storageType": form, "pathOrInlineDv": named, "offset": len(body)}
            body += vector(bitmap)
        stats = {**json.loads(before["stats"]), "tightBounds": False}
        remove = {
            "path": path,
            "deletionTimestamp": 0,
            "dataChange": True,
            "deletionVector": before.get("deletionVector"),
        }
        actions += [{"add": {**before, "stats": json.dumps(stats), "deletionVector": about}}, {"remove": remove}]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(body)
    return commit(table, *actions)
