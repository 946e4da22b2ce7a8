"""What a table's columns and files are called: reserved names, paths of fields, the statement that creates a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from metaservice.client import new_properties
from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError

OP: Final = "_op"  # in delta files: UPSERT or TOMBSTONE
UPSERT: Final = int(common_pb2.ROW_OP_UPSERT)
TOMBSTONE: Final = int(common_pb2.ROW_OP_TOMBSTONE)
ROW_ID: Final = "_row_id"  # in files of append tables whose rows keep their ids
SET: Final = "_laketx_set"  # in delta files: the columns that an image sets, as bits by their ids; NULL: all
FILE: Final = "_file"  # in reads with origin
FILE_IDS: Final = {  # their Parquet field ids; the first is Iceberg's for it
    ROW_ID: 2_147_483_540,
    OP: 2_147_483_400,
    SET: 2_147_483_399,
}
PART: Final = "_part"  # folders of staged files: a partition and bucket each
ROW_INDEX: Final = "_tmp_metadata_row_index"  # Spark fills a column of this name with each row's place in its file
CHANGE_TYPE: Final = "_change_type"  # in increments, with the next three
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIME: Final = "_commit_time"
SET_COLUMNS: Final = "_set_columns"  # of tables whose images may set single columns
RESERVED: Final = frozenset({OP, ROW_ID, FILE, PART, ROW_INDEX, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIME, SET_COLUMNS})
RESERVED_PREFIX: Final = "_laketx_"  # of columns that reads and increments add and drop


def check_name(name: str) -> None:
    """Refuses a new column whose name is reserved."""
    if name.lower() in RESERVED or name.lower().startswith(RESERVED_PREFIX):
        raise InputError("COLUMN_RESERVED", f"the name {name} is reserved for the worker, its files and its increments")


def column_line(column: catalog_pb2.Column) -> str:
    """A column in SQL."""
    needed = "" if column.nullable else " NOT NULL"
    default = f" DEFAULT {column.default_sql}" if column.default_sql else ""
    return f"{quoted_if_odd(column.name)} {column.type}{needed}{default}{_comment(column.comment)}"


def create_statement(meta: catalog_pb2.Table) -> str:
    """Return the CREATE TABLE statement of a table."""
    fields = [f"  {column_line(column)}" for column in meta.columns]
    if meta.primary_key:
        fields.append(f"  PRIMARY KEY ({_listed(meta.primary_key)})")
    parts = [f"CREATE TABLE {meta.name} (\n" + ",\n".join(fields) + "\n)"]
    if meta.partition_columns:
        parts.append(f"PARTITIONED BY ({_listed(meta.partition_columns)})")
    if meta.comment:
        parts.append(_comment(meta.comment).strip())
    properties = new_properties(meta)
    if properties:
        listed = ", ".join(f"{_text(name)} = {_text(properties[name])}" for name in sorted(properties))
        parts.append(f"TBLPROPERTIES ({listed})")
    return "\n".join(parts)


def _comment(comment: str) -> str:
    return f" COMMENT {_text(comment)}" if comment else ""


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted_if_odd, names))


def path_below(path: str, name: str) -> str:
    name = quoted_if_odd(name)
    return f"{path}.{name}" if path else name


def path_of(meta: catalog_pb2.Table, name: str) -> str:
    """The path that a user's name means: a column's name counts first, dots included."""
    for column in meta.columns:
        if column.name.lower() == name.lower():
            return quoted_if_odd(column.name)
    return name


def exact_names(meta: catalog_pb2.Table) -> frozenset[str]:
    """The columns whose values must not lose anything in a cast: the key's, or all."""
    if meta.properties.get("write.strict_casts") == "true":
        return frozenset(column.name for column in meta.columns)
    return frozenset(meta.primary_key)


def quoted(name: str) -> str:
    """A column's name as a Spark expression."""
    return f"`{name.replace('`', '``')}`"
