"""The columns of a table after a change that was made on a branch, while the parent changed columns too. Pure.

Columns are told apart by their ids, which the tables of a family get from one counter. A change of the branch leads
from one list of columns to the next; the parent has a third one:

    before  1 id, 2 pay            after  1 id, 2 salary, 3 note       the branch renamed one and added one
    onto    1 id, 2 pay, 4 mark                                        the parent added one
    merged  1 id, 2 salary, 4 mark, 3 note

What one side changed is changed; what both changed is the same on both, or the merge is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.schema import Column, Schema, evolve
from metaservice.core.table.types import folded

Value = TypeVar("Value")
Ids = Mapping[int, str]  # the path that each id stands for


def merged_schema(before: Schema, after: Schema, onto: Schema) -> Schema:
    """The columns of `onto` with what led from `before` to `after`. Raises if both sides changed one thing."""
    old, new, theirs = _by_id(before), _by_id(after), _by_id(onto)
    merged: dict[int, Column] = {}
    for number, column in theirs.items():
        if number not in old:
            if number in new:
                raise _id_twice(number, column.name, new[number].name)
            merged[number] = column
        elif number in new:
            merged[number] = _merged(old[number], new[number], column)
        elif _definition(column) != _definition(old[number]):
            raise _both_changed(old[number])
    for number, column in new.items():
        if number not in old:
            merged[number] = column
        elif number not in theirs and _definition(column) != _definition(old[number]):
            raise _both_changed(old[number])
    _check_names(merged, theirs)
    order = _order(list(old), list(new), list(theirs), merged)
    names = [
        tuple(merged[_id_of(onto, name)].name for name in part) for part in (onto.partition_columns, onto.primary_key)
    ]
    last_id = max(onto.last_id, after.last_id)
    return evolve(Schema(tuple(merged[number] for number in order), names[0], names[1], last_id), ())


def new_ids(meta: TableMeta, base: TableMeta) -> Ids:
    """The ids of columns and fields that a table has and an earlier version of it had not."""
    earlier = _ids(base.columns)
    return {number: path for number, path in _ids(meta.columns).items() if number not in earlier}


def check_given_once(of_branch: Ids, of_parent: Ids) -> None:
    """Refuses columns of which each side has one under the same id: files of one would be read as the other's.

    They were made before all tables of a family got ids from one counter.
    """
    for number in sorted(of_branch.keys() & of_parent.keys()):
        raise _id_twice(number, of_parent[number], of_branch[number])


def _ids(columns: Iterable[Column]) -> dict[int, str]:
    paths: dict[int, str] = {}
    for column in columns:
        paths[column.column_id] = column.name
        paths.update({number: f"{column.name}.{path}" for path, number in column.nested})
    return paths


def _by_id(schema: Schema) -> dict[int, Column]:
    return {column.column_id: column for column in schema.columns}


def _id_of(schema: Schema, name: str) -> int:
    return next(column.column_id for column in schema.columns if column.name == name)


def _definition(column: Column) -> tuple[object, ...]:
    return column.name, column.type, column.nullable, column.nested


def _merged(before: Column, after: Column, onto: Column) -> Column:
    name, kind, nullable, nested = _merged_value(_definition(before), _definition(after), _definition(onto), before)
    comment = _merged_value(before.comment, after.comment, onto.comment, before)
    default_sql = _merged_value(before.default_sql, after.default_sql, onto.default_sql, before)
    return Column(name, kind, nullable, comment, before.column_id, nested, default_sql)  # type: ignore[arg-type]


def _merged_value(before: Value, after: Value, onto: Value, column: Column) -> Value:
    """What a side changed; the same on both sides is fine, too."""
    if after in (before, onto):
        return onto
    if onto != before:
        raise _both_changed(column)
    return after


def _check_names(merged: Mapping[int, Column], theirs: Mapping[int, Column]) -> None:
    named: dict[str, int] = {}
    for number, column in sorted(merged.items(), key=lambda item: item[0] not in theirs):
        if named.setdefault(folded(column.name), number) != number:
            raise MetaError(ErrorKind.BLOCKED, "MERGE_COLUMN_EXISTS", column=column.name)


def _order(before: Sequence[int], after: Sequence[int], onto: Sequence[int], merged: Mapping[int, Column]) -> list[int]:
    """The merged columns in order: as the side has them that moved some, and the other's new ones where they were."""
    common = set(before) & set(after) & set(onto)
    old, branch, parent = ([number for number in each if number in common] for each in (before, after, onto))
    if branch not in (old, parent) and parent != old:
        moved = next(number for number, other in zip(branch, parent, strict=True) if number != other)
        raise _both_changed(merged[moved])
    first, second = (onto, after) if branch in (old, parent) else (after, onto)
    order = [number for number in first if number in merged]
    for place, number in enumerate(second):
        if number in order or number not in merged:
            continue
        if common.isdisjoint(second[place:]):  # it was appended
            order.append(number)
        else:
            left = next((prior for prior in reversed(second[:place]) if prior in order), None)
            order.insert(0 if left is None else order.index(left) + 1, number)
    return order


def _both_changed(column: Column) -> MetaError:
    return MetaError(ErrorKind.BLOCKED, "MERGE_COLUMN_CHANGED", column=column.name)


def _id_twice(number: int, of_parent: str, of_branch: str) -> MetaError:
    facts = {"column_id": number, "of_parent": of_parent, "of_branch": of_branch}
    return MetaError(ErrorKind.BLOCKED, "MERGE_COLUMN_ID_TWICE", **facts)
