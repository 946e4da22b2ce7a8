"""What a client's snapshots change, by the manifests that it wrote: files that they add, rows that they take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import fastavro

from iceberg.commits.places import Places
from iceberg.commits.requests import NewSnapshot, refused
from iceberg.locations import uri_of
from metaservice.client import LakeTXError
from worker.base.errors import InputError
from worker.base.footers import in_threads

EXISTING, ADDED, DELETED = 0, 1, 2  # the status of an entry
DATA, POSITIONS = 0, 1  # the content of a file; of a manifest 0 is data, and 1 all that hides rows
PARQUET: Final = "PARQUET"
PUFFIN: Final = "PUFFIN"
MANIFEST_BYTES_MAX: Final = 512 << 20
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file as its client describes it: its path below the table's folder."""

    path: str
    rows: int
    size: int
    partition: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Positions of hidden rows: a Parquet file of them, or a deletion vector, which is of one data file. By URIs."""

    uri: str
    data_file: str  # empty: the Parquet file says which
    vector: tuple[int, int] | None  # where it lies in the Puffin file, and its size


@dataclass(slots=True)
class Changes:
    """What snapshots that follow each other change in all, by the URIs of data files."""

    added: dict[str, AddedFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    hides: set[DeleteFile] = field(default_factory=set)
    unhides: set[str] = field(default_factory=set)  # those that lose a file which hid rows of them
    totals: tuple[int, int] | None = None  # data files of the last snapshot, and their rows, if all manifests say so

    @property
    def is_append(self) -> bool:
        return not (self.removed or self.hides or self.unhides)


def read_changes(places: Places, snapshots: Sequence[NewSnapshot]) -> Changes:
    """The changes of a commit."""
    listed = [list(_avro(places, one.manifest_list)) for one in snapshots]
    own = _own(listed, snapshots)
    if any(one.get("partition_spec_id", 0) != 0 for one in own.values()):
        raise refused("the snapshot has files of another partition spec")
    read = [_entries(places, one) for one in own] if len(own) < 2 else in_threads(partial(_entries, places), own)
    ids = {one.snapshot_id for one in snapshots}
    found, count = Changes(totals=_totals(listed[-1])), 0
    for entry in (one for entries in read for one in entries):
        is_data = entry["data_file"].get("content", DATA) == DATA
        if entry["status"] == ADDED:
            count += is_data
            _add(places, found, entry["data_file"], is_data=is_data)
        elif entry["status"] == DELETED and entry["snapshot_id"] in ids | {None}:
            _remove(found, entry["data_file"], is_data=is_data)
    counts = [one.added_files for one in snapshots]
    said = sum(one for one in counts if one is not None)
    if None not in counts and said != count:
        raise InputError("ICEBERG_FILE", f"the manifests of the snapshot have {count} files, its summary {said}")
    return found


def _own(listed: Sequence[Sequence[Entry]], snapshots: Sequence[NewSnapshot]) -> dict[str, Entry]:
    """The manifests that the snapshots bring, by their paths: later lists have those of earlier ones, too."""
    ids = {one.snapshot_id for one in snapshots}
    return {one["manifest_path"]: one for each in listed for one in each if one["added_snapshot_id"] in ids}


def _totals(manifests: Sequence[Entry]) -> tuple[int, int] | None:
    """How many data files, and rows in them, a snapshot has."""
    files = rows = 0
    for one in manifests:
        if one.get("content", DATA) == DATA:
            counts = [one.get(f"{kind}_{what}_count") for what in ("files", "rows") for kind in ("added", "existing")]
            known = [one for one in counts if one is not None]
            if len(known) < len(counts):
                return None
            files, rows = files + sum(known[:2]), rows + sum(known[2:])
    return files, rows


def _add(places: Places, found: Changes, one: Entry, *, is_data: bool) -> None:
    if one.get("key_metadata"):
        raise refused(f"{one['file_path']} is encrypted")
    form = str(one["file_format"]).upper()
    if form != PARQUET and (is_data or form != PUFFIN):
        raise refused(f"{one['file_path']} is a file of the format {one['file_format']}: tables here have Parquet")
    uri = uri_of(one["file_path"])
    if not is_data:
        _check_place(places, uri)
        found.hides.add(_delete_file(one))
    elif uri in found.added:
        raise InputError("ICEBERG_FILE", "the snapshot names a file twice")
    else:
        path = places.inside(uri)
        found.added[uri] = AddedFile(path, one["record_count"], one["file_size_in_bytes"], one["partition"] or {})


def _check_place(places: Places, uri: str) -> None:
    """DuckDB writes what hides rows of a file beside it, imported ones included."""
    try:
        places.inside(uri)
    except InputError as error:
        raise InputError(
            "ICEBERG_FILE",
            f"{uri} hides rows and lies outside the table's folder, as imported files do: delete imported rows with "
            "pyiceberg, Spark or LakeTX",
        ) from error


def _remove(found: Changes, one: Entry, *, is_data: bool) -> None:
    """Of what a snapshot before has added nothing is left."""
    if is_data:
        uri = uri_of(one["file_path"])
        if found.added.pop(uri, None) is None:
            found.removed.add(uri)
        return
    file = _delete_file(one)
    if file in found.hides:
        found.hides.remove(file)
    elif file.data_file:
        found.unhides.add(file.data_file)
    else:
        raise refused(f"the snapshot removes {file.uri}, which does not say of which file it hides rows")


def _delete_file(one: Entry) -> DeleteFile:
    if one["content"] != POSITIONS:
        raise refused(f"{one['file_path']} deletes rows by their values: only deletes by position are possible here")
    data_file, is_vector = one.get("referenced_data_file"), str(one["file_format"]).upper() == PUFFIN
    vector = (one["content_offset"], one["content_size_in_bytes"]) if is_vector else None
    return DeleteFile(uri_of(one["file_path"]), uri_of(data_file) if data_file else "", vector)


def written_folders(places: Places, snapshots: Sequence[NewSnapshot]) -> set[str]:
    """The first folders of the files that snapshots add, as far as their manifests can be read."""
    found = set()
    with suppress(LakeTXError):
        listed = [list(_avro(places, one.manifest_list)) for one in snapshots]
        for path in _own(listed, snapshots):
            for entry in _avro(places, path):
                if entry["status"] == ADDED:
                    found.add(places.inside(entry["data_file"]["file_path"]).partition("/")[0])
    return found


def _entries(places: Places, uri: str) -> list[Entry]:
    return list(_avro(places, uri))


def _avro(places: Places, uri: str) -> Iterator[Entry]:
    try:
        with places.open(places.inside(uri)) as file:
            if file.size() > MANIFEST_BYTES_MAX:
                raise InputError("ICEBERG_FILE", f"{uri} is too large for a manifest")
            records: Iterator[Any] = fastavro.reader(file)
            yield from records
    except FileNotFoundError as error:
        raise InputError("ICEBERG_FILE", f"{uri} is not there") from error
    except (OSError, ValueError, EOFError, KeyError, IndexError) as error:
        raise InputError("ICEBERG_FILE", f"{uri} is no manifest: {error}") from error
