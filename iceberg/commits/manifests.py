"""The data files that a client's snapshots add, by the manifests that it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import fastavro

from iceberg.commits.places import Places
from iceberg.commits.requests import NewSnapshot, refused
from metaservice.client import LakeTXError
from worker.base.errors import InputError
from worker.base.footers import in_threads

EXISTING, ADDED = 0, 1  # the status of an entry; 2: deleted
DATA: Final = 0  # the content of a manifest, and of a file
PARQUET: Final = "PARQUET"
MANIFEST_BYTES_MAX: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file as its client describes it: its path below the table's folder."""

    path: str
    rows: int
    size: int
    partition: Mapping[str, Any]


def read_added(places: Places, snapshots: Sequence[NewSnapshot]) -> list[AddedFile]:
    """The files of a commit. Its later snapshots' lists have the manifests of the earlier ones, too."""
    own = _manifests(places, snapshots)
    for one in own.values():
        if one.get("content", DATA) != DATA:
            raise refused("the snapshot deletes rows: delete them with LakeTX (SQL on Spark, or the Python API)")
        if one.get("partition_spec_id", 0) != 0:
            raise refused("the snapshot has files of another partition spec")
    read = [_entries(places, one) for one in own] if len(own) < 2 else in_threads(partial(_entries, places), own)
    found = [_added(places, entry) for entries in read for entry in entries if entry["status"] != EXISTING]
    if len({one.path for one in found}) != len(found):
        raise InputError("ICEBERG_FILE", "the snapshot names a file twice")
    counts = [one.added_files for one in snapshots]
    said = sum(one for one in counts if one is not None)
    if None not in counts and said != len(found):
        raise InputError("ICEBERG_FILE", f"the manifests of the snapshot have {len(found)} files, its summary {said}")
    return found


def _manifests(places: Places, snapshots: Sequence[NewSnapshot]) -> dict[str, Mapping[str, Any]]:
    """Those that the snapshots bring, by their paths."""
    ids = {one.snapshot_id for one in snapshots}
    listed = [one for each in snapshots for one in _avro(places, each.manifest_list)]
    return {one["manifest_path"]: one for one in listed if one["added_snapshot_id"] in ids}


def written_folders(places: Places, snapshots: Sequence[NewSnapshot]) -> set[str]:
    """The first folders of the files that snapshots add, as far as their manifests can be read."""
    found = set()
    with suppress(LakeTXError):
        for path in _manifests(places, snapshots):
            for entry in _avro(places, path):
                if entry["status"] == ADDED:
                    found.add(places.inside(entry["data_file"]["file_path"]).partition("/")[0])
    return found


def _entries(places: Places, uri: str) -> list[Any]:
    return list(_avro(places, uri))


def _avro(places: Places, uri: str) -> Iterator[Any]:
    try:
        with places.open(places.inside(uri)) as file:
            if file.size() > MANIFEST_BYTES_MAX:
                raise InputError("ICEBERG_FILE", f"{uri} is too large for a manifest")
            yield from fastavro.reader(file)
    except FileNotFoundError as error:
        raise InputError("ICEBERG_FILE", f"{uri} is not there") from error
    except (OSError, ValueError, EOFError, KeyError, IndexError) as error:
        raise InputError("ICEBERG_FILE", f"{uri} is no manifest: {error}") from error


def _added(places: Places, entry: Mapping[str, Any]) -> AddedFile:
    if entry["status"] != ADDED:
        raise refused("the snapshot removes files: overwrite or compact the table with LakeTX")
    one = entry["data_file"]
    if one.get("content", DATA) != DATA:
        raise refused("the snapshot deletes rows: delete them with LakeTX (SQL on Spark, or the Python API)")
    if str(one["file_format"]).upper() != PARQUET:
        raise refused(f"{one['file_path']} is a file of the format {one['file_format']}: tables here have Parquet")
    if one.get("key_metadata"):
        raise refused(f"{one['file_path']} is encrypted")
    path = places.inside(one["file_path"])
    return AddedFile(path, one["record_count"], one["file_size_in_bytes"], one["partition"] or {})
