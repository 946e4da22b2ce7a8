"""A table of another format at one of its snapshots, as facts: columns, files, hidden rows.

Columns are fields of `metaservice.shared.column_types`. Their ids are those of the source, 0 where it tells columns
by name.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap64

from metaservice.shared.column_types import Field
from protos.laketx.v1 import common_pb2

Columns = tuple[Field, ...]
ColumnKey = int | str  # the source's id of a column, or its name where it has none
NOTHING: Final = BitMap64()
LOCAL: Final = "file:"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of a column in a file; None is unknown."""

    low: common_pb2.Value | None = None
    high: common_pb2.Value | None = None
    nulls: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Parquet file, at an absolute path or URI, and the positions of its hidden rows."""

    path: str
    rows: int
    bytes: int
    partition: Mapping[str, common_pb2.Value] = field(default_factory=dict)
    bounds: Mapping[ColumnKey, Bounds] = field(default_factory=dict)
    hidden: BitMap64 = NOTHING


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """The columns of the source under one of its schemas."""

    schema_id: int
    columns: Columns


# Of files, and ids of schemas from old to new: the newest of these by whose names each file can be read.
SchemasOf = Callable[[Sequence[SourceFile], Sequence[int]], Sequence[int]]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table at one snapshot. `table_id` and `snapshot` are the source's words for the table and its state.

    `schemas` ends with the current one. Earlier ones are there only if files may have names of their own; then
    `schemas_of` tells by which a file is read. `ids_by_name` are those that columns got later, by the names that they
    had then. `partition_columns` are those for which all files have a value.
    """

    format: str
    table_id: str
    location: str
    snapshot: str
    schemas: Sequence[SourceSchema]
    partition_columns: Sequence[str]
    files: Sequence[SourceFile]
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    schemas_of: SchemasOf | None = None
    ids_by_name: Mapping[str, int] = field(default_factory=dict)

    @property
    def columns(self) -> Columns:
        return self.schemas[-1].columns


def key_of(column: Field) -> ColumnKey:
    return column.field_id or column.name


def plain_file(path: str) -> str:
    """A file's path without links, or its URI. A `file:` URI stands for the path that it spells: nothing is decoded."""
    if path.startswith(LOCAL):
        rest = path.removeprefix(LOCAL)
        path = "/" + (rest.removeprefix("//").partition("/")[2] if rest.startswith("//") else rest.lstrip("/"))
    scheme, mark, rest = path.partition("://")
    if not mark:
        return os.path.realpath(path)
    place, _, inside = rest.partition("/")
    return f"{scheme.lower()}://{place}{posixpath.normpath('/' + inside.lstrip('/'))}"
