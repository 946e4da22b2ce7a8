"""Iceberg's manifests, and lists of them, that others wrote: the fields that commits and imports both read."""

from __future__ import annotations

from typing import Final

from worker.formats.avro_values import Field, Fields, Kind

EXISTING, ADDED, DELETED = 0, 1, 2  # the status of an entry
DATA, POSITIONS, EQUALITY = 0, 1, 2  # the content of a file; of a manifest 0 is data, and 1 all that hides rows
PARQUET: Final = "PARQUET"
PUFFIN: Final = "PUFFIN"
MANIFEST: Final[Fields] = {  # of a list
    "manifest_path": Field(Kind.TEXT, is_required=True),
    "partition_spec_id": Field(Kind.WHOLE),
}
DATA_FILE: Final[Fields] = {  # of an entry
    "content": Field(Kind.WHOLE),
    "file_path": Field(Kind.TEXT, is_required=True),
    "file_format": Field(Kind.TEXT, is_required=True),
    "partition": Field(Kind.VALUES),
    "record_count": Field(Kind.WHOLE, is_required=True),
    "file_size_in_bytes": Field(Kind.WHOLE, is_required=True),
    "key_metadata": Field(Kind.BYTES),
    "referenced_data_file": Field(Kind.TEXT),
    "content_offset": Field(Kind.WHOLE),
    "content_size_in_bytes": Field(Kind.WHOLE),
}
