"""Changes of materialized views: refreshes and table services change their rows, nobody else.

A refresh is known by its commit: its property `view.vector` has a version for every source, and the commit moves the
view's cursor on each source to that version. So the vector can't name a version that the source doesn't have, nor go
back, and two refreshes from the same vector can't both commit. The service runs no query: whether the rows are those
of the query is what `view.verify` checks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.retention.marks import CursorMove
from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.model import COMPACTIONS, Change, Operation
from metaservice.core.table.view_definition import source_ids

VECTOR: Final = "view.vector"  # a property of the commit


def cursor_name(view_id: str) -> str:
    """The name of the view's cursor on each of its sources."""
    return f"view-{view_id}"


def check_begin(meta: TableMeta, operation: Operation, properties: Mapping[str, str]) -> None:
    """Refuses a write to a view that is not the beginning of a refresh, before files are written for it."""
    is_service = operation in COMPACTIONS or operation is Operation.ALTER
    if not is_service and operation is not Operation.UPDATE and VECTOR not in properties:
        raise _read_only(meta)


def check_change(meta: TableMeta, change: Change, properties: Mapping[str, str], moves: Sequence[CursorMove]) -> None:
    """Refuses a change of a view that is neither a refresh nor a table service's, and changes of its definition."""
    if change.operation in COMPACTIONS:
        return
    if change.operation is Operation.ALTER:
        if change.alteration is not None and not _keeps_columns(change.alteration):
            raise _read_only(meta)
        return
    is_only_read = change.operation is Operation.UPDATE and not change.adds and VECTOR not in properties
    if not is_only_read and not _is_refresh(meta, change, properties, moves):
        raise _read_only(meta)


def _keeps_columns(alteration: Alteration) -> bool:
    return not alteration.schema_changes and alteration.replacement is None


def _is_refresh(meta: TableMeta, change: Change, properties: Mapping[str, str], moves: Sequence[CursorMove]) -> bool:
    if change.operation is not Operation.MERGE:
        return False
    name = cursor_name(meta.table_id)
    moved = {move.table_id: move.version for move in moves if move.name == name}
    return moved.keys() == source_ids(meta.properties) and _vector(properties.get(VECTOR, "")) == moved


def _vector(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _read_only(meta: TableMeta) -> MetaError:
    return MetaError(ErrorKind.BLOCKED, "VIEW_READ_ONLY", table=meta.name)
