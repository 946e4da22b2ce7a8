"""Imports Parquet files: they are registered where they are, never rewritten and never purged."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from metaservice.client import MetaClient
from metaservice.shared.column_types import Array, Atomic, Decimal, Field, Map, Struct, Type, quoted, type_text
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.commit.scopes import partitions_named
from worker.commit.stages import Stage, Staged
from worker.commit.writes import Write
from worker.connection.table_view import TableView
from worker.files.arrow_types import ARROW
from worker.files.external_paths import check_outside
from worker.files.footers import check_required, data_file, list_parquet, read_footers, top_leaves
from worker.files.storage import storage

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
WORDS: Final = {kind: word for word, kind in ARROW.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.string_view(): "string",
    pa.binary_view(): "binary",
}


@dataclass(frozen=True)
class FoundFile:
    """A file: its location, its footer, and the values in its folder names (`day=2026-11-01`)."""

    path: str
    size: int
    footer: Any
    folders: Mapping[str, str | None]
    columns: Mapping[str, str]


def plan_import(table: TableView, files: Sequence[FoundFile]) -> Write:
    def stage(stage: Stage) -> Staged:
        partitions = partitions_named(table, [file.folders for file in files])
        entries = []
        for file, place in zip(files, partitions, strict=True):
            if file.footer.num_rows:
                entries.append(data_file(stage.meta, file.path, file.footer, file.size, external=True))
                entries[-1].partition.CopyFrom(place)
        check_required(stage.meta, entries)
        return Staged(files=entries)

    return Write(table, common_pb2.OPERATION_INSERT, stage)


# -- finding files ----------------------------------------------------------------------------------------------------


def find_files(client: MetaClient, path: str) -> list[FoundFile]:
    """List the Parquet files at a path. Refuse the lake's own files before any footer is read."""
    try:
        files, root = storage(path)
    except pa.ArrowInvalid as error:
        raise InputError("PATH_INVALID", f"{path}: {error}") from error
    info = files.get_file_info(root)
    if info.type == fs.FileType.NotFound:
        raise InputError("PATH_UNKNOWN", f"{path} does not exist")
    infos = [info] if info.type == fs.FileType.File else list_parquet(files, root)
    if not infos:
        raise InputError("FILES_MISSING", f"there are no Parquet files at {path}")
    insides = [file_info.path.removeprefix(root).strip("/") for file_info in infos]
    if path.startswith("/"):
        wholes = [os.path.realpath(file_info.path) for file_info in infos]
    else:
        wholes = [f"{path}/{inside}".rstrip("/") for inside in insides]
    check_outside(client, wholes)
    try:
        footers = read_footers(files, [file_info.path for file_info in infos])
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError("FILE_UNREADABLE", f"{path}: {error}") from error
    found_files = []
    for file_info, footer, inside, whole in zip(infos, footers, insides, wholes, strict=True):
        found_files.append(FoundFile(whole, file_info.size, footer, folder_values(inside), file_columns(footer, whole)))
    if len({tuple(file.folders) for file in found_files}) > 1:
        raise InputError("PARTITION_INVALID", f"the folders below {path} don't name the same columns everywhere")
    return found_files


def folder_values(inside: str) -> dict[str, str | None]:
    """The values in the folder names of `day=2026-11-01/region=eu/x.parquet`."""
    values: dict[str, str | None] = {}
    for part in inside.split("/")[:-1]:
        name, equals, value = part.partition("=")
        if equals:
            values[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return values


def file_columns(footer: Any, path: str) -> dict[str, str]:
    leaves = top_leaves(footer)
    columns = {}
    for field in footer.schema.to_arrow_schema():
        leaf = leaves.get(field.name)
        is_old_time = leaf is not None and footer.schema.column(leaf).physical_type == "INT96"
        columns[field.name] = "timestamp" if is_old_time else arrow_word(field.type, path)
    return columns


def arrow_word(kind: Any, path: str) -> str:
    """Return the wire's name of an Arrow type. Refuse types that Spark can't read."""
    return type_text(_read_arrow(kind, path))


def _read_arrow(kind: Any, path: str) -> Type:
    if kind in WORDS:
        return Atomic(WORDS[kind])
    if pa.types.is_dictionary(kind):
        return _read_arrow(kind.value_type, path)
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us"):
        return Atomic("timestamp_ntz" if kind.tz is None else "timestamp")
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return Decimal(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return Array(_read_arrow(kind.value_type, path))
    if pa.types.is_map(kind):
        return Map(_read_arrow(kind.key_type, path), _read_arrow(kind.item_type, path))
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return Struct(tuple(Field(field.name, _read_arrow(field.type, path)) for field in fields))
    raise InputError("TYPE_NOT_SUPPORTED", f"{kind} in {path} has no counterpart in a table: write another type")


# -- the table ---------------------------------------------------------------------------------------------------------


def schema_of_files(files: Sequence[FoundFile]) -> str:
    """The columns of the first file and of the folders, as `create_table` takes them."""
    first = files[0]
    folders = [(column, folder_type([file.folders[column] for file in files])) for column in first.folders]
    return ", ".join(f"{quoted(column)} {word}" for column, word in [*first.columns.items(), *folders])


def folder_type(values: Sequence[str | None]) -> str:
    """bigint, date or string: the first type that fits all values."""
    given = [value for value in values if value is not None]
    if given and all(map(_is_integer, given)):
        return "bigint"
    return "date" if given and all(map(_is_date, given)) else "string"


def _is_integer(value: str) -> bool:
    """Whether the text is an integer in its usual form: "007" is a text."""
    digits = value.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 19 and str(int(value)) == value


def _is_date(value: str) -> bool:
    try:
        return date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def check_files(meta: catalog_pb2.Table, files: Sequence[FoundFile]) -> None:
    if meta.primary_key:
        raise InputError(
            "TABLE_KEYED", f"{meta.name} has a primary key: its files are sorted and bucketed, so insert the rows"
        )
    for file in files:
        check_columns(meta, file)


def check_columns(meta: catalog_pb2.Table, file: FoundFile) -> None:
    types = {column.name: column.type for column in meta.columns}
    if set(file.folders) != set(meta.partition_columns):
        raise InputError(
            "PARTITION_INVALID",
            f"the folders of {file.path} are {dict(file.folders)}, "
            f"the table is partitioned by {meta.partition_columns}",
        )
    for name, word in file.columns.items():
        if name not in types:
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {name}, which {file.path} has")
        if name in file.folders:
            raise InputError("COLUMN_TWICE", f"{file.path} has {name} in the file and in its folders")
        if types[name].replace(" not null", "") != word:
            raise InputError("SCHEMA_MISMATCH", f"{name} is {types[name]} in {meta.name}, and {word} in {file.path}")
    for column in meta.columns:
        if not column.nullable and column.name not in file.columns and column.name not in file.folders:
            raise InputError("COLUMN_MISSING", f"{file.path} lacks {column.name}, which {meta.name} requires")
