"""Changes of a client's snapshots, read from the manifests that it wrote: added files, hidden rows."""

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
    """Positions of hidden rows: a Parquet file of them, or a deletion vector of one data file. Both are URIs."""

    uri: str
    data_file: str  # empty: the Parquet file says which
    vector: tuple[int, int] | None  # where it lies in the Puffin file, and its size


@dataclass(slots=True)
class Changes:
    """The changes of consecutive snapshots in all, by the URIs of data files."""

    added: dict[str, AddedFile] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    hides: set[DeleteFile] = field(default_factory=set)
    unhides: set[str] = field(default_factory=set)  # those that lose a file which hid rows of them
    totals: tuple[int, int] | None = None  # data files of the last snapshot, and their rows, if all manifests say so

    @property
    def is_append(self) -> bool:
        return not (self.removed or self.hides or self.unhides)


def read_changes(places: Places, snapshots: Sequence[NewSnapshot]) -> Changes:
    """Return the changes of a commit."""
    files = _Files(places, {snapshot.snapshot_id for snapshot in snapshots})
    listed = [files.manifests(snapshot.manifest_list) for snapshot in snapshots]
    own = _own(listed, snapshots)
    if any(manifest["partition_spec_id"] for manifest in own.values()):
        raise refused("the snapshot has files of another partition spec")
    read = [files.changes(path) for path in own] if len(own) < 2 else in_threads(files.changes, own)
    changes, count = Changes(totals=_totals(listed[-1])), 0
    for entry in (changed_entry for entries in read for changed_entry in entries):
        is_data = (entry["data_file"]["content"] or DATA) == DATA
        if entry["status"] == ADDED:
            count += is_data
            _add(places, changes, entry["data_file"], is_data=is_data)
        else:
            _remove(changes, entry["data_file"], is_data=is_data)
    counts = [snapshot.added_files for snapshot in snapshots]
    claimed = sum(files_added for files_added in counts if files_added is not None)
    if None not in counts and claimed != count:
        raise InputError("ICEBERG_FILE", f"the manifests of the snapshot have {count} files, its summary {claimed}")
    return changes


def _own(listed: Sequence[Sequence[Entry]], snapshots: Sequence[NewSnapshot]) -> dict[str, Entry]:
    """Return the new manifests of the snapshots, by path. Later lists contain those of earlier snapshots, too."""
    ids = {snapshot.snapshot_id for snapshot in snapshots}
    return {
        manifest["manifest_path"]: manifest
        for manifests in listed
        for manifest in manifests
        if manifest["added_snapshot_id"] in ids
    }


def _totals(manifests: Sequence[Entry]) -> tuple[int, int] | None:
    """Return the number of a snapshot's data files, and of their rows; None if a manifest doesn't count them."""
    files = rows = 0
    for manifest in manifests:
        if (manifest["content"] or DATA) == DATA:
            counts = [manifest[name] for name in COUNTS]
            present = [count for count in counts if count is not None]
            if len(present) < len(counts):
                return None
            files, rows = files + sum(present[:2]), rows + sum(present[2:])
    return files, rows


def _add(places: Places, changes: Changes, entry: Entry, *, is_data: bool) -> None:
    if entry["key_metadata"]:
        raise refused(f"{entry['file_path']} is encrypted")
    form = str(entry["file_format"]).upper()
    if form != PARQUET and (is_data or form != PUFFIN):
        raise refused(f"{entry['file_path']} is a file of the format {entry['file_format']}: tables here have Parquet")
    uri = uri_of(entry["file_path"])
    if not is_data:
        _check_place(places, uri)
        changes.hides.add(_delete_file(entry))
    elif uri in changes.added:
        raise InputError("ICEBERG_FILE", "the snapshot names a file twice")
    else:
        path = places.inside(uri)
        changes.added[uri] = AddedFile(
            path, entry["record_count"], entry["file_size_in_bytes"], entry["partition"] or {}
        )


def _check_place(places: Places, uri: str) -> None:
    """Check the place of a delete file. DuckDB writes it next to its data file, also next to an imported one."""
    try:
        places.inside(uri)
    except InputError as error:
        raise InputError(
            "ICEBERG_FILE",
            f"{uri} hides rows and lies outside the table's folder, as imported files do: delete imported rows with "
            "pyiceberg, Spark or LakeTX",
        ) from error


def _remove(changes: Changes, entry: Entry, *, is_data: bool) -> None:
    """Record a removed file. A file that an earlier snapshot of the commit added leaves no trace."""
    if is_data:
        uri = uri_of(entry["file_path"])
        if changes.added.pop(uri, None) is None:
            changes.removed.add(uri)
        return
    file = _delete_file(entry)
    if file in changes.hides:
        changes.hides.remove(file)
    elif file.data_file:
        changes.unhides.add(file.data_file)
    else:
        raise refused(f"the snapshot removes {file.uri}, which does not say of which file it hides rows")


def _delete_file(entry: Entry) -> DeleteFile:
    if entry["content"] != POSITIONS:
        raise refused(f"{entry['file_path']} deletes rows by their values: only deletes by position are possible here")
    data_file, is_vector = entry["referenced_data_file"], str(entry["file_format"]).upper() == PUFFIN
    vector = (entry["content_offset"], entry["content_size_in_bytes"]) if is_vector else None
    if vector is not None and not (data_file and all(isinstance(part, int) and part >= 0 for part in vector)):
        raise InputError("ICEBERG_FILE", f"the manifest doesn't say where {entry['file_path']} has which vector")
    return DeleteFile(uri_of(entry["file_path"]), uri_of(data_file) if data_file else "", vector)


def written_folders(places: Places, snapshots: Sequence[NewSnapshot]) -> set[str]:
    """Return the top folders of the files that snapshots add, as far as their manifests can be read."""
    folders = set()
    with suppress(LakeTXError):
        files = _Files(places, {snapshot.snapshot_id for snapshot in snapshots})
        listed = [files.manifests(snapshot.manifest_list) for snapshot in snapshots]
        for path in _own(listed, snapshots):
            for entry in files.changes(path):
                if entry["status"] == ADDED:
                    folders.add(places.inside(entry["data_file"]["file_path"]).partition("/")[0])
    return folders


class _Files:
    """Reads the Avro files of one commit, within the limits of a commit. Threads can share it."""

    def __init__(self, places: Places, snapshot_ids: set[int]) -> None:
        self._places = places
        self._ids: set[int | None] = {None, *snapshot_ids}
        self._limits = AvroLimits()
        self._changes = 0

    def manifests(self, uri: str) -> list[Entry]:
        """Return the records of a manifest list."""
        return list(self._records(uri, LISTED))

    def changes(self, uri: str) -> list[Entry]:
        """Return the entries of a manifest that a snapshot of the commit adds or removes."""
        changed = []
        for entry in self._records(uri, ENTRY):
            if entry["status"] == ADDED or (entry["status"] == DELETED and entry["snapshot_id"] in self._ids):
                changed.append(entry)
                self._changes += 1
                if self._changes > CHANGES_MAX:
                    raise refused(f"the commit changes more than {CHANGES_MAX} files: make it in parts")
        return changed

    def _records(self, uri: str, fields: Fields) -> Iterator[Entry]:
        try:
            with self._places.open(self._places.inside(uri)) as file:
                yield from read_avro(file, fields, self._limits)
        except FileNotFoundError as error:
            raise InputError("ICEBERG_FILE", f"{uri} is not there") from error
        except (OSError, AvroError) as error:
            raise InputError("ICEBERG_FILE", f"{uri} is no manifest: {error}") from error
