"""The manifests and the manifest list of a snapshot.

A file's sequence number is its data version's, so a delete applies to what it applies to here. The hidden rows of a
data file are the union of all sets that hide some: one vector a file, as of the snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg.metadata.avro_files import Record, avro_file, entry_schema, list_schema
from iceberg.metadata.deletes import FILE_PATH_ID, position_deletes, puffin
from iceberg.metadata.facts import METADATA, MadeFile, ShownFile, SnapshotFacts, TableFacts, sequence_of
from iceberg.metadata.schemas import iceberg_schema
from iceberg.metadata.values import FLOATS, avro_value, bound, plain_value
from metaservice.column_types import Atomic, Decimal, Type, read_type
from protos.laketx.v1 import catalog_pb2, common_pb2

ENTRIES_MAX: Final = 10_000  # of one manifest
FIRST_PARTITION_ID: Final = 1000
EXISTING, ADDED = 0, 1
DATA, POSITION_DELETES = 0, 1


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column that the table is partitioned by, as it is."""

    field_id: int
    column_id: int
    name: str
    kind: Type


@dataclass(frozen=True, slots=True)
class MadeSnapshot:
    """The generated files of a snapshot; the last one is its manifest list."""

    files: Sequence[MadeFile]
    delete_files: int

    @property
    def manifest_list(self) -> str:
        return self.files[-1].name


def partition_columns(meta: catalog_pb2.Table, columns: Iterable[catalog_pb2.Column]) -> list[PartitionColumn]:
    named = {column.name: column for column in columns}
    return [
        PartitionColumn(FIRST_PARTITION_ID + at, named[name].column_id, name, read_type(named[name].type))
        for at, name in enumerate(meta.partition_columns)
    ]


def partition_spec(partitions: Iterable[PartitionColumn]) -> list[Record]:
    return [
        {"source-id": one.column_id, "field-id": one.field_id, "name": one.name, "transform": "identity"}
        for one in partitions
    ]


def make_snapshot(table: TableFacts, snapshot: SnapshotFacts) -> MadeSnapshot:
    """All files of the snapshot but the data files."""
    return _Maker(table, snapshot).made()


class _Maker:
    def __init__(self, table: TableFacts, snapshot: SnapshotFacts) -> None:
        self._table = table
        self._snapshot = snapshot
        self._partitions = partition_columns(table.meta, snapshot.schema.columns)
        self._kinds = {one.column_id: read_type(one.type) for one in snapshot.schema.columns}
        self._stem = f"{METADATA}/{snapshot.version}-v{table.format}"
        self._files: list[MadeFile] = []
        self._manifests: list[Record] = []

    def made(self) -> MadeSnapshot:
        dirty = [one for one in self._snapshot.files if one.hidden]
        self._add_manifests("data", [self._data_entry(one) for one in self._snapshot.files])
        before = len(self._files)
        entries = self._vectors(dirty) if self._table.format >= 3 else self._position_deletes(dirty)
        delete_files = len(self._files) - before
        self._add_manifests("deletes", entries)
        self._add_list()
        return MadeSnapshot(self._files, delete_files)

    def _add(self, ending: str, content: bytes) -> str:
        """Adds a file and returns its location."""
        name = f"{self._stem}-{ending}"
        self._files.append(MadeFile(name, content))
        return f"{self._table.location}/{name}"

    # -- entries

    def _data_entry(self, one: ShownFile) -> Record:
        file = one.file
        data_file = self._data_file(one, DATA, one.path, "PARQUET", file.rows, file.bytes) | self._statistics(file)
        if self._table.format >= 3:
            data_file["first_row_id"] = file.first_row_id
        added = one.entry.added_version
        return {
            "status": ADDED if added == self._snapshot.version else EXISTING,
            "snapshot_id": sequence_of(added),
            "sequence_number": one.sequence,
            "file_sequence_number": sequence_of(added),
            "data_file": data_file,
        }

    def _data_file(self, one: ShownFile, content: int, path: str, form: str, rows: int, size: int) -> Record:
        values = {each.column: each.value for each in one.file.partition.values}
        partition = {
            avro_field["name"]: avro_value(plain_value(values[column.name], column.kind), column.kind)
            for column, avro_field in zip(self._partitions, self._partition_fields(), strict=True)
        }
        return {
            "content": content,
            "file_path": path,
            "file_format": form,
            "partition": partition,
            "record_count": rows,
            "file_size_in_bytes": size,
        }

    def _partition_fields(self) -> list[Record]:
        found: list[Record] = self._entry_schema()["fields"][4]["type"]["fields"][3]["type"]["fields"]
        return found

    def _entry_schema(self) -> Record:
        return entry_schema([(one.field_id, one.name, one.kind) for one in self._partitions], self._table.format)

    def _statistics(self, file: common_pb2.DataFile) -> Record:
        """Bounds and counts. Floats have no upper bound: NaN may be among them, which some readers put above all."""
        values, nulls, lower, upper = [], [], [], []
        for one in file.stats:
            kind = self._kinds.get(one.column_id)
            if not isinstance(kind, Atomic | Decimal):
                continue
            is_float = isinstance(kind, Atomic) and kind.name in FLOATS
            values.append(_pair(one.column_id, file.rows))
            if one.HasField("nulls"):
                nulls.append(_pair(one.column_id, one.nulls))
            least, most = plain_value(one.min, kind), plain_value(one.max, kind)
            if least is not None and not (is_float and (file.external or least != least)):
                lower.append(_pair(one.column_id, bound(-0.0 if is_float and least == 0 else least, kind)))
            if most is not None and not is_float:
                upper.append(_pair(one.column_id, bound(most, kind)))
        return {"value_counts": values, "null_value_counts": nulls, "lower_bounds": lower, "upper_bounds": upper}

    def _delete_entry(self, one: ShownFile, data_file: Record) -> Record:
        number = self._snapshot.snapshot_id
        return {
            "status": ADDED,
            "snapshot_id": number,
            "sequence_number": number,
            "file_sequence_number": number,
            "data_file": data_file | {"referenced_data_file": one.path},
        }

    def _vectors(self, dirty: Sequence[ShownFile]) -> list[Record]:
        if not dirty:
            return []
        content, places = puffin(dirty)
        path = self._add("deletes.puffin", content)
        return [
            self._delete_entry(
                one,
                self._data_file(one, POSITION_DELETES, path, "PUFFIN", len(one.hidden), len(content))
                | {"content_offset": place.offset, "content_size_in_bytes": place.length},
            )
            for one, place in zip(dirty, places, strict=True)
        ]

    def _position_deletes(self, dirty: Sequence[ShownFile]) -> list[Record]:
        found = []
        for at, one in enumerate(dirty):
            content = position_deletes(one)
            path = self._add(f"deletes-{at}.parquet", content)
            only = [_pair(FILE_PATH_ID, one.path.encode())]
            data_file = self._data_file(one, POSITION_DELETES, path, "PARQUET", len(one.hidden), len(content))
            found.append(self._delete_entry(one, data_file | {"lower_bounds": only, "upper_bounds": only}))
        return found

    # -- manifests

    def _add_manifests(self, content: str, entries: Sequence[Record]) -> None:
        facts = {
            "schema": json.dumps(iceberg_schema(self._snapshot.schema)),
            "schema-id": str(self._snapshot.schema.schema_version),
            "partition-spec": json.dumps(partition_spec(self._partitions)),
            "partition-spec-id": "0",
            "format-version": str(self._table.format),
            "content": content,
        }
        for at in range(0, len(entries), ENTRIES_MAX):
            page = entries[at : at + ENTRIES_MAX]
            raw = avro_file(self._entry_schema(), page, facts)
            path = self._add(f"{content}-{at // ENTRIES_MAX}.avro", raw)
            self._manifests.append(self._manifest(path, len(raw), content, page))

    def _manifest(self, path: str, size: int, content: str, entries: Sequence[Record]) -> Record:
        rows = {
            status: [one["data_file"]["record_count"] for one in entries if one["status"] == status]
            for status in (ADDED, EXISTING)
        }
        found = {
            "manifest_path": path,
            "manifest_length": size,
            "partition_spec_id": 0,
            "content": 0 if content == "data" else 1,
            "sequence_number": self._snapshot.snapshot_id,
            "min_sequence_number": min(one["sequence_number"] for one in entries),
            "added_snapshot_id": self._snapshot.snapshot_id,
            "added_files_count": len(rows[ADDED]),
            "existing_files_count": len(rows[EXISTING]),
            "deleted_files_count": 0,
            "added_rows_count": sum(rows[ADDED]),
            "existing_rows_count": sum(rows[EXISTING]),
            "deleted_rows_count": 0,
            "partitions": self._summaries(entries),
        }
        if self._table.format >= 3 and content == "data":
            found["first_row_id"] = min(one["data_file"]["first_row_id"] for one in entries)
        return found

    def _summaries(self, entries: Sequence[Record]) -> list[Record]:
        """The range of each partition column. Those of floats and decimals say nothing: they prune nothing."""
        found = []
        for column, named in zip(self._partitions, self._partition_fields(), strict=True):
            values = [one["data_file"]["partition"][named["name"]] for one in entries]
            known = [one for one in values if one is not None]
            summary: Record = {"contains_null": len(known) < len(values)}
            if known and isinstance(column.kind, Atomic) and column.kind.name not in FLOATS:
                summary["lower_bound"] = bound(min(known), column.kind)
                summary["upper_bound"] = bound(max(known), column.kind)
            found.append(summary)
        return found

    def _add_list(self) -> None:
        facts = {
            "snapshot-id": str(self._snapshot.snapshot_id),
            "parent-snapshot-id": "null",
            "sequence-number": str(self._snapshot.snapshot_id),
            "format-version": str(self._table.format),
        }
        if self._table.format >= 3:
            facts["first-row-id"] = "0"
        self._add("snapshot.avro", avro_file(list_schema(self._table.format), self._manifests, facts))


def _pair(key: int, value: Any) -> Record:
    return {"key": key, "value": value}
