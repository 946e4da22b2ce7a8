"""Changes of a table's rows in (since, until]: by rows, regardless of files.

A row is identified by its primary key in its partition, or by its row id. For each row the logical commits of the range
become ordered events, together with the row as it was at `since`:

    image      the row has these values from version v on
    tombstone  the row is gone from version v on
    reset      the bucket (append table: the partition) contains at v only the images of v: all other rows are gone

A commit that only adds is read as it is: its files' rows are images and tombstones, its delete sets are tombstones. Any
other commit (overwrite, truncate, restore) resets its buckets to the snapshot at v. Compactions are not logical commits
and never appear. Neighbouring events of a row give the entries of the log; the log gives the other modes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.schema import CHANGE_TYPE, COMMIT_TIME, COMMIT_VERSION, OP, ROW_ID, TOMBSTONE, quoted
from worker.base.table_view import TableView
from worker.base.values import PartitionKey, partition_key
from worker.base.zones import zone_of
from worker.read.commits import (
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    Bucket,
    RangeCommit,
    bucket_of,
    check_mode,
    check_range,
    commits_of,
    touched_buckets,
)
from worker.read.file_identity import Tag, row_ids
from worker.read.file_layouts import plain
from worker.read.file_scans import TAGS
from worker.read.frames import Frames
from worker.read.hidden_ids import bitmap_of
from worker.read.hidden_rows import Span, hidden_rows
from worker.read.position_blocks import blocks_of, positions_of, within
from worker.read.scan import plan
from worker.read.versions import Point, version_at

VERSION: Final = "_laketx_version"
GONE: Final = "_laketx_gone"
BUCKET: Final = "_laketx_bucket"
ROW: Final = "_laketx_row"
BROADCAST_ROWS_MAX: Final = 1_000_000
JSON: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
END: Final = "_laketx_end"
BEFORE: Final = "_laketx_before"
AFTER: Final = "_laketx_after"


def read_changes(table: TableView, *, since: Point, until: Point | None = None, mode: str = "latest") -> DataFrame:
    """The rows that changed in (since, until], each with its kind of change, version and time.

    A point is an ID version, or a time as text or datetime. The columns are those of the table at `until`.
    """
    check_mode(mode)
    zone = partial(zone_of, table.lake)
    begin = version_at(table, since, zone)
    end = table.client.resolve_version(table.table_id).version if until is None else version_at(table, until, zone)
    check_range(begin, end)
    then = table.at(end)
    _check_columns(then.meta)
    commits = commits_of(table, begin, end)
    table.lake.pins.hold(table.table_id, {begin, end, *(commit.version for commit in commits)})
    reader = _Reader(then, begin, commits)
    log = reader.log()
    if log is None:
        return reader.nothing()
    return reader.as_rows(log if mode == "log" else reader.ends(log), mode)


def _check_columns(meta: catalog_pb2.Table) -> None:
    """Refuses reserved column names, which tables from before the reservation may have."""
    for column in meta.columns:
        if column.name.lower() in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIME):
            raise InputError("COLUMN_RESERVED", f"{column.name} is a column of increments themselves: rename it")


# -- rows --------------------------------------------------------------------------------------------------------------


class _Reader:
    """The events of one table and range, under the schema of its end."""

    def __init__(self, table: TableView, begin: int, commits: Sequence[RangeCommit]) -> None:
        self._table = table
        self._spark = table.spark
        self._meta = meta = table.meta
        self._begin = begin
        self._commits = commits
        self._keyed = bool(meta.primary_key)
        resets = dict.fromkeys(one for commit in commits for one in commit.resets)
        self._numbers: dict[Bucket, int] = {one: at for at, one in enumerate(resets)}
        self._frames = Frames(table, with_origin=not self._keyed)
        self._names = [column.name for column in meta.columns]
        self._identity = [*meta.primary_key, *meta.partition_columns] if self._keyed else [ROW_ID]
        self._keys = [f"_laketx_k{at}" for at in range(len(self._identity))]

    def nothing(self) -> DataFrame:
        """An empty increment."""
        empty = Frames(self._table).shown([])
        return empty.select(
            "*",
            sf.lit("").alias(CHANGE_TYPE),
            sf.lit(0).cast("bigint").alias(COMMIT_VERSION),
            sf.lit(None).cast(t.TimestampType()).alias(COMMIT_TIME),
        )

    def log(self) -> DataFrame | None:
        """An entry for each row that a commit changed: identity, old and new values, version."""
        before = self._before()
        events = [*before, *self._images(), *self._tombstones(), *self._states()]
        if not events:
            return None
        merged = reduce(DataFrame.unionAll, events)
        if self._only_inserts():
            none = sf.lit(None).cast(self._row_type()).alias(BEFORE)
            return merged.select(*self._keys, none, sf.col(ROW).alias(AFTER), VERSION)
        return self._entries(merged)

    def _only_inserts(self) -> bool:
        """New rows of an append table that nothing in the range touches."""
        plain_files = all(not one.carries_row_ids for commit in self._commits for one in commit.files)
        return not self._keyed and plain_files and not any(commit.sets or commit.resets for commit in self._commits)

    # -- events: identity, values, version, whether it is gone, bucket

    def _event(self, rows: DataFrame, gone: Column) -> DataFrame:
        """Events of rows that carry their version and bucket as tags."""
        values = sf.struct(*(sf.col(quoted(name)) for name in self._names))
        keys = [sf.col(quoted(name)).alias(key) for name, key in zip(self._identity, self._keys, strict=True)]
        version, bucket = (sf.col(name) for name in TAGS)
        return rows.select(*keys, values.alias(ROW), version.alias(VERSION), gone.alias(GONE), bucket.alias(BUCKET))

    def _tag(self, version: int) -> Callable[[common_pb2.DataFile], Tag]:
        return lambda file: (version, self._number(partition_key(file.partition), file.bucket))

    def _number(self, partition: PartitionKey, bucket: int) -> int:
        """A number for each bucket that is reset in the range; other buckets have none."""
        return self._numbers.get((partition, bucket), -1)

    def _images(self) -> list[DataFrame]:
        """The rows of files that commits added."""
        files = [(one, self._tag(commit.version)(one)) for commit in self._commits for one in commit.files]
        if not files:
            return []
        gone = sf.col(OP).eqNullSafe(TOMBSTONE) if self._keyed else sf.lit(False)  # base files have no word of it
        return [self._event(self._frames.written(files, with_op=self._keyed), gone)]

    def _tombstones(self) -> list[DataFrame]:
        """The row ids in delete sets; if the commit also has an image of the row, the image counts."""
        ids, versions, numbers = [], [], []
        for commit in self._commits:
            for one in commit.sets:
                found = positions_of(bitmap_of(self._table, one)).astype(np.int64)
                ids.append(found)
                versions.append(np.full(len(found), commit.version, np.int64))
                numbers.append(np.full(len(found), self._number(partition_key(one.partition), 0), np.int64))
        if not ids:
            return []
        columns = [np.concatenate(parts) for parts in (ids, versions, numbers)]
        listed = self._spark.createDataFrame(pa.table(columns, names=[self._keys[0], VERSION, BUCKET]))
        row = sf.lit(None).cast(self._row_type()).alias(ROW)
        return [listed.select(self._keys[0], row, VERSION, sf.lit(True).alias(GONE), BUCKET)]

    def _states(self) -> list[DataFrame]:
        """The contents of the buckets that a commit reset, after the commit."""
        found = []
        for commit in self._commits:
            if commit.resets:
                entries = [
                    one
                    for one in plan(self._table, commit.version, None, commit.resets.values())
                    if bucket_of(one) in commit.resets
                ]
                found.append(self._state(entries, commit.version))
        return [state for state in found if state is not None]

    def _state(self, entries: Sequence[common_pb2.LiveEntry], version: int) -> DataFrame | None:
        if not any(one.HasField("file") for one in entries):
            return None
        return self._shown_event(entries, version)

    def _shown_event(self, entries: Sequence[common_pb2.LiveEntry], version: int) -> DataFrame | None:
        rows = self._frames.shown(entries, self._tag(version))
        if TAGS[0] not in rows.columns:
            return None  # all of it was hidden
        return self._event(rows, sf.lit(False))

    def _before(self) -> list[DataFrame]:
        """The rows at the begin of the range that a commit in it may have touched."""
        touched = touched_buckets(self._commits, keyed=self._keyed)
        if not touched:
            return []
        entries = plan(self._table, self._begin, None, touched.values())
        whole = [one for one in entries if bucket_of(one) in self._numbers]
        others = [one for one in entries if bucket_of(one) in touched and bucket_of(one) not in self._numbers]
        found = [self._state(whole, self._begin), self._touched_rows(others)]
        return [one for one in found if one is not None]

    def _touched_rows(self, entries: list[common_pb2.LiveEntry]) -> DataFrame | None:
        """In buckets that are never reset, only the rows whose key or id appears in the range."""
        if self._keyed:
            event = self._state(entries, self._begin)
            if event is None:
                return None
            files = [(one, (0, 0)) for commit in self._commits for one in commit.files]
            keys = self._event(self._frames.written(files, with_op=True), sf.lit(False)).select(*self._keys)
            if sum(one.rows for one, _ in files) <= BROADCAST_ROWS_MAX:
                keys = sf.broadcast(keys)
            same = reduce(Column.__and__, [event[key].eqNullSafe(keys[key]) for key in self._keys])
            return event.join(keys, same, "left_semi")
        hidden = BitMap64()
        for commit in self._commits:
            for one in commit.sets:
                hidden |= bitmap_of(self._table, one)
        near = [one for one in entries if one.HasField("delete_set") or within(hidden, *row_ids(one.file))]
        event = self._state(near, self._begin)
        if event is None:
            return None
        ids = [row_ids(one.file) for one in near if one.HasField("file")]
        span = Span(0, min(first for first, _ in ids), max(last for _, last in ids))
        of_these = within(hidden, span.first, span.last)  # the range also hides rows that came in it, or elsewhere
        found = hidden_rows(self._spark, [span], blocks_of(positions_of(of_these)))
        return found.only(event, "0L", self._keys[0])

    # -- from events to entries

    def _entries(self, events: DataFrame) -> DataFrame:
        by_row = Window.partitionBy(*self._keys)
        # An image and a tombstone of one commit: the image counts, and comes first.
        earlier = sf.lag(VERSION).over(by_row.orderBy(VERSION, GONE))
        events = events.withColumn("_laketx_earlier", earlier)
        events = events.filter("_laketx_earlier is null or _laketx_earlier <> " + VERSION).drop("_laketx_earlier")
        in_order = by_row.orderBy(VERSION)
        row = sf.when(~sf.col(GONE), sf.col(ROW))
        neighbours = events.select(
            *self._keys,
            VERSION,
            row.alias(ROW),
            self._end().alias(END),
            sf.lag(row).over(in_order).alias(BEFORE),
            sf.lag(self._end()).over(in_order).alias("_laketx_ended"),
            sf.lead(VERSION).over(in_order).alias("_laketx_next"),
        )
        row, end = sf.col(ROW), sf.col(END)
        had_ended = sf.coalesce(sf.col("_laketx_ended") < sf.col(VERSION), sf.lit(False))
        before = sf.when(~had_ended, sf.col(BEFORE))
        is_ended = row.isNotNull() & end.isNotNull() & sf.coalesce(end < sf.col("_laketx_next"), sf.lit(True))
        own = sf.struct(before.alias(BEFORE), row.alias(AFTER), sf.col(VERSION))
        none = sf.lit(None).cast(self._row_type())
        ended = sf.struct(row.alias(BEFORE), none.alias(AFTER), end.alias(VERSION))
        both = sf.array(own, sf.when(is_ended, ended)) if self._numbers else sf.array(own)
        entries = neighbours.select(*self._keys, sf.explode(sf.array_compact(both)).alias("entry"))
        entries = entries.select(*self._keys, "entry.*")
        return entries.filter((sf.col(VERSION) > self._begin) & self._differ(sf.col(BEFORE), sf.col(AFTER)))

    def _end(self) -> Column:
        """The first version after an event at which its bucket is reset."""
        ends: dict[int, list[int]] = defaultdict(list)
        for commit in self._commits:
            for bucket in commit.resets:
                ends[self._number(*bucket)].append(commit.version)
        if not ends:
            return sf.lit(None).cast("bigint")
        resets = sf.array(*(sf.array(*map(_long, sorted(ends[number]))) for number in sorted(ends)))
        of_bucket = sf.when(sf.col(BUCKET) >= 0, sf.get(resets, sf.col(BUCKET).cast("int")))
        return sf.get(sf.filter(of_bucket, lambda version: version > sf.col(VERSION)), sf.lit(0))

    def _differ(self, before: Column, after: Column) -> Column:
        """Whether the row exists on one side only, or with other values."""
        one_side = before.isNull() != after.isNull()
        names = [name for name in self._names if name not in self._identity]
        kinds = {field.name: field.dataType for field in self._row_type().fields}
        other = [~_same(before, after, name, kinds[name]) for name in names]
        both = before.isNotNull() & after.isNotNull()
        return one_side | (both & reduce(Column.__or__, other)) if other else one_side

    def _row_type(self) -> t.StructType:
        return t.StructType([t.StructField(one.name, plain(one.dataType)) for one in self._frames.target.fields])

    def ends(self, log: DataFrame) -> DataFrame:
        """Combines the entries of a row into one: before the first and after the last."""
        whole = log.groupBy(*self._keys).agg(
            sf.min_by(BEFORE, VERSION).alias(BEFORE),
            sf.max_by(AFTER, VERSION).alias(AFTER),
            sf.max(VERSION).alias(VERSION),
        )
        return whole.filter(self._differ(sf.col(BEFORE), sf.col(AFTER)))

    def as_rows(self, entries: DataFrame, mode: str) -> DataFrame:
        """An entry as one row or two."""
        kinds = []
        if mode != "latest":
            kinds += [(DELETE, BEFORE, AFTER, False), (PREIMAGE, BEFORE, AFTER, True)]
        kinds += [(INSERT, AFTER, BEFORE, False), (POSTIMAGE, AFTER, BEFORE, True)]
        shown = sf.array(
            *(
                sf.when(
                    sf.col(mine).isNotNull() & (sf.col(other).isNotNull() if is_update else sf.col(other).isNull()),
                    sf.struct(sf.lit(kind).alias("kind"), sf.col(mine).alias("row")),
                )
                for kind, mine, other, is_update in kinds
            )
        )
        rows = entries.select(sf.explode(sf.array_compact(shown)).alias("shown"), VERSION)
        versions = [commit.version for commit in self._commits]
        times = [commit.time_us for commit in self._commits]
        known = self._spark.createDataFrame(pa.table({COMMIT_VERSION: versions, COMMIT_TIME: times}))
        return rows.join(sf.broadcast(known), rows[VERSION] == known[COMMIT_VERSION]).select(
            *(sf.col("shown.row").getField(name).alias(name) for name in self._names),
            sf.col("shown.kind").alias(CHANGE_TYPE),
            COMMIT_VERSION,
            sf.timestamp_micros(COMMIT_TIME).alias(COMMIT_TIME),
        )


def _long(number: int) -> Column:
    return sf.lit(number).cast("bigint")


def _same(before: Column, after: Column, name: str, kind: t.DataType) -> Column:
    """Equal, and NULL equals NULL. Spark doesn't compare maps, so they are compared as JSON."""
    one, other = before.getField(name), after.getField(name)
    if not _has_map(kind):
        return one.eqNullSafe(other)
    return _json(one).eqNullSafe(_json(other))


def _json(value: Column) -> Column:
    return sf.to_json(sf.struct(value.alias("v")), JSON)


def _has_map(kind: t.DataType) -> bool:
    match kind:
        case t.MapType():
            return True
        case t.ArrayType():
            return _has_map(kind.elementType)
        case t.StructType():
            return any(_has_map(one.dataType) for one in kind.fields)
        case _:
            return False
