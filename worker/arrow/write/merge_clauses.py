"""A MERGE, for every engine: its condition, its clauses in their order, and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.base.schema import quoted

TARGET: Final = "target"
SOURCE: Final = "source"

Settings = Mapping[str, Any]  # SQL, a Column, or a value


@dataclass(frozen=True)
class Clause:
    """The action for rows of one kind ("matched", "not_matched", "by_source") for which the condition is true."""

    when: str
    action: str
    settings: Settings | None
    condition: str | None


def only_deletes_matched(clauses: Sequence[Clause]) -> bool:
    """Return whether every matched row is deleted: then it doesn't matter how many source rows match it."""
    matched = [(clause.action, clause.condition) for clause in clauses if clause.when == "matched"]
    return matched == [("delete", None)]


def are_upserts(clauses: Sequence[Clause]) -> bool:
    """Return whether every matched row becomes its source row, and every other source row is inserted."""
    given = [(clause.when, clause.action, clause.settings, clause.condition) for clause in clauses]
    upsert = [("matched", "update", None, None), ("not_matched", "insert", None, None)]
    return given in (upsert, upsert[::-1])


def on_columns(meta: catalog_pb2.Table, on: str | Sequence[str]) -> Sequence[str]:
    """Return the columns that both sides must share; none if `on` is a condition."""
    if not isinstance(on, str):
        return on
    return [on] if on.strip().lower() in {column.name.lower() for column in meta.columns} else []


def on_condition(meta: catalog_pb2.Table, on: str | Sequence[str]) -> str:
    """Return the condition; columns that both sides must share become a condition."""
    names = on_columns(meta, on)
    if isinstance(on, str) and not names:
        return on
    nullable = {name.lower() for name in meta.partition_columns} if meta.primary_key else set()
    parts = []
    for name in map(str.strip, names):
        equals = "<=>" if name.lower() in nullable else "="  # NULL is a partition, in which keys are unique
        parts.append(f"{TARGET}.{quoted(name)} {equals} {SOURCE}.{quoted(name)}")
    return " AND ".join(parts)


# -- refusals ----------------------------------------------------------------------------------------------------------


def nothing_set() -> InputError:
    return InputError("SETTINGS_EMPTY", "no column is set")


def no_common_column() -> InputError:
    return InputError("SETTINGS_EMPTY", "the source has no column of the table")


def key_set(name: str) -> InputError:
    return InputError("KEY_SET", f"{name} is a key column: delete the row and insert another")


def key_missing(name: str) -> InputError:
    return InputError("COLUMN_MISSING", f"the insert of the merge lacks {name}, a key column")


def field_missing(name: str, path: str) -> InputError:
    message = f"the value of {name} has no field {path}: name every field, or set single fields"
    return InputError("COLUMN_MISSING", message)
