"""Commits whose manifests are not what a client of Iceberg would write."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tests.iceberg.servers import Server
from tests.iceberg.writers import Request, error_of


class Forged:
    """A commit whose manifests a test rewrites."""

    def __init__(self, server: Server, request: Request) -> None:
        self.server, self.request = server, request

    @property
    def list_path(self) -> Path:
        return path_of(self.request.snapshot["manifest-list"])

    def listed(self, change: Callable[[list[Any]], None]) -> None:
        """Changes the list of manifests."""
        rewrite(self.list_path, change)

    def entries(self, change: Callable[[list[Any]], None]) -> None:
        """Changes the entries of each manifest that the snapshot brings."""
        for one in self.own():
            rewrite(path_of(one["manifest_path"]), change)

    def own(self) -> list[Any]:
        number = self.request.snapshot["snapshot-id"]
        return [one for one in read_avro(self.list_path)[0] if one["added_snapshot_id"] == number]

    def hide(self, uri: str, positions: list[int], folder: Path | None = None, **more: Any) -> None:
        """A file of positions more, in a manifest of its own."""
        [first, *_] = self.own()
        entries, schema, metadata = read_avro(path_of(first["manifest_path"]))
        manifest = path_of(first["manifest_path"]).with_name("hides.avro")
        place = (folder or manifest.parent) / "hides.parquet"
        place.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"file_path": [uri] * len(positions), "pos": pa.array(positions, pa.int64())}), place)
        size = place.stat().st_size
        file: dict[str, Any] = entries[0]["data_file"] | {
            "file_size_in_bytes": size,
            "content": 1,
            "file_path": f"file://{place}",
            "record_count": len(positions),
        }
        entry = entries[0] | {"status": 1, "data_file": file | more}
        entry["snapshot_id"] = self.request.snapshot["snapshot-id"]
        write_avro(manifest, [entry], schema, dict(metadata) | {"content": "deletes"})
        self.listed(lambda one: one.append(first | {"manifest_path": f"file://{manifest}", "content": 1}))

    def leave_out(self) -> None:
        """Leaves out the files that the snapshot does not change, without a word."""
        own = [one["manifest_path"] for one in self.own()]

        def changed_alone(listed: list[Any]) -> None:
            listed[:] = [one for one in listed if one["manifest_path"] in own]
            for one in listed:
                one["existing_files_count"] = one["existing_rows_count"] = 0

        self.listed(changed_alone)
        self.entries(lambda entries: entries.__setitem__(slice(None), [one for one in entries if one["status"] != 0]))

    def kept_file(self) -> str:
        """A data file that the snapshot leaves as it was."""
        number = self.request.snapshot["snapshot-id"]
        listed = read_avro(self.list_path)[0]
        entries = [(manifest, one) for manifest in listed for one in read_avro(path_of(manifest["manifest_path"]))[0]]
        return next(
            str(one["data_file"]["file_path"])
            for manifest, one in entries
            if one["status"] == 0 or (one["status"] == 1 and manifest["added_snapshot_id"] != number)
        )

    def refusal(self) -> str:
        status, kind, said = error_of(self.request.send(self.server))
        assert (status, kind) == (400, "BadRequestException")
        return said


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def read_avro(path: Path) -> tuple[list[Any], Any, Mapping[str, str]]:
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    records: list[Any] = list(reader)
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    return records, reader.writer_schema, metadata


def write_avro(path: Path, records: list[Any], schema: Any, metadata: Mapping[str, str]) -> None:
    with path.open("wb") as out:
        fastavro.writer(out, schema, records, metadata=dict(metadata))


def rewrite(path: Path, change: Callable[[list[Any]], None]) -> None:
    records, schema, metadata = read_avro(path)
    change(records)
    write_avro(path, records, schema, metadata)
