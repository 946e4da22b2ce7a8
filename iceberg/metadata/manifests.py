"""The manifests and the manifest lists of a table's snapshots.

Manifests hold the files that an aligned range of commits added, so a snapshot shares nearly all of them with the one
before. Generated files are named by their content: whoever makes one again makes the same.

A file's sequence number is its data version's, so a delete applies to what it applies to here. The hidden rows of a
data file are the union of all that hides some: one vector a file, with the sequence number of the data file.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_
from typing import Any, Final

from iceberg.metadata.avro_files import Record, avro_file, entry_schema, list_schema
from iceberg.metadata.deletes import FILE_PATH_ID, position_deletes, puffin
from iceberg.metadata.facts import (
    METADATA,
    MadeFile,
    MadeSnapshot,
    ShownFile,
    SnapshotFacts,
    TableFacts,
    Totals,
    sequence_of,
)
from iceberg.metadata.partitions import partition_columns, partition_spec
from iceberg.metadata.ranges import cover, parts
from iceberg.metadata.schemas import iceberg_schema
from iceberg.metadata.values import FLOATS, avro_value, bound, plain_value
from metaservice.column_types import Atomic, Decimal, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2

ENTRIES_MAX: Final = 10_000  # of one manifest
EXISTING, ADDED = 0, 1
DATA, POSITION_DELETES = 0, 1
NAME_DIGITS: Final = 32
Put = Callable[[MadeFile], None]


@dataclass(frozen=True, slots=True)
class _Range:
    """What was made for the files of a range of commits."""

    files: Sequence[ShownFile]
    manifests: Sequence[Record]
    totals: Totals


class Manifests:
    """Makes the manifests of a table's snapshots. What it made for one, it uses for the next."""

    def __init__(self, table: TableFacts, put: Put) -> None:
        """`put` is called with each new file, before one that names it."""
        self._table = table
        self._put = put
        self._makers: dict[int, _Maker] = {}  # by the version of the schema
        self._vectors: dict[str, tuple[ShownFile, Record]] = {}

    def snapshot(self, facts: SnapshotFacts) -> MadeSnapshot:
        number = facts.schema.schema_version
        if number not in self._makers:
            self._makers[number] = _Maker(self._table, facts.schema, self._put, self._vectors)
        versions = list(facts.files)
        ranges = [
            one for span in cover(facts.version + 1) for one in self._makers[number].ranges(span, facts, versions)
        ]
        manifests = [record for one in ranges for record in one.manifests]
        totals = sum((one.totals for one in ranges), start=Totals())
        return MadeSnapshot(facts.commit, facts.schema, self._list(facts, manifests), totals)

    def _list(self, facts: SnapshotFacts, manifests: Sequence[Record]) -> str:
        number = sequence_of(facts.version)
        told = {
            "snapshot-id": str(number),
            "parent-snapshot-id": "null",
            "sequence-number": str(number),
            "format-version": str(self._table.format),
        }
        if self._table.format >= 3:
            told["first-row-id"] = "0"
        made = named(f"snap-{facts.version}", "avro", avro_file(list_schema(self._table.format), manifests, told))
        self._put(made)
        return made.name


class _Maker:
    """Makes manifests under one version of the schema."""

    def __init__(
        self,
        table: TableFacts,
        schema: catalog_pb2.SchemaVersion,
        put: Put,
        vectors: dict[str, tuple[ShownFile, Record]],
    ) -> None:
        self._table = table
        self._put = put
        self._partitions = partition_columns(table.meta, schema.columns)
        kinds = [(one.column_id, read_type(one.type)) for one in schema.columns]
        self._kinds = {
            number: (kind, isinstance(kind, Atomic) and kind.name in FLOATS)
            for number, kind in kinds
            if isinstance(kind, Atomic | Decimal)
        }
        self._entry_schema = entry_schema(
            [(one.field_id, one.name, one.kind) for one in self._partitions], table.format
        )
        self._partition_fields = self._entry_schema["fields"][4]["type"]["fields"][3]["type"]["fields"]
        self._told = {
            "schema": json.dumps(iceberg_schema(schema)),
            "schema-id": str(schema.schema_version),
            "partition-spec": json.dumps(partition_spec(self._partitions)),
            "partition-spec-id": "0",
            "format-version": str(table.format),
        }
        self._vectors = vectors
        self._ranges: dict[range, _Range] = {}
        self._manifests: dict[tuple[int, str, str], tuple[Sequence[Any], Record]] = {}

    def ranges(self, span: range, facts: SnapshotFacts, versions: Sequence[int]) -> Iterator[_Range]:
        """What is made for the files that the commits of a range added; `versions` are those of all files, in order."""
        begin, end = bisect_left(versions, span.start), bisect_left(versions, span.stop)
        files = list(chain.from_iterable(facts.files[one] for one in versions[begin:end]))
        if not files:
            return
        if len(files) > ENTRIES_MAX and len(span) > 1:
            for part in parts(span):
                yield from self.ranges(part, facts, versions)
            return
        known = self._ranges.get(span)
        if known is None or not _same(known.files, files):
            known = self._ranges[span] = self._range(files, span.stop - 1)
        yield known

    def _range(self, files: Sequence[ShownFile], newest: int) -> _Range:
        manifests, delete_files = [], 0
        for page in _pages(sorted(files, key=self._order)):
            manifests.append(self._manifest(DATA, page, [one.entry for one in page], newest))
            if dirty := [one for one in page if one.hidden]:
                manifests.append(self._manifest(POSITION_DELETES, dirty, dirty, newest))
                delete_files += len(dirty)
        totals = Totals(
            len(files),
            sum(one.file.rows for one in files),
            sum(len(one.hidden) for one in files if one.hidden),
            delete_files,
            max(one.file.first_row_id + one.file.rows if one.file.HasField("first_row_id") else 0 for one in files),
        )
        return _Range(files, manifests, totals)

    def _order(self, one: ShownFile) -> tuple[tuple[bytes, ...], str]:
        """By partition: a manifest then has few of them."""
        return tuple(each.value.SerializeToString() for each in one.file.partition.values), one.file.path

    # -- entries

    def _data_entry(self, one: ShownFile, newest: int) -> Record:
        file = one.file
        data_file = self._data_file(one, DATA, one.path, "PARQUET", file.rows, file.bytes) | self._statistics(file)
        if self._table.format >= 3:
            data_file["first_row_id"] = file.first_row_id if file.HasField("first_row_id") else None
        return self._entry(one, newest, data_file)

    def _entry(self, one: ShownFile, newest: int, data_file: Record) -> Record:
        added = one.entry.added_version
        return {
            "status": ADDED if added == newest else EXISTING,
            "snapshot_id": sequence_of(added),
            "sequence_number": one.sequence,
            "file_sequence_number": sequence_of(added),
            "data_file": data_file,
        }

    def _data_file(self, one: ShownFile, content: int, path: str, form: str, rows: int, size: int) -> Record:
        values = {each.column: each.value for each in one.file.partition.values}
        partition = {
            avro_field["name"]: avro_value(plain_value(values[column.name], column.kind), column.kind)
            for column, avro_field in zip(self._partitions, self._partition_fields, strict=True)
        }
        return {
            "content": content,
            "file_path": path,
            "file_format": form,
            "partition": partition,
            "record_count": rows,
            "file_size_in_bytes": size,
        }

    def _statistics(self, file: common_pb2.DataFile) -> Record:
        """Bounds and counts. Floats have no upper bound: NaN may be among them, which some readers put above all."""
        values, nulls, lower, upper = [], [], [], []
        for one in file.stats:
            number = one.column_id
            if number not in self._kinds:
                continue
            kind, is_float = self._kinds[number]
            values.append({"key": number, "value": file.rows})
            if one.HasField("nulls"):
                nulls.append({"key": number, "value": one.nulls})
            least = plain_value(one.min, kind)
            if least is not None and not (is_float and (file.external or least != least)):
                lower.append({"key": number, "value": bound(-0.0 if is_float and least == 0 else least, kind)})
            if not is_float and (most := plain_value(one.max, kind)) is not None:
                upper.append({"key": number, "value": bound(most, kind)})
        return {"value_counts": values, "null_value_counts": nulls, "lower_bounds": lower, "upper_bounds": upper}

    # -- hidden rows

    def _delete_entries(self, dirty: Sequence[ShownFile], newest: int) -> list[Record]:
        """One for each file; vectors that were written for an earlier snapshot are used again."""
        fresh = [one for one in dirty if not self._is_written(one)]
        write = self._write_vectors if self._table.format >= 3 else self._write_positions
        for one, told in write(fresh):
            self._vectors[one.path] = one, told | {"referenced_data_file": one.path}
        return [self._entry(one, newest, self._vectors[one.path][1]) for one in dirty]

    def _is_written(self, one: ShownFile) -> bool:
        known = self._vectors.get(one.path)
        return known is not None and known[0] is one

    def _write_vectors(self, dirty: Sequence[ShownFile]) -> Iterator[tuple[ShownFile, Record]]:
        if not dirty:
            return
        content, places = puffin(dirty)
        path = self._write("deletes", "puffin", content)
        for one, place in zip(dirty, places, strict=True):
            told = self._data_file(one, POSITION_DELETES, path, "PUFFIN", len(one.hidden), len(content))
            yield one, told | {"content_offset": place.offset, "content_size_in_bytes": place.length}

    def _write_positions(self, dirty: Sequence[ShownFile]) -> Iterator[tuple[ShownFile, Record]]:
        for one in dirty:
            content = position_deletes(one)
            path = self._write("deletes", "parquet", content)
            only = [_pair(FILE_PATH_ID, one.path.encode())]
            told = self._data_file(one, POSITION_DELETES, path, "PARQUET", len(one.hidden), len(content))
            yield one, told | {"lower_bounds": only, "upper_bounds": only}

    def _write(self, kind: str, ending: str, content: bytes) -> str:
        """Writes a file and returns its location."""
        made = named(kind, ending, content)
        self._put(made)
        return f"{self._table.location}/{made.name}"

    # -- manifests

    def _manifest(self, content: int, page: Sequence[ShownFile], known_by: Sequence[Any], newest: int) -> Record:
        """The record of a manifest with these files, or of their vectors; made if it isn't yet."""
        key = content, page[0].path, page[-1].path
        known = self._manifests.get(key)
        if known is None or not _same(known[0], known_by) or known[1]["added_snapshot_id"] != sequence_of(newest):
            known = self._manifests[key] = known_by, self._make(content, page, newest)
        return known[1]

    def _make(self, content: int, page: Sequence[ShownFile], newest: int) -> Record:
        word = "data" if content == DATA else "deletes"
        if content == DATA:
            entries = [self._data_entry(one, newest) for one in page]
        else:
            entries = self._delete_entries(page, newest)
        raw = avro_file(self._entry_schema, entries, self._told | {"content": word})
        rows = {
            status: [one["data_file"]["record_count"] for one in entries if one["status"] == status]
            for status in (ADDED, EXISTING)
        }
        found = {
            "manifest_path": self._write(word, "avro", raw),
            "manifest_length": len(raw),
            "partition_spec_id": 0,
            "content": 0 if content == DATA else 1,
            "sequence_number": sequence_of(newest),
            "min_sequence_number": min(one["sequence_number"] for one in entries),
            "added_snapshot_id": sequence_of(newest),
            "added_files_count": len(rows[ADDED]),
            "existing_files_count": len(rows[EXISTING]),
            "deleted_files_count": 0,
            "added_rows_count": sum(rows[ADDED]),
            "existing_rows_count": sum(rows[EXISTING]),
            "deleted_rows_count": 0,
            "partitions": self._summaries(entries),
        }
        if self._table.format >= 3 and content == DATA:
            known = [one["data_file"]["first_row_id"] for one in entries]
            found["first_row_id"] = None if None in known else min(known)
        return found

    def _summaries(self, entries: Sequence[Record]) -> list[Record]:
        """The range of each partition column. Those of floats and decimals say nothing: they prune nothing."""
        found = []
        for column, named in zip(self._partitions, self._partition_fields, strict=True):
            values = [one["data_file"]["partition"][named["name"]] for one in entries]
            known = [one for one in values if one is not None]
            summary: Record = {"contains_null": len(known) < len(values)}
            if known and isinstance(column.kind, Atomic) and column.kind.name not in FLOATS:
                summary["lower_bound"] = bound(min(known), column.kind)
                summary["upper_bound"] = bound(max(known), column.kind)
            found.append(summary)
        return found


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether both are the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def _pages(files: Sequence[ShownFile]) -> Iterator[Sequence[ShownFile]]:
    """The files of each manifest. Where one ends is told by the file, so another file more or less changes only one."""
    if len(files) <= ENTRIES_MAX:
        yield files
        return
    begin = 0
    for at, one in enumerate(files, 1):
        ends = zlib.crc32(one.path.encode()) % (ENTRIES_MAX // 2) == 0
        if ends or at - begin == ENTRIES_MAX or at == len(files):
            yield files[begin:at]
            begin = at


def named(kind: str, ending: str, content: bytes) -> MadeFile:
    """A generated file, named by its content."""
    return MadeFile(f"{METADATA}/{kind}-{hashlib.sha256(content).hexdigest()[:NAME_DIGITS]}.{ending}", content)


def _pair(key: int, value: Any) -> Record:
    return {"key": key, "value": value}
