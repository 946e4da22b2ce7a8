"""Whether a table is as a commit requires it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg.commits.requests import MAIN
from worker.base.errors import InputError


@dataclass(eq=False)
class UnmetError(Exception):
    """A requirement that the table doesn't meet: the client reloads it, and may commit again."""

    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class TableState:
    """What requirements can be about."""

    name: str
    table_id: str
    head: int  # the newest snapshot's id
    refs: Mapping[str, int]  # of tags
    schema_id: int
    last_column_id: int
    last_partition_id: int


def check_requirements(table: TableState, requirements: Sequence[Mapping[str, Any]], *, appends: bool) -> None:
    """Raises UnmetError.

    An append reads nothing, so its client would make it again on any newer snapshot: `main` may have moved on since.
    """
    for one in requirements:
        match one:
            case {"type": "assert-table-uuid", "uuid": uuid}:
                _same(table, "id", table.table_id, str(uuid).lower())
            case {"type": "assert-ref-snapshot-id", "ref": ref}:
                _check_ref(table, str(ref), one.get("snapshot-id"), appends=appends)
            case {"type": "assert-current-schema-id", "current-schema-id": number}:
                _same(table, "schema", table.schema_id, number)
            case {"type": "assert-last-assigned-field-id", "last-assigned-field-id": number}:
                _same(table, "last column id", table.last_column_id, number)
            case {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": number}:
                _same(table, "last partition id", table.last_partition_id, number)
            case {"type": "assert-default-spec-id", "default-spec-id": number}:
                _same(table, "partition spec", 0, number)
            case {"type": "assert-default-sort-order-id", "default-sort-order-id": number}:
                _same(table, "sort order", 0, number)
            case {"type": "assert-create"}:
                raise UnmetError(f"{table.name} exists already")
            case _:
                raise InputError("ICEBERG_REQUEST", f"a requirement of the type {one.get('type')} is not known")


def check_base(table: TableState, parent_id: int | None) -> None:
    """A snapshot that takes rows away follows the newest one, which its client has read."""
    _same(table, f"snapshot of {MAIN}", table.head, parent_id)


def _check_ref(table: TableState, ref: str, wanted: int | None, *, appends: bool) -> None:
    found = table.head if ref == MAIN else table.refs.get(ref)
    if appends and ref == MAIN and wanted is not None and 1 <= wanted <= table.head:
        return
    _same(table, f"snapshot of {ref}", found, wanted)


def _same(table: TableState, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise UnmetError(
            f"{table.name} changed: its {what} is {found}, and the commit requires {wanted}; load it again"
        )
