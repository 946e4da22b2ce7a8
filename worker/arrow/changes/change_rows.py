"""The changes of a table's rows in (since, until], without Spark.

All of it is in memory: the rows that changed, and their previous images.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from metaservice.client import KEY_CHECKED, GoneError, is_partial, key_scope, key_spans_partitions
from protos.laketx.v1 import common_pb2
from worker.arrow.changes.commits import (
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    Bucket,
    RangeCommit,
    bucket_of,
    check_own_columns,
    commits_of,
    touched_buckets,
)
from worker.arrow.changes.image_chains import chained
from worker.arrow.expressions.conditions import Predicate, expression
from worker.arrow.scan.deleted_row_ids import bitmap_of
from worker.arrow.scan.file_rows import input_file, read_tables
from worker.arrow.scan.image_folds import SetColumns, columns_of, united, whole_images
from worker.arrow.scan.plans import WrittenSchemas, entries_of, row_ids
from worker.arrow.scan.version_rows import FileToRead, VersionRows, shown_schema
from worker.base.schema import CHANGE_TYPE, COMMIT_TIME, COMMIT_VERSION, OP, ROW_ID, SET, SET_COLUMNS, TOMBSTONE
from worker.base.values import partition_key
from worker.connection.pins import PinnedVersion
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema
from worker.files.position_blocks import Positions, positions_of, within

Numbers = np.ndarray[Any, np.dtype[np.int64]]
NONE: Final = -1  # the number of no row, no bucket, no version
PLACE: Final = "_laketx_place"


@dataclass(frozen=True, slots=True)
class Events:
    """Rows that appeared or disappeared with a version. `bucket` is NONE unless a commit of the range replaced it."""

    rows: pa.Table
    version: int
    bucket: int = NONE
    gone: Any = None  # a flag for each row; None: no row is gone


@dataclass(frozen=True, slots=True)
class Entries:
    """Changes of rows: the numbers of the old and the new row, the version, and a number of the row's identity."""

    before: Numbers
    after: Numbers
    versions: Numbers
    identities: Numbers
    sets: pa.ChunkedArray | None = None  # the columns that an image sets; NULL if it is whole, or there is none

    def where(self, chosen: Any) -> Entries:
        places = pa.array(np.arange(len(self.before))[chosen])
        sets = None if self.sets is None else self.sets.take(places)
        return Entries(self.before[chosen], self.after[chosen], self.versions[chosen], self.identities[chosen], sets)


class ChangeRows:
    """The changes of a range, under the columns of its end."""

    def __init__(self, table: TableView, begin: int, end: int, mode: str) -> None:
        """The view has the schema of the end."""
        self._table = table
        self._begin = begin
        self._end = end
        self._mode = mode
        self._keyed = bool(table.meta.primary_key)
        self._names = [column.name for column in table.meta.columns]
        self._written = WrittenSchemas(table)
        self._pinned: Sequence[PinnedVersion] = ()
        self._is_partial = is_partial(table.meta)
        check_own_columns(table.meta)
        self.schema = shown_schema(table)
        self.schema = self.schema.append(pa.field(CHANGE_TYPE, pa.string(), False))
        self.schema = self.schema.append(pa.field(COMMIT_VERSION, pa.int64(), False))
        self.schema = self.schema.append(pa.field(COMMIT_TIME, pa.timestamp("us", "UTC"), False))
        if self._is_partial:
            self.schema = self.schema.append(pa.field(SET_COLUMNS, pa.list_(pa.string())))

    def tables(self, columns: Sequence[str], where: Predicate | None, memory_bytes: float) -> Iterator[pa.Table]:
        del memory_bytes
        rows = self._rows()
        if where is not None:
            rows = rows.filter(expression(where, self.schema))
        yield rows.select(list(columns))

    def count(self, where: Predicate | None) -> int:
        return sum(map(len, self.tables(self.schema.names[:1], where, 0)))

    def _rows(self) -> pa.Table:
        commits = commits_of(self._table, self._begin, self._end)
        self._pinned = self._table.lake.pins.own_all(self._table.table_id, [commit.version for commit in commits])
        resets = dict.fromkeys(bucket for commit in commits for bucket in commit.resets)
        numbers = {bucket: at for at, bucket in enumerate(resets)}
        reader = _EventReader(self._table, self._written, commits, self._begin, numbers)
        events = [event for event in reader.events() if len(event.rows)]
        if not events:
            return self.schema.empty_table()
        whole = pa.concat_tables([event.rows for event in events])
        entries, whole = self._entries(events, whole, _ends(commits, numbers))
        differs = self._differs(entries, whole)
        entries = entries.where(differs) if self._mode == "log" else self._whole_range(entries, differs, whole)
        return self._shown(entries, whole, commits)

    # -- from events to entries

    def _entries(
        self, events: Sequence[Events], whole: pa.Table, ends: dict[int, list[int]]
    ) -> tuple[Entries, pa.Table]:
        """Return the entries, and the rows with all their values."""
        gone = np.concatenate(
            [np.zeros(len(event.rows), bool) if event.gone is None else event.gone for event in events]
        )
        versions = np.concatenate([np.full(len(event.rows), event.version) for event in events])
        end = np.concatenate(
            [np.full(len(event.rows), _next(ends.get(event.bucket), event.version)) for event in events]
        )
        identity = self._identities(whole)
        order = np.lexsort([gone, versions, identity])  # an image and a tombstone of one commit: the image comes first
        same = _same_as_before(identity[order])
        order = order[~(same & _same_as_before(versions[order]))]
        identity, versions, end = identity[order], versions[order], end[order]
        row = np.where(gone[order], NONE, order)
        same = _same_as_before(identity)
        before = np.where(same, _shifted(row, 1, NONE), NONE)
        ended_before = np.where(same, _shifted(end, 1, NONE), NONE)
        before = np.where((ended_before != NONE) & (ended_before < versions), NONE, before)
        bits = whole.column(SET) if self._is_partial else None
        if bits is not None:
            whole = chained(whole, self._table.meta, order, (before == NONE) | (row == NONE))
        is_last = np.append(~same[1:], True)
        following = np.append(versions[1:], 0)
        is_ended = (row != NONE) & (end != NONE) & (is_last | (end < following))
        nothing = np.full(np.count_nonzero(is_ended), NONE)
        after = np.concatenate([row, nothing])
        entries = Entries(
            np.concatenate([before, row[is_ended]]),
            after,
            np.concatenate([versions, end[is_ended]]),
            np.concatenate([identity, identity[is_ended]]),
            None if bits is None else bits.take(pa.array(after, mask=after == NONE)),
        )
        return entries.where(entries.versions > self._begin), whole

    def _identities(self, whole: pa.Table) -> Numbers:
        """Return a number for each row; the events of one row have the same number."""
        if not self._keyed:
            ids: Numbers = whole.column(ROW_ID).to_numpy()
            return ids
        meta = self._table.meta
        partition = () if self._is_unique() else meta.partition_columns  # then a move is one update
        keys = _frame(whole.select(list(dict.fromkeys([*meta.primary_key, *partition]))))
        distinct_keys = keys.unique().with_row_index(PLACE)
        numbered = keys.join(distinct_keys, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
        return numbered[PLACE].cast(pl.Int64).to_numpy()

    def _is_unique(self) -> bool:
        """Whether no version of the range has a key in two partitions."""
        meta = self._table.meta
        if not key_spans_partitions(meta) or key_scope(meta) != "table":
            return False
        if KEY_CHECKED not in meta.properties:
            return True  # since the table was created
        try:
            return self._begin >= 0 and key_scope(self._table.at(self._begin).meta) == "table"
        except GoneError:
            return False

    def _whole_range(self, entries: Entries, differs: Any, whole: pa.Table) -> Entries:
        """Return one entry for each row: before its first commit, after its last, at the last version that changed it.

        The values are those of the last commit, even if it wrote equal ones: 0.0 and -0.0 are equal.
        """
        order = np.lexsort([entries.versions, entries.identities])
        sorted_ = entries.where(order)
        first = np.flatnonzero(~_same_as_before(sorted_.identities))
        last = np.append(first, len(order))[1:] - 1
        changed_at = np.maximum.reduceat(np.where(differs[order], sorted_.versions, NONE), first)
        sets = None
        if sorted_.sets is not None and len(first):
            each = SetColumns(sorted_.sets)
            is_whole = np.logical_or.reduceat(each.are_whole, first)
            sets = pa.chunked_array([united(each, np.ones(len(order), bool), first, is_whole)])
        combined = Entries(sorted_.before[first], sorted_.after[last], changed_at, sorted_.identities[last], sets)
        return combined.where(self._differs(combined, whole))

    def _differs(self, entries: Entries, whole: pa.Table) -> Any:
        """Return for each entry whether only one side has a row, or the rows differ."""
        differs = (entries.before == NONE) != (entries.after == NONE)
        both = np.flatnonzero((entries.before != NONE) & (entries.after != NONE))
        old, new = pa.array(entries.before[both]), pa.array(entries.after[both])
        other = np.zeros(len(both), bool)
        for name in self._names:
            column = whole.column(name)
            other |= ~_equal(column.take(old), column.take(new))
        differs[both] = other
        return differs

    # -- from entries to rows

    def _shown(self, entries: Entries, whole: pa.Table, commits: Sequence[RangeCommit]) -> pa.Table:
        is_update = (entries.before != NONE) & (entries.after != NONE)
        kinds = [(INSERT, entries.after, (entries.after != NONE) & ~is_update), (POSTIMAGE, entries.after, is_update)]
        if self._mode != "latest":
            gone = (entries.before != NONE) & ~is_update
            kinds = [(DELETE, entries.before, gone), (PREIMAGE, entries.before, is_update), *kinds]
        rows = np.concatenate([rows[chosen] for _, rows, chosen in kinds])
        versions = np.concatenate([entries.versions[chosen] for _, _, chosen in kinds])
        words = [word for word, _, chosen in kinds for _ in range(np.count_nonzero(chosen))]
        order = np.argsort(versions, kind="stable")
        times = {commit.version: commit.time_us for commit in commits}
        shown = whole.select(self._names).take(pa.array(rows[order]))
        beside = [
            pa.array(words, pa.string()).take(pa.array(order)),
            pa.array(versions[order], pa.int64()),
            pa.array([times[version] for version in versions[order].tolist()], pa.timestamp("us", "UTC")),
        ]
        if entries.sets is not None:
            places = np.concatenate([np.flatnonzero(chosen) for _, _, chosen in kinds])
            beside.append(self._named(entries.sets.take(pa.array(places[order]))))
        columns = [column.cast(field.type) for column, field in zip(shown.columns, self.schema, strict=False)]
        return pa.table([*columns, *beside], schema=self.schema)

    def _named(self, sets: pa.ChunkedArray) -> pa.Array:
        """Return the names of set columns at the end of the range, without dropped columns."""
        encoded = sets.combine_chunks().dictionary_encode()
        names = [
            [column.name for column in self._table.meta.columns if column.column_id in columns_of(bits)]
            for bits in encoded.dictionary.to_pylist()
        ]
        return pa.array(names, pa.list_(pa.string())).take(encoded.indices)


class _EventReader:
    """Reads the events of a range; each table has the table's columns, and `_row_id` where rows have no key."""

    def __init__(
        self,
        table: TableView,
        written: WrittenSchemas,
        commits: Sequence[RangeCommit],
        begin: int,
        numbers: dict[Bucket, int],
    ) -> None:
        self._table = table
        self._written = written
        self._commits = commits
        self._begin = begin
        self._numbers = numbers
        self._keyed = bool(table.meta.primary_key)
        self._columns = [column.name for column in table.meta.columns] + ([] if self._keyed else [ROW_ID])
        self._is_partial = is_partial(table.meta)
        self._schema = arrow_schema(
            table.meta, with_op=self._keyed, with_row_id=not self._keyed, with_set=self._is_partial
        )
        self._shape = pa.schema([self._schema.field(name) for name in self._columns])

    def events(self) -> list[Events]:
        images = list(self._images())
        return [*self._before(images), *images, *self._tombstones(), *self._states()]

    def _number(self, partition: common_pb2.Partition, bucket: int) -> int:
        return self._numbers.get((partition_key(partition), bucket), NONE)

    def _images(self) -> Iterator[Events]:
        """Yield the rows of files that commits added, hidden or not."""
        for commit in self._commits:
            for file in commit.files:
                bucket = self._number(file.partition, file.bucket)
                for _, rows in read_tables(input_file(self._table, self._written, file, 0, None), self._schema):
                    gone = rows.column(OP).to_numpy() == TOMBSTONE if self._keyed else None
                    named = [*self._columns, *([SET] if self._is_partial else [])]
                    yield Events(rows.select(named), commit.version, bucket, gone)

    def _tombstones(self) -> Iterator[Events]:
        """Yield the row ids in delete sets; if the commit also has an image of the row, the image counts."""
        for commit in self._commits:
            for delete_set in commit.sets:
                ids = pa.array(positions_of(bitmap_of(self._table, delete_set)).astype(np.int64))
                rows = pa.table(
                    [ids if field.name == ROW_ID else pa.nulls(len(ids), field.type) for field in self._shape],
                    schema=self._shape,
                )
                yield Events(rows, commit.version, self._number(delete_set.partition, 0), np.ones(len(ids), bool))

    def _states(self) -> Iterator[Events]:
        """Yield the contents of the buckets that a commit replaced, after the commit."""
        for commit in self._commits:
            if commit.resets:
                entries = entries_of(self._table, commit.version, None, commit.resets.values())
                yield from self._visible(
                    [entry for entry in entries if bucket_of(entry) in commit.resets], commit.version
                )

    def _before(self, images: Sequence[Events]) -> Iterator[Events]:
        """Yield the rows at the begin of the range that a commit in it may have touched."""
        touched = touched_buckets(self._commits, keyed=self._keyed)
        if not touched:
            return
        entries = entries_of(self._table, self._begin, None, touched.values())
        whole = [entry for entry in entries if bucket_of(entry) in self._numbers]
        others = [entry for entry in entries if bucket_of(entry) in touched and bucket_of(entry) not in self._numbers]
        yield from self._visible(whole, self._begin)
        yield from self._with_keys(others, images) if self._keyed else self._with_ids(others)

    def _with_keys(self, entries: list[common_pb2.LiveEntry], images: Sequence[Events]) -> Iterator[Events]:
        """Yield the rows whose key appears in the range."""
        names = list(dict.fromkeys([*self._table.meta.primary_key, *self._table.meta.partition_columns]))
        if not images or not entries:
            return
        keys = _frame(pa.concat_tables([event.rows.select(names) for event in images])).unique()
        for event in self._visible(entries, self._begin):
            places = _frame(event.rows.select(names)).with_row_index(PLACE)
            near = places.join(keys, on=names, how="semi", nulls_equal=True)[PLACE]
            yield Events(event.rows.take(pa.array(near.to_numpy())), event.version, event.bucket)

    def _with_ids(self, entries: list[common_pb2.LiveEntry]) -> Iterator[Events]:
        """Yield the rows that the range hides or updates."""
        hidden = BitMap64()
        for commit in self._commits:
            for delete_set in commit.sets:
                hidden |= bitmap_of(self._table, delete_set)
        near = [entry for entry in entries if entry.HasField("delete_set") or within(hidden, *row_ids(entry.file))]
        yield from self._visible(near, self._begin, positions_of(hidden))

    def _visible(
        self, entries: Sequence[common_pb2.LiveEntry], version: int, ids: Positions | None = None
    ) -> Iterator[Events]:
        """Yield the rows that a snapshot's entries show, bucket by bucket; with `ids`, only the rows with these ids."""
        by_bucket: dict[Bucket, list[common_pb2.LiveEntry]] = defaultdict(list)
        for entry in entries:
            by_bucket[bucket_of(entry)].append(entry)
        reader = VersionRows(self._table, version)
        for bucket, listed in by_bucket.items():
            number = self._numbers.get(bucket, NONE)
            for rows in reader.visit(listed, self._rows_of(reader, ids), None):
                yield Events(rows, version, number)

    def _rows_of(self, reader: VersionRows, ids: Positions | None) -> Callable[[FileToRead], Iterator[pa.Table]]:
        def visible(file: FileToRead) -> Iterator[pa.Table]:
            if ids is None:
                return reader.visible(file, self._columns, None, float("inf"))
            return reader.visible_with_ids(file, self._columns, ids)

        def read(file: FileToRead) -> Iterator[pa.Table]:
            for rows in visible(file):
                shown = rows.select(self._columns)
                yield whole_images(shown) if self._is_partial else shown

        return read


def _ends(commits: Iterable[RangeCommit], numbers: dict[Bucket, int]) -> dict[int, list[int]]:
    """Return for each bucket the versions at which it is replaced, in order."""
    ends: dict[int, list[int]] = defaultdict(list)
    for commit in commits:
        for bucket in commit.resets:
            ends[numbers[bucket]].append(commit.version)
    return {number: sorted(versions) for number, versions in ends.items()}


def _next(versions: Sequence[int] | None, version: int) -> int:
    return next((later for later in versions or () if later > version), NONE)


def _same_as_before(values: Any) -> Any:
    return np.concatenate([np.zeros(min(len(values), 1), bool), values[1:] == values[:-1]])


def _shifted(values: Numbers, by: int, fill: int) -> Numbers:
    return np.concatenate([np.full(min(by, len(values)), fill), values[:-by]])


def _frame(rows: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Any:
    """Compare as Spark's <=> does: NULL equals NULL, NaN equals NaN, and 0.0 equals -0.0."""
    if pa.types.is_nested(left.type):
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        return np.array(
            [_comparable(left_value) == _comparable(right_value) for left_value, right_value in pairs], bool
        )
    equal = pc.fill_null(pc.equal(left, right), False)
    equal = pc.or_(equal, pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(left), pc.is_nan(right)), False))
    return equal.to_numpy()


def _comparable(value: Any) -> Any:
    match value:
        case float() if isnan(value):
            return "NaN"
        case dict():
            return {name: _comparable(field) for name, field in value.items()}
        case list() | tuple():
            return [_comparable(element) for element in value]
        case _:
            return value
