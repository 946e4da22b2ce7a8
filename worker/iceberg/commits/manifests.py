"""What a client's snapshots change, by the manifests that it wrote: files that they add, rows that they take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from metaservice.client import LakeTXError
from worker.base.errors import InputError
from worker.files.footers import in_threads
from worker.formats.avro import AvroLimits, read_avro
from worker.formats.avro_readers import AvroError
from worker.formats.avro_values import Field, Fields, Kind
from worker.formats.iceberg_manifests import ADDED, DATA, DATA_FILE, DELETED, MANIFEST, PARQUET, POSITIONS, PUFFIN
from worker.iceberg.commits.places import Places
from worker.iceberg.commits.requests import NewSnapshot, refused
from worker.iceberg.locations import uri_of

CHANGES_MAX: Final = 250_000  # entries of one commit
COUNTS: Final = [f"{kind}_{what}_count" for what in ("files", "rows") for kind in ("added", "existing")]
LISTED: Final[Fields] = {
    **MANIFEST,
    **dict.fromkeys(("added_snapshot_id", "content", *COUNTS), Field(Kind.WHOLE)),
}
ENTRY: Final[Fields] = {
    "status": Field(Kind.WHOLE, is_required=True),
    "snapshot_id": Field(Kind.WHOLE),
    "data_file": DATA_FILE,
}
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
    files = _Files(places, {one.snapshot_id for one in snapshots})
    listed = [files.manifests(one.manifest_list) for one in snapshots]
    own = _own(listed, snapshots)
    if any(one["partition_spec_id"] for one in own.values()):
        raise refused("the snapshot has files of another partition spec")
    read = [files.changes(one) for one in own] if len(own) < 2 else in_threads(files.changes, own)
    found, count = Changes(totals=_totals(listed[-1])), 0
    for entry in (one for entries in read for one in entries):
        is_data = (entry["data_file"]["content"] or DATA) == DATA
        if entry["status"] == ADDED:
            count += is_data
            _add(places, found, entry["data_file"], is_data=is_data)
        else:
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
        if (one["content"] or DATA) == DATA:
            counts = [one[name] for name in COUNTS]
            known = [one for one in counts if one is not None]
            if len(known) < len(counts):
                return None
            files, rows = files + sum(known[:2]), rows + sum(known[2:])
    return files, rows


def _add(places: Places, found: Changes, one: Entry, *, is_data: bool) -> None:
    if one["key_metadata"]:
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
    data_file, is_vector = one["referenced_data_file"], str(one["file_format"]).upper() == PUFFIN
    vector = (one["content_offset"], one["content_size_in_bytes"]) if is_vector else None
    if vector is not None and not (data_file and all(isinstance(part, int) and part >= 0 for part in vector)):
        raise InputError("ICEBERG_FILE", f"the manifest doesn't say where {one['file_path']} has which vector")
    return DeleteFile(uri_of(one["file_path"]), uri_of(data_file) if data_file else "", vector)


def written_folders(places: Places, snapshots: Sequence[NewSnapshot]) -> set[str]:
    """The first folders of the files that snapshots add, as far as their manifests can be read."""
    found = set()
    with suppress(LakeTXError):
        files = _Files(places, {one.snapshot_id for one in snapshots})
        listed = [files.manifests(one.manifest_list) for one in snapshots]
        for path in _own(listed, snapshots):
            for entry in files.changes(path):
                if entry["status"] == ADDED:
                    found.add(places.inside(entry["data_file"]["file_path"]).partition("/")[0])
    return found


class _Files:
    """The Avro files of one commit, which hold no more than a commit may have. Threads can share it."""

    def __init__(self, places: Places, snapshot_ids: set[int]) -> None:
        self._places = places
        self._ids: set[int | None] = {None, *snapshot_ids}
        self._limits = AvroLimits()
        self._changes = 0

    def manifests(self, uri: str) -> list[Entry]:
        """What a list of manifests says of each."""
        return list(self._records(uri, LISTED))

    def changes(self, uri: str) -> list[Entry]:
        """The entries of a manifest that a snapshot of the commit adds or removes."""
        found = []
        for one in self._records(uri, ENTRY):
            if one["status"] == ADDED or (one["status"] == DELETED and one["snapshot_id"] in self._ids):
                found.append(one)
                self._changes += 1
                if self._changes > CHANGES_MAX:
                    raise refused(f"the commit changes more than {CHANGES_MAX} files: make it in parts")
        return found

    def _records(self, uri: str, fields: Fields) -> Iterator[Entry]:
        try:
            with self._places.open(self._places.inside(uri)) as file:
                yield from read_avro(file, fields, self._limits)
        except FileNotFoundError as error:
            raise InputError("ICEBERG_FILE", f"{uri} is not there") from error
        except (OSError, AvroError) as error:
            raise InputError("ICEBERG_FILE", f"{uri} is no manifest: {error}") from error
