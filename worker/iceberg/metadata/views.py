"""Views as Iceberg's metadata of views: a query of Spark SQL, its columns, and where its names are found.

LakeTX finds the columns of a query by the names that they had, Iceberg's readers by their positions. Both agree where
the query names each column. Elsewhere the names are put around it:

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
    """The metadata with the view's one version, which is the newest.

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
    """The query, and where its names are found."""
    found = {
        "version-id": _version_id(view),
        "timestamp-ms": (view.replace_time_us or view.create_time_us) // 1000,
        "schema-id": SCHEMA_ID,
        "summary": {"engine-name": DIALECT},
        "representations": [{"type": "sql", "sql": shown_query(view), "dialect": DIALECT}],
        "default-namespace": list(view.namespace) or ([] if view.catalog else [no_namespace]),
    }
    return found | ({"default-catalog": view.catalog} if view.catalog else {})


def view_schema(view: catalog_pb2.View) -> dict[str, Any]:
    """The columns of a view. One whose type Iceberg lacks is refused."""
    columns, number = [], 0
    for one in view.columns:
        kind = _type_of(view.name, one)
        paths = [*_paths(kind, "")]
        nested = [catalog_pb2.NestedField(path=path, field_id=number + 2 + at) for at, path in enumerate(paths)]
        columns.append(
            catalog_pb2.Column(
                name=one.name,
                type=type_text(kind),
                nullable=one.nullable,
                comment=one.comment,
                column_id=number + 1,
                nested=nested,
            )
        )
        number += 1 + len(nested)
    return iceberg_schema(catalog_pb2.SchemaVersion(schema_version=SCHEMA_ID, columns=columns))


def shown_query(view: catalog_pb2.View) -> str:
    """The query, which readers resolve by the positions of its columns."""
    names: Sequence[str] = view.query_columns
    is_told_by_name = len({one.lower() for one in names}) == len(view.columns)
    if NAMES_COLUMNS.match(view.text) or not is_told_by_name:
        return view.text
    listed = ", ".join(f"`{one.replace('`', '``')}`" for one in names)
    return "\n".join(("SELECT " + listed, "FROM (", view.text, ")"))


def view_uuid(view: catalog_pb2.View) -> str:
    """An id that outlives replacements, and differs from that of an earlier view of the name."""
    digest = hashlib.sha256(f"{view.create_time_us} {view.name}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _version_id(view: catalog_pb2.View) -> int:
    """Ascending with each replacement; Iceberg's ids of versions have 31 bits."""
    return 1 + -(-max(0, view.replace_time_us - view.create_time_us) // 1_000_000)


def _properties(view: catalog_pb2.View) -> dict[str, str]:
    found = dict(view.properties) | ({COMMENT: view.comment} if view.comment else {})
    names = ",".join(view.query_columns)
    return found | ({QUERY_COLUMNS: names} if names and names.count(",") == len(view.query_columns) - 1 else {})


def _type_of(view: str, column: catalog_pb2.ViewColumn) -> Type:
    """The type that Spark's words mean."""

    def plain(found: re.Match[str]) -> str:
        quoted_name, name, word = found.groups()
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
    """The fields inside a type, by path."""
    match kind:
        case Struct(fields):
            parts = [(path + quoted(one.name), one.kind) for one in fields]
        case Array(element):
            parts = [(f"{path}element", element)]
        case Map(key, value):
            parts = [(f"{path}key", key), (f"{path}value", value)]
        case _:
            parts = []
    for below, part in parts:
        yield below
        yield from _paths(part, f"{below}.")
