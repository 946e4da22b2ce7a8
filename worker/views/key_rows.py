"""Rows that have one of some keys: which files and row groups may have them, and which of the rows that were read.

A condition that lists few keys is evaluated while files are read, so that of the other columns only the pages with such
rows are read. Of many keys the smallest and the largest rule out files and row groups, and rows are chosen afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.expressions.conditions import can_be_listed
from worker.arrow.scan.version_rows import VersionRows
from worker.base.lazy_modules import LazyModule
from worker.base.values import INTEGERS, bound_of, wire_value

if TYPE_CHECKING:
    import polars as pl
else:
    pl = LazyModule("polars")

WHOLE: Final = float("inf")
KEYS_MAX: Final = 1_000_000  # of more, every row is taken
KEYS_LISTED_MAX: Final = 1_000  # of more, rows are chosen after they were read
CHOSEN_AT_ONCE: Final = 200_000  # rows: to choose begins with a table of the keys
EXACT: Final = frozenset({"string", "date", "boolean", *INTEGERS})  # equal values are the same, unlike 0.0 and -0.0


@dataclass(frozen=True)
class KeyRows:
    """The rows whose column has one of the keys; NULL is a key like others. They lie within the bounds of `others`."""

    column: str
    kind: str
    keys: pa.Array
    others: Sequence[KeyRows] = ()

    @cached_property
    def condition(self) -> common_pb2.Predicate | None:
        """That a row has one of the keys; None if these are too many or too long for a condition."""
        if len(self.keys) > KEYS_LISTED_MAX or not can_be_listed(pa.table([self.keys], [self.column])):
            return None
        values = [wire_value(key, self.kind) for key in self.keys.to_pylist() if key is not None]
        listed = [common_pb2.Predicate(in_list=common_pb2.InList(column=self.column, values=values))] if values else []
        return self._or_null(listed)

    @cached_property
    def near(self) -> common_pb2.Predicate:
        """A condition that rules out files and row groups."""
        parts = [self.condition or self.between(), *(other.between() for other in self.others)]
        return parts[0] if len(parts) == 1 else common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=parts))

    def among(self, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """These rows, among those that were read with the condition, or without one if there is none."""
        if self.condition is not None:
            yield from parts
            return
        waiting: list[pa.Table] = []
        for part in parts:
            waiting.append(part)
            if sum(map(len, waiting)) >= CHOSEN_AT_ONCE:
                yield self._chosen(waiting)
                waiting = []
        if waiting:
            yield self._chosen(waiting)

    def _chosen(self, parts: Sequence[pa.Table]) -> pa.Table:
        rows = pa.concat_tables(parts)
        values = pl.Series(rows.column(self.column))
        return rows.filter(values.is_in(pl.Series(self.keys).implode(), nulls_equal=True).to_arrow())

    def between(self) -> common_pb2.Predicate:
        """A condition that is true of every value from the smallest key to the largest."""
        ends = pc.min_max(self.keys).as_py()
        if ends["min"] is None:
            return self._or_null([])
        bounds = (
            (common_pb2.COMPARISON_GREATER_OR_EQUAL, bound_of(ends["min"], self.kind, is_max=False)),
            (common_pb2.COMPARISON_LESS_OR_EQUAL, bound_of(ends["max"], self.kind, is_max=True)),
        )
        parts = [
            common_pb2.Predicate(compare=common_pb2.Compare(column=self.column, comparison=how, value=end))
            for how, end in bounds
            if end is not None
        ]
        return self._or_null([common_pb2.Predicate(all_of=common_pb2.PredicateList(operands=parts))])

    def _or_null(self, parts: Sequence[common_pb2.Predicate]) -> common_pb2.Predicate:
        nulls = [common_pb2.Predicate(is_null=common_pb2.IsNull(column=self.column))] if self.keys.null_count else []
        either = [*parts, *nulls]
        if not either:
            return common_pb2.Predicate(literal=False)
        return either[0] if len(either) == 1 else common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=either))


def read_rows(
    reader: VersionRows,
    names: Sequence[str],
    some: KeyRows | None,
    counted: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> pa.Table:
    """Return some rows of a version, or all. `counted` sees the rows that were read."""
    where, near = (None, None) if some is None else (some.condition, some.near)
    parts = map(counted, reader.tables(names, where, WHOLE, near))
    return pa.concat_tables([reader.empty(names), *(parts if some is None else some.among(parts))])


def rows_like(meta: catalog_pb2.Table, schema: pa.Schema, some: pa.Table) -> KeyRows | None:
    """Return the rows of a table that may equal one of some rows in the columns that these have; None: any row may.

    They are chosen by the column that tells the most of the rows apart.
    """
    kinds = {column.name: column.type for column in meta.columns}
    columns = [
        KeyRows(name, kinds[name], some.column(name).unique())
        for name in some.column_names
        if kinds[name] in EXACT and some.schema.field(name).type == schema.field(name).type
    ]
    columns.sort(key=lambda each: len(each.keys), reverse=True)
    if not columns or len(columns[0].keys) > KEYS_MAX:
        return None
    return replace(columns[0], others=columns[1:])
