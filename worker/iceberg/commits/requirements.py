"""Requirements of a commit, and whether a table meets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from metaservice.client import MetaServiceError
from worker.base.errors import InputError
from worker.iceberg.commits.requests import MAIN

FIRST: Final = 1  # of a table's snapshots
CHANGED: Final = "the snapshot of {} has changed"


@dataclass(eq=False)
class UnmetError(Exception):
    """A requirement that the table doesn't meet: the client reloads it, and may commit again.

    `moved`: another snapshot is the newest one, so the client may send the same files again.
    """

    message: str
    moved: bool = False

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table that requirements refer to."""

    name: str
    table_id: str
    head: int  # the newest snapshot's id
    refs: Mapping[str, int]  # of tags
    schema_id: int
    last_column_id: int
    last_partition_id: int


def check_requirements(
    table: TableState, requirements: Sequence[Mapping[str, Any]], *, rebases: bool = False
) -> int | None:
    """Return the snapshot of `main` whose rows the table must still have; None: any. Raises UnmetError.

    The commit's decision checks these rows. `rebases`: the rows don't matter.
    """
    since = None
    for requirement in requirements:
        match requirement:
            case {"type": "assert-table-uuid", "uuid": uuid}:
                _same(table, "UUID does not match", table.table_id, str(uuid).lower())
            case {"type": "assert-ref-snapshot-id", "ref": ref, "snapshot-id": int(number)} if ref == MAIN:
                if not FIRST <= number <= table.head:
                    _same(table, CHANGED.format(MAIN), table.head, number, moved=True)
                since = None if rebases else number
            case {"type": "assert-ref-snapshot-id", "ref": ref}:
                snapshot_id = table.head if ref == MAIN else table.refs.get(ref)
                _same(table, CHANGED.format(ref), snapshot_id, requirement.get("snapshot-id"))
            case {"type": "assert-current-schema-id", "current-schema-id": number}:
                _same(table, "current schema changed", table.schema_id, number)
            case {"type": "assert-last-assigned-field-id", "last-assigned-field-id": number}:
                _same(table, "last assigned field id changed", table.last_column_id, number)
            case {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": number}:
                _same(table, "last assigned partition id changed", table.last_partition_id, number)
            case {"type": "assert-default-spec-id", "default-spec-id": number}:
                _same(table, "default partition spec changed", 0, number)
            case {"type": "assert-default-sort-order-id", "default-sort-order-id": number}:
                _same(table, "default sort order changed", 0, number)
            case {"type": "assert-create"}:
                raise UnmetError(f"Requirement failed: table already exists: {table.name}")
            case _:
                raise InputError("ICEBERG_REQUEST", f"a requirement of the type {requirement.get('type')} is not known")
    return since


def is_moved(error: Exception) -> bool:
    """Return whether a commit was refused because rows changed since the snapshot that it requires."""
    return isinstance(error, MetaServiceError) and error.reason == "ROWS_CHANGED"


def check_base(table: TableState, parent_id: int | None) -> None:
    """Check that a snapshot that removes rows follows the newest one, which its client has read."""
    _same(table, CHANGED.format(MAIN), table.head, parent_id, moved=True)


def _same(table: TableState, what: str, actual: object, expected: object, *, moved: bool = False) -> None:
    """Raise UnmetError, in the words of Iceberg's Java library, if two values differ."""
    if actual != expected:
        expected_text, actual_text = ("none" if value is None else value for value in (expected, actual))
        raise UnmetError(
            f"Requirement failed: {what}: expected {expected_text} != {actual_text}; load {table.name} again", moved
        )
