"""A new view: its query is checked against its sources, and its columns are those of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.version_rows import columns_schema
from worker.base.errors import InputError
from worker.connection.lake_connection import Connection
from worker.views.classes import Classified, classified
from worker.views.definition import ViewSource, properties_of
from worker.views.delta import NONE, whole_text
from worker.views.engine import run_with, types_in
from worker.views.operators import Work
from worker.views.query import analyse, parse


@dataclass(frozen=True, slots=True)
class NewView:
    """What the table of a new view is made of."""

    schema: pa.Schema
    properties: Mapping[str, str]
    operators: tuple[Classified, ...]


def planned_view(lake: Connection, text: str, *, strict: bool) -> NewView:
    """Return the columns and the definition of a view. With `strict`, every refresh must be incremental.

    Raises InputError for a query that no view can have, NotFoundError for an unknown table.
    """
    statement = parse(text)
    metas = {name: lake.client.get_table(name) for name in statement.tables}
    schemas = {name: _lower(columns_schema(meta), meta) for name, meta in metas.items()}
    query = analyse(statement, {name: types_in(schema) for name, schema in schemas.items()})
    operators = tuple(classified(query.operator))
    if strict:
        for step in operators:
            if step.work is Work.FULL:
                raise InputError("VIEW_NOT_INCREMENTAL", f"every refresh would be full: {step.operator}: {step.reason}")
    empty = {f"{name}@{NONE}": schema.empty_table() for name, schema in schemas.items()}
    schema = run_with(empty, whole_text(query.operator, NONE, statement.tables)).schema
    sources = {name: _source(name, metas[name], used) for name, used in query.uses.items()}
    return NewView(schema, properties_of(text, query.canonical, sources, strict=strict), operators)


def _source(name: str, meta: catalog_pb2.Table, used: tuple[str, ...]) -> ViewSource:
    ids = {column.name.lower(): column.column_id for column in meta.columns}
    return ViewSource(name, meta.table_id, {column: ids[column] for column in used})


def _lower(schema: pa.Schema, meta: catalog_pb2.Table) -> pa.Schema:
    names = [name.lower() for name in schema.names]
    if len(set(names)) < len(names):
        raise InputError("VIEW_QUERY_INVALID", f"columns of {meta.name} differ in case alone: a view can't read it")
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
