"""May a file have rows that a read's condition matches? By the statistics of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, cast

from metaservice.core.commit.matching import PartitionReads, Work, leaves_of
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Entry, Read
from metaservice.core.table.partitions import wire_kind
from metaservice.core.table.predicates import TRUE, AllOf, Predicate, columns_of
from metaservice.core.table.pruning import MAY_BE_TRUE, Columns, Judge, compile_judge, conjuncts, exactly
from metaservice.core.table.rows import ColumnType, Payloads

_COST_OF_BOUNDS: Final = 100  # of reading a file's statistics, in comparisons


@dataclass(frozen=True, slots=True)
class FileTests:
    """Evaluates a read's condition on files, and its cost in comparisons."""

    columns: tuple[ColumnType, ...]
    judge: Judge
    of_key: Judge
    cost: int


@dataclass(frozen=True, slots=True)
class Reading:
    """A read, with the tests of its condition on files."""

    read: Read
    tests: FileTests
    places: PartitionReads

    def may_match(self, entry: Entry, meta: TableMeta, payloads: Payloads, *, by_key: bool = False) -> bool:
        """Whether a row of the file may match; `by_key`: by what the read says of key and partition alone."""
        tests = self.tests
        if not tests.columns:
            return True
        values = meta.partitioning.decode(entry.partition)
        row = payloads.bounds(entry.payload, tests.columns) + tuple(exactly(v) for v in values.values())
        return bool((tests.of_key if by_key else tests.judge)(row) & MAY_BE_TRUE)

    def touches(self, partition: str) -> bool:
        return self.places.touches(partition)


def new_reading(read: Read, meta: TableMeta, work: Work) -> Reading:
    tests = file_tests_of(read, meta)
    return Reading(read, tests, PartitionReads([read], meta.partitioning, work))


def file_tests_of(read: Read, meta: TableMeta) -> FileTests:
    """Return the file tests of a read, which are stored with it. Any thread may call first."""
    key = ("files", meta.schema_version)
    tests = read.prepared.get(key)
    if tests is None:
        tests = read.prepared[key] = _file_tests(read, meta)
    return cast(FileTests, tests)


def _file_tests(read: Read, meta: TableMeta) -> FileTests:
    condition = read.predicate if read.condition is None else read.condition
    partitions = meta.partitioning.names
    if not columns_of(condition) <= {*partitions, *(column.name for column in meta.columns)}:
        condition = TRUE  # a column that was renamed or dropped since
    used = columns_of(condition)
    columns = [column for column in meta.columns if column.name in used and column.name not in partitions]
    slots = {name: slot for slot, name in enumerate([*(column.name for column in columns), *partitions])}
    column_slots = Columns(slots, frozenset(column.name for column in columns if wire_kind(column.type) == "real"))
    return FileTests(
        tuple((column.column_id, column.type) for column in columns),
        compile_judge(condition, column_slots),
        compile_judge(_key_part(condition, {*meta.primary_key, *partitions}), column_slots),
        leaves_of(condition) + _COST_OF_BOUNDS,
    )


def _key_part(condition: Predicate, keys: set[str]) -> Predicate:
    kept = tuple(part for part in conjuncts(condition) if columns_of(part) <= keys)
    return AllOf(kept) if kept else TRUE
