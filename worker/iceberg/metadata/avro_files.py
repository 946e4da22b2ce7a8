"""Manifests and manifest lists as Avro files, with the field ids of Iceberg's specification."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import fastavro

from metaservice.shared.column_types import Type
from worker.iceberg.metadata.values import avro_type

Record = dict[str, Any]
SYNC: Final = b"laketx-iceberg.."  # between blocks; fixed, so that the same facts give the same bytes
_ODD: Final = re.compile(r"[^A-Za-z0-9_]")


def avro_file(schema: Record, records: Sequence[Record], facts: Mapping[str, str]) -> bytes:
    """Return an Avro file of records."""
    sink = io.BytesIO()
    fastavro.writer(
        sink,
        fastavro.parse_schema(schema),
        records,
        codec="deflate",
        metadata=dict(facts),
        sync_marker=SYNC,
    )
    return sink.getvalue()


def avro_name(name: str) -> str:
    """Return a name that Avro allows, changed as Iceberg's own writers do."""
    first = f"_{name}" if name[:1].isdigit() and name[:1].isascii() else name
    return _ODD.sub(lambda odd: f"_x{ord(odd[0]):X}", first)


def field(number: int, name: str, kind: Any, *, required: bool = False) -> Record:
    if required:
        return {"name": name, "type": kind, "field-id": number}
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def record(name: str, fields: Sequence[Record]) -> Record:
    return {"type": "record", "name": name, "fields": list(fields)}


def by_column(key_id: int, value_id: int, value: str) -> Record:
    """Return the type of a map by column id: in Avro a list of pairs."""
    pair = [field(key_id, "key", "int", required=True), field(value_id, "value", value, required=True)]
    return {"type": "array", "logicalType": "map", "items": record(f"k{key_id}_v{value_id}", pair)}


def listed(element_id: int, kind: Any) -> Record:
    return {"type": "array", "items": kind, "element-id": element_id}


def entry_schema(partition: Sequence[tuple[int, str, Type]], form: int) -> Record:
    """Return the schema of manifest entries. The partition's fields are given by id, name and type."""
    values = []
    for number, name, kind in partition:
        safe = avro_name(name)
        partition_field = field(number, safe, avro_type(kind, number))
        values.append(partition_field if safe == name else partition_field | {"iceberg-field-name": name})
    data_file = [
        field(134, "content", "int", required=True),
        field(100, "file_path", "string", required=True),
        field(101, "file_format", "string", required=True),
        field(102, "partition", record("r102", values), required=True),
        field(103, "record_count", "long", required=True),
        field(104, "file_size_in_bytes", "long", required=True),
        field(109, "value_counts", by_column(119, 120, "long")),
        field(110, "null_value_counts", by_column(121, 122, "long")),
        field(125, "lower_bounds", by_column(126, 127, "bytes")),
        field(128, "upper_bounds", by_column(129, 130, "bytes")),
        field(140, "sort_order_id", "int"),
        field(143, "referenced_data_file", "string"),
    ]
    if form >= 3:
        data_file += [
            field(142, "first_row_id", "long"),
            field(144, "content_offset", "long"),
            field(145, "content_size_in_bytes", "long"),
        ]
    return record(
        "manifest_entry",
        [
            field(0, "status", "int", required=True),
            field(1, "snapshot_id", "long"),
            field(3, "sequence_number", "long"),
            field(4, "file_sequence_number", "long"),
            field(2, "data_file", record("r2", data_file), required=True),
        ],
    )


def list_schema(form: int) -> Record:
    """Return the schema of a manifest list."""
    summary = [
        field(509, "contains_null", "boolean", required=True),
        field(518, "contains_nan", "boolean"),
        field(510, "lower_bound", "bytes"),
        field(511, "upper_bound", "bytes"),
    ]
    fields = [
        field(500, "manifest_path", "string", required=True),
        field(501, "manifest_length", "long", required=True),
        field(502, "partition_spec_id", "int", required=True),
        field(517, "content", "int", required=True),
        field(515, "sequence_number", "long", required=True),
        field(516, "min_sequence_number", "long", required=True),
        field(503, "added_snapshot_id", "long", required=True),
        field(504, "added_files_count", "int", required=True),
        field(505, "existing_files_count", "int", required=True),
        field(506, "deleted_files_count", "int", required=True),
        field(512, "added_rows_count", "long", required=True),
        field(513, "existing_rows_count", "long", required=True),
        field(514, "deleted_rows_count", "long", required=True),
        field(507, "partitions", listed(508, record("r508", summary))),
    ]
    return record("manifest_file", fields + ([field(520, "first_row_id", "long")] if form >= 3 else []))
