"""MERGE without Spark: source rows and rows of the table in Arrow, joined by equal columns.

A row of the table that no source row can match is not read, unless a clause needs it (`when_not_matched_by_source…`).
Rows that match up to 1,000 keys of the source are found by key, others in their partitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from metaservice.client import is_partial, key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import can_be_listed, parsed
from worker.arrow.expressions.evaluation import Expression, cast, comparable
from worker.arrow.expressions.parser import Columns, parse_truth, parse_value
from worker.arrow.write import partial_images
from worker.arrow.write.input_rows import default_of, fitted
from worker.arrow.write.merge_clauses import (
    SOURCE,
    TARGET,
    Clause,
    are_upserts,
    key_missing,
    no_common_column,
    on_condition,
    only_deletes_matched,
)
from worker.arrow.write.merge_sources import plain_source
from worker.arrow.write.staged_rows import check_keys, frame_of, with_op, write_keyed
from worker.arrow.write.updates import (
    TRUE,
    Changes,
    TargetRows,
    Values,
    checked_values,
    images_of,
    named_column,
    places_of,
    replaced,
    stored,
    target_rows,
    value_of,
)
from worker.base.condition_forms import all_of, equality
from worker.base.errors import InputError, NotPlainError
from worker.base.schema import ROW_ID, UPSERT
from worker.base.values import INTEGERS, wire_value
from worker.commit.stages import Stage, Staged
from worker.commit.writes import Write
from worker.connection.table_view import TableView, write_rules
from worker.files.arrow_types import arrow_schema, column_field

KEYS_NAMED: Final = 1_000  # of the source; with more of them its partitions are named
PARTITIONS_NAMED: Final = 100
EXACT: Final = frozenset({"string", "date", "boolean", *INTEGERS})
AT: Final = "_laketx_at"
IF_TWICE: Final = "two source rows have it: keep one of them"
_TARGET_NAME: Final = re.compile(
    r"""('(?:[^'\\]|'')*'|`(?:[^`]|``)*`)|(?<![\w.`])target\s*\.\s*""", re.IGNORECASE | re.DOTALL
)

Places = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
NO_PLACES: Final[Places] = np.empty(0, np.int64)


@dataclass(frozen=True)
class _Clause:
    """A clause that is bound to the columns of both sides."""

    when: str
    action: str
    condition: Expression | None
    values: Values


@dataclass(frozen=True)
class _Merge:
    """A merge that is bound to the columns of both sides."""

    equal: tuple[Expression, ...]  # a column of the table equals one of the source
    others: tuple[Expression, ...]  # the other conditions of ON
    clauses: tuple[_Clause, ...]


def plan_merge(table: TableView, rows: pa.Table, on: str | Sequence[str], clauses: Sequence[Clause]) -> Write:
    """Plan a merge. Raises NotPlainError if it needs Spark."""
    meta = table.meta
    source = plain_source(rows)
    merge = _bound(meta, source, on, clauses)
    reads_all = any(clause.when == "by_source" for clause in clauses)
    near = TRUE if reads_all else _near(meta, source, merge)
    delta = _upserted(meta, source, merge, clauses)
    sets = _columns_set(meta, merge)

    def stage(stage: Stage) -> Staged:
        if delta is not None:
            return write_keyed(stage, delta, is_base=False)
        then = table.at(stage.read_version)
        target = target_rows(then, stage.read_version, near)
        return _staged(then, stage, target, source, merge, sets, only_deletes=only_deletes_matched(clauses))

    used = [] if sets is None else partial_images.columns_used(meta, _columns_read(meta, source, merge, clauses))
    reads_nothing = delta is not None and is_partial(meta) and write_rules(meta).wants_keys  # as an upsert
    reads = [] if reads_nothing else [common_pb2.Read(predicate=near, columns=used)]
    spans = key_spans_partitions(meta)
    return Write(table, common_pb2.OPERATION_MERGE, stage, reads=reads, looks_keys_up=spans)


# -- clauses -----------------------------------------------------------------------------------------------------------


def _bound(meta: catalog_pb2.Table, source: pa.Table, on: str | Sequence[str], clauses: Sequence[Clause]) -> _Merge:
    columns = _columns(meta, source)
    parts = parse_truth(on_condition(meta, on), columns).parts()
    equal = tuple(part for part in parts if _joins(part))
    if not equal:
        raise NotPlainError("CONDITION_INVALID", "ON compares no column of the target with an equal one of the source")
    others = tuple(part for part in parts if not _joins(part))
    return _Merge(equal, others, tuple(_bound_clause(meta, source, columns, clause) for clause in clauses))


def _columns(meta: catalog_pb2.Table, source: pa.Table) -> Columns:
    target_columns = {
        (TARGET, column.name.lower()): (f"{TARGET}.{column.name}", column_field(column).type) for column in meta.columns
    }
    return target_columns | {
        (SOURCE, field.name.lower()): (f"{SOURCE}.{field.name}", field.type) for field in source.schema
    }


def _joins(part: Expression) -> bool:
    if part.equal is None or any(side.column is None for side in part.equal):
        return False
    return {str(side.column).partition(".")[0] for side in part.equal} == {TARGET, SOURCE}


def _side(part: Expression, side: str) -> Expression:
    assert part.equal is not None
    return next(expression for expression in part.equal if str(expression.column).startswith(f"{side}."))


def _name(column: Expression) -> str:
    return str(column.column).partition(".")[2]


def _bound_clause(meta: catalog_pb2.Table, source: pa.Table, columns: Columns, clause: Clause) -> _Clause:
    condition = None if clause.condition is None else parse_truth(clause.condition, columns)
    if clause.action == "delete":
        values: Values = {}
    elif clause.settings is None:
        values = _taken(meta, source, is_new=clause.when == "not_matched")
    elif clause.when == "not_matched":
        values = _inserted(meta, clause.settings, columns)
    else:
        values = checked_values(meta, clause.settings, columns)
    if clause.action == "insert":
        values = {**values, **_defaults(meta, values)}
    return _Clause(clause.when, clause.action, condition, values)


def _taken(meta: catalog_pb2.Table, source: pa.Table, *, is_new: bool) -> Values:
    """Return the values of the table's columns that the source has; the key of an existing row stays."""
    names = {name.lower(): name for name in source.column_names}
    fixed = () if is_new else meta.primary_key
    chosen = [column for column in meta.columns if column.name.lower() in names and column.name not in fixed]
    if not chosen:
        raise no_common_column()
    values = {}
    for column in chosen:
        name = names[column.name.lower()]
        given = _column(f"{SOURCE}.{name}", source.schema.field(name).type)
        values[column.name] = stored(meta, column, given, is_whole=not is_new)
    return values


def _column(name: str, kind: pa.DataType) -> Expression:
    return Expression(kind, lambda rows: rows.column(name), column=name, text=name)


def _inserted(meta: catalog_pb2.Table, settings: Mapping[str, Any], columns: Columns) -> Values:
    keys = set(meta.primary_key)
    given = {named_column(meta, name).name: value for name, value in settings.items()}
    for key in meta.primary_key:
        if key not in given:
            raise key_missing(key)
    others = {name: value for name, value in settings.items() if named_column(meta, name).name not in keys}
    values = dict(checked_values(meta, others, columns)) if others else {}
    for column in meta.columns:
        if column.name in keys:
            values[column.name] = value_of(meta, column, given[column.name], columns)
    return values


def _defaults(meta: catalog_pb2.Table, values: Values) -> Values:
    """Return the values of new rows in the other columns."""
    defaults = {}
    for column in meta.columns:
        if column.name not in values:
            try:
                scalar = default_of(column, column_field(column).type)
            except InputError as error:
                raise NotPlainError(error.reason, str(error).partition(": ")[2]) from error
            constant = Expression(scalar.type, _constant(scalar), text=column.default_sql or "NULL")
            defaults[column.name] = stored(meta, column, constant, is_whole=False)
    return defaults


def _constant(scalar: pa.Scalar) -> Callable[[pa.Table], pa.Scalar]:
    return lambda _: scalar


# -- columns -----------------------------------------------------------------------------------------------------------


def _columns_set(meta: catalog_pb2.Table, merge: _Merge) -> frozenset[str] | None:
    """Return the columns that the images of existing rows set; None if these images are whole."""
    names = frozenset(name for clause in merge.clauses if clause.action == "update" for name in clause.values)
    is_set = (
        is_partial(meta) and names and names.isdisjoint(meta.partition_columns)
    )  # a row that moves has a whole image
    return names if is_set else None


def _columns_read(
    meta: catalog_pb2.Table, source: pa.Table, merge: _Merge, clauses: Sequence[Clause]
) -> frozenset[str]:
    """Return the table's columns in ON, in conditions and in the expressions of new values."""
    columns = _columns(meta, source)
    texts = [value for clause in clauses for value in (clause.settings or {}).values() if isinstance(value, str)]
    conditions = [clause.condition for clause in merge.clauses if clause.condition is not None]
    expressions = [*merge.equal, *merge.others, *conditions, *(parse_value(text, columns) for text in texts)]
    sides = [name.partition(".") for expression in expressions for name in expression.columns]
    return frozenset(name for side, _, name in sides if side == TARGET)


# -- what is read ------------------------------------------------------------------------------------------------------


def _near(meta: catalog_pb2.Table, source: pa.Table, merge: _Merge) -> common_pb2.Predicate:
    """Return a condition that is true for every row of the table that a source row can match."""
    conditions = [condition for part in merge.others if (condition := _of_target(meta, part)) is not None]
    named = [part for part in merge.equal if _is_exact(meta, source, part)]
    partitions = [part for part in named if _name(_side(part, TARGET)) in meta.partition_columns]
    for parts, most in ((named, KEYS_NAMED), (partitions, PARTITIONS_NAMED)):
        rows = _distinct(source, merge, parts)
        if parts and len(rows) <= most and can_be_listed(rows.to_arrow()):
            return all_of([*conditions, _any_of(meta, parts, rows)])
    return all_of(conditions)


def _of_target(meta: catalog_pb2.Table, part: Expression) -> common_pb2.Predicate | None:
    """Return a part of ON as a condition on the table's row alone; None if it is no such plain condition."""
    if not part.text or not part.columns or not all(name.startswith(f"{TARGET}.") for name in part.columns):
        return None
    try:
        return parsed(_TARGET_NAME.sub(lambda match: match[1] or "", part.text), meta)
    except InputError:
        return None


def _is_exact(meta: catalog_pb2.Table, source: pa.Table, part: Expression) -> bool:
    """Return whether both sides have one type, whose equal values are identical."""
    types = {column.name: column.type for column in meta.columns}
    target, given = _side(part, TARGET), _side(part, SOURCE)
    is_known = types[_name(target)] in EXACT
    return is_known and (given.kind == target.kind or _fits(source, given, target))


def _fits(source: pa.Table, given: Expression, target: Expression) -> bool:
    if not (pa.types.is_integer(target.kind) and pa.types.is_integer(given.kind)):
        return False
    try:
        source.column(_name(given)).cast(target.kind)
    except pa.ArrowInvalid:
        return False
    return True


def _distinct(source: pa.Table, merge: _Merge, parts: Sequence[Expression]) -> pl.DataFrame:
    """Return the distinct values of the source in these columns, of rows that can match."""
    names = {str(at): _name(_side(part, SOURCE)) for at, part in enumerate(merge.equal)}
    frame = frame_of(pa.table({at: source.column(name) for at, name in names.items()}))
    strict = [str(at) for at, part in enumerate(merge.equal) if not part.null_safe]
    chosen = [str(at) for at, part in enumerate(merge.equal) if any(part is other for other in parts)]
    return frame.drop_nulls(strict).select(chosen).unique(maintain_order=True) if chosen else pl.DataFrame()


def _any_of(meta: catalog_pb2.Table, parts: Sequence[Expression], rows: pl.DataFrame) -> common_pb2.Predicate:
    types = {column.name: column.type for column in meta.columns}
    names = [_name(_side(part, TARGET)) for part in parts]
    if not len(rows):
        return common_pb2.Predicate(literal=False)
    values = [
        [wire_value(value, types[name]) for name, value in zip(names, row, strict=True)] for row in rows.iter_rows()
    ]
    if len(names) == 1 and all(value.WhichOneof("kind") != "null" for [value] in values):
        in_list = common_pb2.InList(column=names[0], values=[value for [value] in values])
        return common_pb2.Predicate(in_list=in_list)
    places = [all_of([equality(name, value) for name, value in zip(names, row, strict=True)]) for row in values]
    return places[0] if len(places) == 1 else common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=places))


# -- an upsert ---------------------------------------------------------------------------------------------------------


def _upserted(meta: catalog_pb2.Table, source: pa.Table, merge: _Merge, clauses: Sequence[Clause]) -> pa.Table | None:
    """Return the delta of a merge in which each source row becomes the row of its key, whatever exists; else None.

    Then the table need not be read.
    """
    if not meta.primary_key or key_spans_partitions(meta) or not are_upserts(clauses) or merge.others:
        return None
    source_names = {name.lower() for name in source.column_names}
    may_lack = {column.name for column in meta.columns if is_partial(meta) and (column.nullable or column.default_sql)}
    is_whole = all(column.name.lower() in source_names or column.name in may_lack for column in meta.columns)
    names = {_name(_side(part, TARGET)) for part in merge.equal}
    is_same = all(_name(_side(part, SOURCE)).lower() == _name(_side(part, TARGET)).lower() for part in merge.equal)
    is_safe = all(part.null_safe or _name(_side(part, TARGET)) in meta.primary_key for part in merge.equal)
    are_exact = all(_is_exact(meta, source, part) for part in merge.equal)
    if not (is_whole and is_same and is_safe and are_exact and names == set(places_of(meta))):
        return None
    own_names = {column.name.lower() for column in meta.columns}
    own = source.select([name for name in source.column_names if name.lower() in own_names])
    delta = with_op(fitted(own, meta), UPSERT)
    try:
        check_keys(delta, meta)
    except InputError:
        return None  # which error it is depends on the table's rows
    return partial_images.setting(delta, meta, [own.column_names]) if is_partial(meta) else delta


# -- what is staged ----------------------------------------------------------------------------------------------------


def _staged(
    then: TableView,
    stage: Stage,
    target: TargetRows,
    source: pa.Table,
    merge: _Merge,
    sets: frozenset[str] | None,
    *,
    only_deletes: bool,
) -> Staged:
    meta = stage.meta
    old, changed = [NO_PLACES], [NO_PLACES]
    images, new = [arrow_schema(meta).empty_table()], [arrow_schema(meta).empty_table()]
    for clause, left, right in _applied(target.rows, source, merge):
        rows = _side_by_side(target.rows, source, left, right)
        if clause.action == "insert":
            new.append(images_of(meta, rows, clause.values, rows))
            continue
        hit = np.unique(left) if clause.when == "matched" and only_deletes else left
        if clause.action == "update":
            images.append(images_of(meta, rows, clause.values, target.rows.take(pa.array(hit))))
            changed.append(np.arange(len(hit)) + sum(map(len, old)))
        old.append(hit)
    places = np.concatenate(old)
    _refuse_twice(meta, target.rows, places)
    before = target.rows.take(pa.array(places))
    changes = Changes(before, np.concatenate(changed), pa.concat_tables(images), pa.concat_tables(new), sets)
    return replaced(then, stage, target, changes, IF_TWICE)


def _applied(target: pa.Table, source: pa.Table, merge: _Merge) -> Iterator[tuple[_Clause, Places, Places]]:
    """Yield the clauses with the places of the rows that each applies to; -1 if a side has no row."""
    left, right = _pairs(target, source, merge)
    new = np.setdiff1d(np.arange(len(source)), right)
    alone = np.setdiff1d(np.arange(len(target)), left)
    kinds = {
        "matched": (left, right),
        "not_matched": (np.full(len(new), -1), new),
        "by_source": (alone, np.full(len(alone), -1)),
    }
    for clause in merge.clauses:
        left, right = kinds[clause.when]
        if clause.condition is None:
            holds = np.ones(len(left), bool)
        else:
            holds = _holds(clause.condition, _side_by_side(target, source, left, right))
        kinds[clause.when] = left[~holds], right[~holds]
        yield clause, left[holds], right[holds]


def _pairs(target: pa.Table, source: pa.Table, merge: _Merge) -> tuple[Places, Places]:
    """Return the places of the rows that match."""
    sides = [_keys(target, merge, TARGET), _keys(source, merge, SOURCE)]
    on = [f"c{at}" for at in range(len(merge.equal))]
    both = sides[0].join(sides[1], on=on, how="inner", nulls_equal=True, suffix=SOURCE)
    left, right = both[AT].to_numpy(), both[AT + SOURCE].to_numpy()
    if merge.others:
        rows = _side_by_side(target, source, left, right)
        holds = np.logical_and.reduce([_holds(condition, rows) for condition in merge.others])
        left, right = left[holds], right[holds]
    return left, right


def _keys(rows: pa.Table, merge: _Merge, side: str) -> pl.DataFrame:
    """Return the columns of the join and the rows' places, without rows that match nothing because of a NULL."""
    columns = {}
    for at, part in enumerate(merge.equal):
        kind = comparable(*part.equal or ())
        column = _side(part, side)
        values = cast(_column(_name(column), column.kind), kind).over(rows)
        columns[f"c{at}"] = pc.add(values, 0.0) if pa.types.is_floating(kind) else values  # -0.0 becomes 0.0
    frame = frame_of(pa.table(columns)).with_columns(pl.Series(AT, np.arange(len(rows))))
    return frame.drop_nulls([f"c{at}" for at, part in enumerate(merge.equal) if not part.null_safe])


def _holds(condition: Expression, rows: pa.Table) -> Truths:
    holds: Truths = pc.fill_null(condition.over(rows), False).to_numpy()
    return holds


def _side_by_side(target: pa.Table, source: pa.Table, left: Places, right: Places) -> pa.Table:
    """Return rows of both sides by their places; NULL if a side has none."""
    columns: dict[str, pa.ChunkedArray] = {}
    for side, rows, places in ((TARGET, target, left), (SOURCE, source, right)):
        taken = rows.take(pa.array(places, mask=places < 0))
        columns |= {f"{side}.{name}": column for name, column in zip(taken.column_names, taken.columns, strict=True)}
    return pa.table(columns)


def _refuse_twice(meta: catalog_pb2.Table, target: pa.Table, places: Places) -> None:
    """Refuse a merge in which two source rows change one row of the table: it has no right value."""
    rows, counts = np.unique(places, return_counts=True)
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        names = places_of(meta) if meta.primary_key else [ROW_ID]
        [row] = target.select(names).slice(int(rows[twice[0]]), 1).to_pylist()
        count = int(counts[twice[0]])
        raise InputError("MERGE_AMBIGUOUS", f"{count} source rows match one row of {meta.name}: {list(row.values())}")
