"""Views as Iceberg's metadata of views: a query of Spark SQL, its columns, and its default namespace.

LakeTX finds the columns of a query by the names that they had, Iceberg's readers by their positions. Both agree if
the query names each column. Otherwise the names are put around it:

    SELECT * FROM orders   ->   SELECT `day`, `amount` FROM (SELECT * FROM orders)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from metaservice.shared.column_types import (
    ATOMIC,
    Array,
    Map,
    Struct,
    Type,
    TypeTextError,
    quoted,
    read_type,
    type_text,
)
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.iceberg.metadata.schemas import iceberg_schema

DIALECT: Final = "spark"
QUERY_COLUMNS: Final = "spark.query-column-names"  # a property of views that Spark with Iceberg's jar makes
COMMENT: Final = "comment"
SCHEMA_ID: Final = 0
NAMES_COLUMNS: Final = re.compile(r"\s*SELECT\b[^*]*\Z", re.IGNORECASE)
SPARK_TYPE: Final = re.compile(  # a quoted name; a comment; a plain name; a word of a type
    r"(`(?:[^`]|``)+`)|\s+COMMENT\s+'(?:[^'\\]|\\.)*'|(\w+)(?=\s*:)|(\w+)", re.IGNORECASE
)


def view_metadata(view: catalog_pb2.View, location: str, no_namespace: str) -> dict[str, Any]:
    """Return the metadata with the view's newest version, the only one.

    `no_namespace` shows the tables that are in none.
    """
    version = shown_version(view, no_namespace)
    return {
        "view-uuid": view_uuid(view),
        "format-version": 1,
        "location": location,
        "current-version-id": version["version-id"],
        "versions": [version],
        "version-log": [{name: version[name] for name in ("version-id", "timestamp-ms")}],
        "schemas": [view_schema(view)],
        "properties": _properties(view),
    }


def shown_version(view: catalog_pb2.View, no_namespace: str) -> dict[str, Any]:
    """Return the version of a view: its query and its default namespace."""
    version = {
        "version-id": _version_id(view),
        "timestamp-ms": (view.replace_time_us or view.create_time_us) // 1000,
        "schema-id": SCHEMA_ID,
        "summary": {"engine-name": DIALECT},
        "representations": [{"type": "sql", "sql": shown_query(view), "dialect": DIALECT}],
        "default-namespace": list(view.namespace) or ([] if view.catalog else [no_namespace]),
    }
    return version | ({"default-catalog": view.catalog} if view.catalog else {})


def view_schema(view: catalog_pb2.View) -> dict[str, Any]:
    """Return the schema of a view. Refuse a column whose type Iceberg lacks."""
    columns, number = [], 0
    for column in view.columns:
        kind = _type_of(view.name, column)
        paths = [*_paths(kind, "")]
        nested = [catalog_pb2.NestedField(path=path, field_id=number + 2 + at) for at, path in enumerate(paths)]
        columns.append(
            catalog_pb2.Column(
                name=column.name,
                type=type_text(kind),
                nullable=column.nullable,
                comment=column.comment,
                column_id=number + 1,
                nested=nested,
            )
        )
        number += 1 + len(nested)
    return iceberg_schema(catalog_pb2.SchemaVersion(schema_version=SCHEMA_ID, columns=columns))


def shown_query(view: catalog_pb2.View) -> str:
    """Return the query with named columns: readers resolve it by the positions of its columns."""
    names: Sequence[str] = view.query_columns
    are_unique = len({name.lower() for name in names}) == len(view.columns)
    if NAMES_COLUMNS.match(view.text) or not are_unique:
        return view.text
    listed = ", ".join(f"`{name.replace('`', '``')}`" for name in names)
    return "\n".join(("SELECT " + listed, "FROM (", view.text, ")"))


def view_uuid(view: catalog_pb2.View) -> str:
    """Return the view's id, which survives replacements and differs from an earlier view of the same name."""
    digest = hashlib.sha256(f"{view.create_time_us} {view.name}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _version_id(view: catalog_pb2.View) -> int:
    """Return the id of a version, which ascends with each replacement. Iceberg's have 31 bits."""
    return 1 + -(-max(0, view.replace_time_us - view.create_time_us) // 1_000_000)


def _properties(view: catalog_pb2.View) -> dict[str, str]:
    properties = dict(view.properties) | ({COMMENT: view.comment} if view.comment else {})
    names = ",".join(view.query_columns)
    return properties | ({QUERY_COLUMNS: names} if names and names.count(",") == len(view.query_columns) - 1 else {})


def _type_of(view: str, column: catalog_pb2.ViewColumn) -> Type:
    """Return the type of a column in Spark's notation."""

    def plain(matched: re.Match[str]) -> str:
        quoted_name, name, word = matched.groups()
        return quoted_name or name or (word or "").lower()

    try:
        return read_type(SPARK_TYPE.sub(plain, column.type))
    except TypeTextError as error:
        raise InputError(
            "ICEBERG_VIEW",
            f"the view {view} has the column {column.name} of type {column.type}, which Iceberg doesn't have: cast it "
            f"to one of {', '.join(sorted(ATOMIC))}, decimal, or an array, map or struct of these",
        ) from error


def _paths(kind: Type, path: str) -> Iterator[str]:
    """Yield the paths of the fields inside a type."""
    match kind:
        case Struct(fields):
            parts = [(path + quoted(field.name), field.kind) for field in fields]
        case Array(element):
            parts = [(f"{path}element", element)]
        case Map(key, value):
            parts = [(f"{path}key", key), (f"{path}value", value)]
        case _:
            parts = []
    for below, part in parts:
        yield below
        yield from _paths(part, f"{below}.")
