"""What Iceberg's manifests say of the files of a snapshot: entries, bounds, partitions, deletes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyroaring import BitMap64

from metaservice.shared.column_types import Decimal, Type, type_text
from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.base.values import EPOCH, INTEGERS, MICROSECOND, TIMES, raw_value, wire_value
from worker.files.deletion_vectors import read_positions, read_vector
from worker.formats.avro import AvroLimits, read_avro
from worker.formats.avro_readers import AvroError, Record
from worker.formats.avro_values import Field, Fields, Kind
from worker.formats.iceberg_manifests import DATA, DATA_FILE, DELETED, EQUALITY, MANIFEST, PARQUET, PUFFIN
from worker.imports.facts import Bounds, ColumnKey, plain_file
from worker.imports.planning import Meter

DATE_BYTES: Final = 4
LISTED: Final[Fields] = {**MANIFEST, "sequence_number": Field(Kind.WHOLE)}
BOUNDS: Final = ("null_value_counts", "lower_bounds", "upper_bounds")
ENTRY: Final[Fields] = {
    "status": Field(Kind.WHOLE, is_required=True),
    "sequence_number": Field(Kind.WHOLE),
    "data_file": {**DATA_FILE, **dict.fromkeys(BOUNDS, Field(Kind.PAIRS))},
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A live entry: its file, the sequence number from which it counts, and its partition spec."""

    file: Mapping[str, Any]
    sequence: int
    spec_id: int

    @property
    def path(self) -> str:
        return str(self.file["file_path"])


def read_manifests(io: Any, manifest_list: str) -> list[Record]:
    """Return the records of a snapshot's manifest list."""
    return list(_records(io, manifest_list, LISTED, "list of manifests"))


def read_entries(io: Any, manifest: Record) -> list[Entry]:
    """The live entries of a manifest. An entry without a sequence number has its manifest's."""
    entries = []
    for record in _records(io, manifest["manifest_path"], ENTRY, "manifest"):
        if record["status"] != DELETED:
            sequence = record["sequence_number"]
            number = manifest["sequence_number"] if sequence is None else sequence
            entries.append(Entry(record["data_file"], number or 0, manifest["partition_spec_id"] or 0))
    return entries


def _records(io: Any, uri: str, fields: Fields, what: str) -> Iterator[Record]:
    try:
        with io.new_input(uri).open() as stream:
            yield from read_avro(stream, fields, AvroLimits())
    except AvroError as error:
        raise InputError("FILE_UNREADABLE", f"{uri} is no {what}: {error}") from error


def is_data(entry: Entry) -> bool:
    return bool((entry.file["content"] or DATA) == DATA)


def check_entry(entry: Entry) -> None:
    """Refuse an entry that readers of a table can't show."""
    if entry.file["key_metadata"]:
        raise refused(f"{entry.path} is encrypted")
    if entry.file["content"] == EQUALITY:
        raise refused(
            f"{entry.path} deletes rows by their values; compact the table at its source (rewrite_data_files)"
        )
    if _form(entry) != PARQUET and (is_data(entry) or _form(entry) != PUFFIN):
        raise refused(f"{entry.path} is a file of the format {_form(entry)}: tables here have Parquet")


def _form(entry: Entry) -> str:
    return str(entry.file["file_format"]).upper()


def refused(why: str) -> InputError:
    return InputError("IMPORT_FEATURE", why)


# -- bounds and partitions ---------------------------------------------------------------------------------------------


def bounds_of(file: Mapping[str, Any], kinds: Mapping[int, Type]) -> dict[ColumnKey, Bounds]:
    """Return the bounds of the columns in `kinds`, by column id."""
    low, high, nulls = (file[name] or {} for name in ("lower_bounds", "upper_bounds", "null_value_counts"))
    bounds: dict[ColumnKey, Bounds] = {}
    for column_id, kind in kinds.items():
        least, most = _bound(low.get(column_id), kind, is_max=False), _bound(high.get(column_id), kind, is_max=True)
        if least is not None or most is not None or column_id in nulls:
            is_cut = type_text(kind) == "string"  # how many characters of a text were kept is not said
            bounds[column_id] = Bounds(least, most, nulls.get(column_id), is_cut)
    return bounds


def _bound(raw: bytes | None, kind: Type, *, is_max: bool) -> common_pb2.Value | None:
    """Return a bound. If the type was widened later, the bytes are those of the narrower type."""
    if raw is None:
        return None
    name = type_text(kind)
    if name in INTEGERS or name == "date" or (name in TIMES and len(raw) > DATE_BYTES):
        return raw_value(int.from_bytes(raw, "little", signed=True), name, is_max=is_max)[0]
    if name == "boolean":
        return raw_value(raw != b"\0", name, is_max=is_max)[0]
    if name == "string" or isinstance(kind, Decimal):
        return raw_value(raw, name, is_max=is_max)[0]
    return None


def partition_value(value: Any, kind: Type) -> common_pb2.Value:
    if isinstance(value, datetime):
        return common_pb2.Value(timestamp_us=(value - EPOCH) // MICROSECOND)
    return wire_value(value, type_text(kind))


# -- deletes -----------------------------------------------------------------------------------------------------------


class Deletes:
    """Hidden positions by data file."""

    def __init__(self, io: Any, entries: Sequence[Entry], meter: Meter) -> None:
        self._by_path: dict[str, list[tuple[int, BitMap64]]] = defaultdict(list)
        vectors = [entry for entry in entries if _form(entry) == PUFFIN]
        tables = [entry for entry in entries if _form(entry) == PARQUET]
        for entry, vector in zip(vectors, meter.each(lambda entry: _vector(io, entry), vectors), strict=True):
            self._by_path[plain_file(entry.file["referenced_data_file"])].append((entry.sequence, vector))
        for entry, listed in zip(tables, meter.each(lambda entry: list(_positions(io, entry)), tables), strict=True):
            for path, positions in listed:
                self._by_path[plain_file(path)].append((entry.sequence, positions))

    def of(self, path: str, sequence: int, rows: int) -> BitMap64:
        """Return the positions that were hidden with the file's snapshot or after it."""
        hidden = BitMap64()
        for number, positions in self._by_path.get(path, ()):
            if number >= sequence:
                hidden |= positions
        if hidden and hidden.max() >= rows:
            raise InputError("FILE_UNREADABLE", f"{path} has {rows} rows, and its row {hidden.max()} is deleted")
        return hidden


def _vector(io: Any, entry: Entry) -> BitMap64:
    offset, size = entry.file["content_offset"], entry.file["content_size_in_bytes"]
    with io.new_input(entry.path).open() as stream:
        stream.seek(offset)
        return read_vector(stream.read(size), entry.path)


def _positions(io: Any, entry: Entry) -> Iterator[tuple[str, BitMap64]]:
    with io.new_input(entry.path).open() as stream:
        yield from read_positions(stream)
