"""The changes of a table's rows in (since, until] with Arrow. `changes` has the same for Spark: it explains the events.

All of it is in memory: the rows that changed, and what they were before.
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
    """Rows that came or went with a version, in one bucket that is set anew, or in others (NONE)."""

    rows: pa.Table
    version: int
    bucket: int = NONE
    gone: Any = None  # a flag a row; None: all are there


@dataclass(frozen=True, slots=True)
class Entries:
    """What commits did to rows: the numbers of the old and the new row, the version, and a number of the identity."""

    before: Numbers
    after: Numbers
    versions: Numbers
    identities: Numbers
    sets: pa.ChunkedArray | None = (
        None  # where images set single columns: those of each, NULL of whole rows and of none
    )

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
        found = self._rows()
        if where is not None:
            found = found.filter(expression(where, self.schema))
        yield found.select(list(columns))

    def count(self, where: Predicate | None) -> int:
        return sum(map(len, self.tables(self.schema.names[:1], where, 0)))

    def _rows(self) -> pa.Table:
        commits = commits_of(self._table, self._begin, self._end)
        self._pinned = self._table.lake.pins.own_all(self._table.table_id, [commit.version for commit in commits])
        resets = dict.fromkeys(one for commit in commits for one in commit.resets)
        numbers = {bucket: at for at, bucket in enumerate(resets)}
        reader = _EventReader(self._table, self._written, commits, self._begin, numbers)
        events = [one for one in reader.events() if len(one.rows)]
        if not events:
            return self.schema.empty_table()
        whole = pa.concat_tables([one.rows for one in events])
        entries, whole = self._entries(events, whole, _ends(commits, numbers))
        differs = self._differs(entries, whole)
        entries = entries.where(differs) if self._mode == "log" else self._whole_range(entries, differs, whole)
        return self._shown(entries, whole, commits)

    # -- from events to entries

    def _entries(
        self, events: Sequence[Events], whole: pa.Table, ends: dict[int, list[int]]
    ) -> tuple[Entries, pa.Table]:
        """The entries, and the rows with every value that they have."""
        gone = np.concatenate([np.zeros(len(one.rows), bool) if one.gone is None else one.gone for one in events])
        versions = np.concatenate([np.full(len(one.rows), one.version) for one in events])
        end = np.concatenate([np.full(len(one.rows), _next(ends.get(one.bucket), one.version)) for one in events])
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
        found = Entries(
            np.concatenate([before, row[is_ended]]),
            after,
            np.concatenate([versions, end[is_ended]]),
            np.concatenate([identity, identity[is_ended]]),
            None if bits is None else bits.take(pa.array(after, mask=after == NONE)),
        )
        return found.where(found.versions > self._begin), whole

    def _identities(self, whole: pa.Table) -> Numbers:
        """A number for each row, equal for the events of one row."""
        if not self._keyed:
            found: Numbers = whole.column(ROW_ID).to_numpy()
            return found
        meta = self._table.meta
        partition = () if self._is_unique() else meta.partition_columns  # then a move is one update
        keys = _frame(whole.select(list(dict.fromkeys([*meta.primary_key, *partition]))))
        known = keys.unique().with_row_index(PLACE)
        numbered = keys.join(known, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
        return numbered[PLACE].cast(pl.Int64).to_numpy()

    def _is_unique(self) -> bool:
        """Whether no version of the range has a key in two partitions."""
        meta = self._table.meta
        if not key_spans_partitions(meta) or key_scope(meta) != "table":
            return False
        if KEY_CHECKED not in meta.properties:
            return True  # since it was made
        try:
            return self._begin >= 0 and key_scope(self._table.at(self._begin).meta) == "table"
        except GoneError:
            return False

    def _whole_range(self, entries: Entries, differs: Any, whole: pa.Table) -> Entries:
        """One entry for each row: before its first commit, after its last one, with the last version that changed it.

        Commits that wrote the same values count for the rows: 0.0 and -0.0 are the same value.
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
        found = Entries(sorted_.before[first], sorted_.after[last], changed_at, sorted_.identities[last], sets)
        return found.where(self._differs(found, whole))

    def _differs(self, entries: Entries, whole: pa.Table) -> Any:
        """Which of them are on one side only, or have other values there."""
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
        """The names that set columns have at the end of the range; dropped ones are left out."""
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
        """The rows of files that commits added, hidden or not."""
        for commit in self._commits:
            for file in commit.files:
                bucket = self._number(file.partition, file.bucket)
                for _, rows in read_tables(input_file(self._table, self._written, file, 0, None), self._schema):
                    gone = rows.column(OP).to_numpy() == TOMBSTONE if self._keyed else None
                    named = [*self._columns, *([SET] if self._is_partial else [])]
                    yield Events(rows.select(named), commit.version, bucket, gone)

    def _tombstones(self) -> Iterator[Events]:
        """The row ids in delete sets; if the commit also has an image of the row, the image counts."""
        for commit in self._commits:
            for one in commit.sets:
                ids = pa.array(positions_of(bitmap_of(self._table, one)).astype(np.int64))
                rows = pa.table(
                    [ids if field.name == ROW_ID else pa.nulls(len(ids), field.type) for field in self._shape],
                    schema=self._shape,
                )
                yield Events(rows, commit.version, self._number(one.partition, 0), np.ones(len(ids), bool))

    def _states(self) -> Iterator[Events]:
        """The contents of the buckets that a commit set anew, after the commit."""
        for commit in self._commits:
            if commit.resets:
                entries = entries_of(self._table, commit.version, None, commit.resets.values())
                yield from self._visible([one for one in entries if bucket_of(one) in commit.resets], commit.version)

    def _before(self, images: Sequence[Events]) -> Iterator[Events]:
        """The rows at the begin of the range that a commit in it may have touched."""
        touched = touched_buckets(self._commits, keyed=self._keyed)
        if not touched:
            return
        entries = entries_of(self._table, self._begin, None, touched.values())
        whole = [one for one in entries if bucket_of(one) in self._numbers]
        others = [one for one in entries if bucket_of(one) in touched and bucket_of(one) not in self._numbers]
        yield from self._visible(whole, self._begin)
        yield from self._with_keys(others, images) if self._keyed else self._with_ids(others)

    def _with_keys(self, entries: list[common_pb2.LiveEntry], images: Sequence[Events]) -> Iterator[Events]:
        """Only the rows whose key appears in the range."""
        names = list(dict.fromkeys([*self._table.meta.primary_key, *self._table.meta.partition_columns]))
        if not images or not entries:
            return
        wanted = _frame(pa.concat_tables([one.rows.select(names) for one in images])).unique()
        for one in self._visible(entries, self._begin):
            places = _frame(one.rows.select(names)).with_row_index(PLACE)
            near = places.join(wanted, on=names, how="semi", nulls_equal=True)[PLACE]
            yield Events(one.rows.take(pa.array(near.to_numpy())), one.version, one.bucket)

    def _with_ids(self, entries: list[common_pb2.LiveEntry]) -> Iterator[Events]:
        """Only the rows that the range hides, or gives new values."""
        hidden = BitMap64()
        for commit in self._commits:
            for one in commit.sets:
                hidden |= bitmap_of(self._table, one)
        near = [one for one in entries if one.HasField("delete_set") or within(hidden, *row_ids(one.file))]
        yield from self._visible(near, self._begin, positions_of(hidden))

    def _visible(
        self, entries: Sequence[common_pb2.LiveEntry], version: int, ids: Positions | None = None
    ) -> Iterator[Events]:
        """The rows that a snapshot's entries show, bucket by bucket; with `ids` the rows that have them."""
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

        def read(one: FileToRead) -> Iterator[pa.Table]:
            for rows in visible(one):
                shown = rows.select(self._columns)
                yield whole_images(shown) if self._is_partial else shown

        return read


def _ends(commits: Iterable[RangeCommit], numbers: dict[Bucket, int]) -> dict[int, list[int]]:
    """The versions at which each bucket is set anew, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for commit in commits:
        for bucket in commit.resets:
            found[numbers[bucket]].append(commit.version)
    return {number: sorted(versions) for number, versions in found.items()}


def _next(versions: Sequence[int] | None, version: int) -> int:
    return next((one for one in versions or () if one > version), NONE)


def _same_as_before(values: Any) -> Any:
    return np.concatenate([np.zeros(min(len(values), 1), bool), values[1:] == values[:-1]])


def _shifted(values: Numbers, by: int, fill: int) -> Numbers:
    return np.concatenate([np.full(min(by, len(values)), fill), values[:-by]])


def _frame(rows: pa.Table) -> pl.DataFrame:
    found = pl.from_arrow(rows)
    assert isinstance(found, pl.DataFrame)
    return found


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> Any:
    """Equal, as Spark's <=>: NULL equals NULL, NaN equals NaN, and 0.0 equals -0.0."""
    if pa.types.is_nested(one.type):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([_comparable(mine) == _comparable(its) for mine, its in pairs], bool)
    found = pc.fill_null(pc.equal(one, other), False)
    found = pc.or_(found, pc.and_(one.is_null(), other.is_null()))
    if pa.types.is_floating(one.type):
        found = pc.or_(found, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    return found.to_numpy()


def _comparable(value: Any) -> Any:
    match value:
        case float() if isnan(value):
            return "NaN"
        case dict():
            return {name: _comparable(one) for name, one in value.items()}
        case list() | tuple():
            return [_comparable(one) for one in value]
        case _:
            return value
