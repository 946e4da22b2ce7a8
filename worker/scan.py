"""A table's rows at a version as a DataFrame: from the plan of MetaService to Spark's own Parquet reader.

Clean files are read as they are. Dirty ones (rows of theirs are hidden) are a second scan, with the hidden rows' words
anti-joined (`merge_on_read`). The schema is always given, with column ids as Parquet field ids, so that a file of an
older schema is read right: by id, not by name.

Names may lie all the same: Spark pushes filters down by name, and a file may have another column of that name. Files
whose names say something else than the schema that is read are therefore read under their own names and renamed above.

Partition columns are stored in the files, and read from there. External files are the exception: they have no ids, are
read by name, and what they lack of the partition columns comes from their entries.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum, auto
from functools import reduce
from typing import Any, Final, Protocol

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.client import InvalidError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker import classic
from worker import merge_on_read as mor
from worker.errors import InputError
from worker.pins import Pins, pins_of
from worker.predicates import EPOCH, MICROSECOND, renamed, session_zone, to_wire
from worker.schema import FIELD_ID, FILE, OP, ROW_ID, columns_schema
from worker.spark_jobs import is_classic
from worker.staging import storage

PATH: Final = "_laketx_path"
AT: Final = "_laketx_at"
FIRST: Final = "_laketx_first"
TAGS: Final = ("_laketx_tag0", "_laketx_tag1")
HASH: Final = "_laketx_hash"
SIZE: Final = "_laketx_size"
NUMBER: Final = "_laketx_number"
PLANS_MAX: Final = 5
NUMBER_BITS: Final = 32
ALIKE_MAX: Final = 3  # files of one size: each has a scan of its own then
BY_NAME: Final = ALIKE_MAX << NUMBER_BITS
KEY_BITS: Final = NUMBER_BITS + ALIKE_MAX.bit_length()
WIDE_ROW_ID: Final = (64 << 64 - KEY_BITS) - 1
PATHS_ONE_BY_ONE: Final = 10
LISTED_IN_DRIVER: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_SAFE: Final = re.compile(r"[A-Za-z0-9._=/-]+\Z")

PartitionKey = tuple[tuple[str, bytes], ...]
Tag = tuple[int, int]  # two numbers that a file's rows are to carry


class LakeLike(Protocol):
    """What a read asks of a lake."""

    @property
    def client(self) -> MetaClient: ...
    @property
    def spark(self) -> SparkSession: ...
    def at_close(self, work: Callable[[], None], /) -> None: ...


class TableLike(Protocol):
    """What a read asks of a table."""

    @property
    def lake(self) -> LakeLike: ...
    @property
    def table_id(self) -> str: ...
    @property
    def folder(self) -> str: ...


# -- the front ---------------------------------------------------------------------------------------------------------


def read(
    table: TableLike,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
    where: str | Column | None = None,
) -> DataFrame:
    """The rows of one version, pinned until the lake closes; of the newest where none is asked for.

    `where` as text prunes files before Spark sees them; a Column filters rows alone.
    """
    found = resolve(table, version=version, timestamp=timestamp, commits_ago=commits_ago)
    if isinstance(where, Column):
        return read_at(table, found).filter(where)
    return read_at(table, found, where=where)


def read_at(table: TableLike, version: int, *, where: str | None = None, with_origin: bool = False) -> DataFrame:
    """The rows of a version that somebody holds; with their file and, in an append table, their row id."""
    meta = table.lake.client.get_table(table_id=table.table_id, version=version)
    entries = plan(table, meta, version, where)
    rows = frame_of(table, meta, entries, with_origin=with_origin)
    return rows if where is None else rows.filter(where)


def resolve(
    table: TableLike,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
) -> int:
    """The version asked for, pinned until the lake closes."""
    return _resolve(table, pins_of(table.lake), version, timestamp, commits_ago)


def _resolve(
    table: TableLike, pins: Pins, version: int | None, timestamp: str | datetime | None, commits_ago: int | None
) -> int:
    if sum(asked is not None for asked in (version, timestamp, commits_ago)) > 1:
        raise InputError("VERSION_AMBIGUOUS", "version, timestamp or commits_ago: one of them")
    if timestamp is not None:
        time_us = time_us_of(timestamp, table.lake.spark)
        version = table.lake.client.resolve_version(table.table_id, time_us=time_us).version
    elif commits_ago is not None:
        version = table.lake.client.resolve_version(table.table_id, commits_ago=commits_ago).version
    if version is None:
        return pins.hold_head(table.table_id)
    pins.hold(table.table_id, [version])
    return version


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version that is pinned while the block lasts."""

    table: TableLike
    version: int

    def read(self, *, where: str | Column | None = None) -> DataFrame:
        """Its rows; to be used inside the block."""
        if isinstance(where, Column):
            return read_at(self.table, self.version).filter(where)
        return read_at(self.table, self.version, where=where)


@contextmanager
def snapshot(
    table: TableLike,
    *,
    version: int | None = None,
    timestamp: str | datetime | None = None,
    commits_ago: int | None = None,
) -> Iterator[Snapshot]:
    """One version for several reads."""
    pins = Pins(table.lake.client)
    try:
        yield Snapshot(table, _resolve(table, pins, version, timestamp, commits_ago))
    finally:
        pins.close()


def time_us_of(moment: str | datetime, spark: SparkSession) -> int:
    """Microseconds; without a zone of its own the moment is one of the session's time zone."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise InputError("TIMESTAMP_INVALID", f"{moment!r} is no time like 2026-11-01 10:00:00") from None
    if moment.tzinfo is None:
        zone = session_zone(spark)
        if zone is None:
            raise InputError("TIMESTAMP_INVALID", "the session's time zone is unknown here: give one with the time")
        moment = moment.replace(tzinfo=zone)
    return (moment.astimezone(UTC) - EPOCH) // MICROSECOND


# -- plans -------------------------------------------------------------------------------------------------------------


def plan(
    table: TableLike,
    meta: catalog_pb2.Table,
    version: int,
    where: str | None = None,
    partitions: Sequence[common_pb2.Partition] = (),
) -> list[common_pb2.LiveEntry]:
    """The entries that a read of the version needs. MetaService knows columns by their newest names."""
    client, spark = table.lake.client, table.lake.spark
    condition = None if where is None else to_wire(where, meta, spark)
    if condition is None or condition.WhichOneof("kind") == "literal":
        return _entries(client, table.table_id, version, None, partitions)
    for _ in range(PLANS_MAX):
        newest = client.get_table(table_id=table.table_id)
        predicate = renamed(condition, _names(meta, newest))
        try:
            found = _entries(client, table.table_id, version, predicate, partitions)
        except InvalidError as error:
            if error.reason not in ("COLUMN_UNKNOWN", "VALUE_TYPE_MISMATCH"):
                raise
            continue
        if client.get_table(table_id=table.table_id).schema_version == newest.schema_version:
            return found
    return _entries(client, table.table_id, version, None, partitions)


def _entries(
    client: MetaClient,
    table_id: str,
    version: int,
    predicate: common_pb2.Predicate | None,
    partitions: Sequence[common_pb2.Partition],
) -> list[common_pb2.LiveEntry]:
    parts = client.plan_scan(table_id, version=version, predicate=predicate, partitions=partitions, without_stats=True)
    return [entry for part in parts for entry in part.entries]


def _names(meta: catalog_pb2.Table, newest: catalog_pb2.Table) -> dict[str, str]:
    """From names at a version to the newest ones, where a value means the same under both types."""
    now = {column.column_id: column for column in newest.columns}
    return {
        column.name: now[column.column_id].name
        for column in meta.columns
        if column.column_id in now and _family(column.type) == _family(now[column.column_id].type)
    }


def _family(kind: str) -> str:
    if kind in ("tinyint", "smallint", "int", "bigint"):
        return "integer"
    return "decimal" if kind.startswith("decimal") else kind


def partition_key(partition: common_pb2.Partition) -> PartitionKey:
    return tuple(sorted((one.column, one.value.SerializeToString(deterministic=True)) for one in partition.values))


# -- frames ------------------------------------------------------------------------------------------------------------


def frame_of(
    table: TableLike,
    meta: catalog_pb2.Table,
    entries: Iterable[common_pb2.LiveEntry],
    *,
    with_origin: bool = False,
) -> DataFrame:
    """The rows that the entries show together, under a schema."""
    return Frames(table, meta, with_origin=with_origin).shown(list(entries))


@dataclass(frozen=True, slots=True)
class Layout:
    """How files are read: the schema given to Spark, and what makes the table's columns of it unless it is theirs."""

    schema: t.StructType
    columns: tuple[Column, ...]
    tag: object
    is_target: bool = False


class Told(Enum):
    """How a row's file is told in a scan, where that matters."""

    NOT = auto()
    BY_SIZE = auto()  # Spark knows it as a number, for free; files of one size are of different scans
    BY_PATH = auto()  # by a hash of it
    ALONE = auto()  # the only file of its scan


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a plan; `number` is what its words go by, no other file that is read beside it has it."""

    file: common_pb2.DataFile
    data_version: int
    told: Told = Told.NOT
    number: int = 0
    hidden: BitMap64 | None = field(default=None, compare=False)
    tag: Tag | None = None

    @property
    def alike(self) -> int:
        """How many files of its size come before it."""
        return self.number >> NUMBER_BITS if self.told is Told.BY_SIZE else 0


@dataclass(frozen=True, slots=True)
class _Part:
    """Files of one scan. `alone`: a single file, whose path Spark may spell in another way."""

    layout: Layout
    files: tuple[_File, ...]
    has_own_ids: bool = False
    alone: bool = False
    is_delta: bool = False

    @property
    def told(self) -> Told:
        return self.files[0].told

    @property
    def is_tagged(self) -> bool:
        return self.files[0].tag is not None


class Frames:
    """Makes DataFrames of the entries of one table, all under one of its schemas."""

    def __init__(self, table: TableLike, meta: catalog_pb2.Table, *, with_origin: bool = False) -> None:
        self._table = table
        self._spark = table.lake.spark
        self._meta = meta
        self._with_origin = with_origin
        self.target = columns_schema(list(meta.columns), nullable=True)
        self._layouts: dict[object, Layout] = {}
        self._schemas: dict[int, list[catalog_pb2.Column]] | None = None
        self._prefix: str | None = None

    # -- what a table shows

    def shown(
        self,
        entries: Sequence[common_pb2.LiveEntry],
        tag: Callable[[common_pb2.DataFile], Tag] | None = None,
    ) -> DataFrame:
        """The rows of a snapshot's entries; with their files' tags in the columns TAGS, where there are rows."""
        files = [
            _File(entry.file, entry.data_version, tag=None if tag is None else tag(entry.file))
            for entry in entries
            if entry.WhichOneof("entry") == "file"
        ]
        if self._meta.primary_key:
            return self._union(self._keyed(files))
        sets = [entry for entry in entries if entry.WhichOneof("entry") == "delete_set"]
        return self._union(self._appended(self._with_hidden(files, sets)))

    def written(self, files: Iterable[tuple[common_pb2.DataFile, Tag]], *, with_op: bool = False) -> DataFrame:
        """All the rows in files, hidden or not, with their tags; with the tombstones of deltas and their column."""
        parts = self._parts([_File(file, 0, tag=tag) for file, tag in files])
        return self._union([self._select(part, self._native(part, with_op=with_op), with_op=with_op) for part in parts])

    def _union(self, frames: Iterable[DataFrame]) -> DataFrame:
        listed = list(frames)
        if not listed:
            return self._empty()
        return reduce(DataFrame.unionAll, listed)

    def _empty(self) -> DataFrame:
        fields = [t.StructField(one.name, one.dataType) for one in self.target.fields]
        if self._with_origin:
            fields.append(t.StructField(FILE, t.StringType()))
            if not self._meta.primary_key:
                fields.append(t.StructField(ROW_ID, t.LongType()))
        columns = [sf.lit(None).cast(plain(one.dataType)).alias(one.name) for one in fields]
        return self._spark.range(1).filter(sf.lit(False)).select(*columns)  # Spark sees that there is nothing to run

    # -- append tables

    def _with_hidden(self, files: Sequence[_File], sets: Sequence[common_pb2.LiveEntry]) -> Iterator[_File]:
        """The files with the row ids of theirs that are hidden; one that shows nothing is left out."""
        by_partition: dict[PartitionKey, list[common_pb2.LiveEntry]] = defaultdict(list)
        for entry in sets:
            by_partition[partition_key(entry.delete_set.partition)].append(entry)
        hiding: dict[PartitionKey, list[_File]] = defaultdict(list)
        for one in files:
            key = partition_key(one.file.partition) if by_partition else ()
            if key in by_partition:
                hiding[key].append(one)
            else:
                yield one
        for key, listed in hiding.items():
            yield from self._hide(listed, by_partition[key])

    def _hide(self, files: list[_File], sets: list[common_pb2.LiveEntry]) -> Iterator[_File]:
        """From the newest file to the oldest, more and more sets take part."""
        waiting = sorted(sets, key=lambda entry: entry.data_version)
        hidden = BitMap64()
        for one in sorted(files, key=lambda one: -one.data_version):
            while waiting and waiting[-1].data_version > one.data_version:
                hidden |= self.bitmap(waiting.pop().delete_set)
            first, last = row_ids(one.file)
            found = mor.within(hidden, first, last)
            if len(found) < one.file.rows or one.file.carries_row_ids:
                yield replace(one, hidden=found or None)

    def bitmap(self, delete_set: common_pb2.DeleteSet) -> BitMap64:
        payload = delete_set.bitmap
        if not payload:
            files, path = storage(self._path(delete_set.path))
            with files.open_input_stream(path) as stream:
                payload = stream.read()
        return BitMap64.deserialize(payload)

    def _appended(self, files: Iterable[_File]) -> Iterator[DataFrame]:
        listed = list(files)
        for part in self._parts([one for one in listed if one.hidden is None]):
            yield self._select(part, self._native(part))
        for part, rows in self._told_parts([one for one in listed if one.hidden is not None]):
            by_id = part.has_own_ids
            last = max(row_ids(one.file)[1] if by_id else one.file.rows for one in part.files)
            bits = (last >> 6).bit_length()
            words = self._spark.createDataFrame(mor.words_table(self._words(one, bits, by_id) for one in part.files))
            position = self._row_id(part) if by_id else AT
            yield self._select(part, mor.without_hidden(rows, words, self._word(part, position, bits), position))

    @staticmethod
    def _words(one: _File, bits: int, by_id: bool) -> tuple[Any, Any]:
        positions = mor.positions_of(one.hidden or BitMap64())
        if not by_id:
            positions = positions - one.file.first_row_id
        return mor.words_of(positions, mor.word_key(one.number, bits))

    @staticmethod
    def _row_id(part: _Part) -> str:
        by_place = f"{FIRST} + {AT}"
        return f"coalesce({ROW_ID}, {by_place})" if part.has_own_ids else by_place

    # -- primary-key tables

    def _keyed(self, files: Sequence[_File]) -> Iterator[DataFrame]:
        buckets: dict[tuple[PartitionKey, int], list[_File]] = defaultdict(list)
        for one in files:
            buckets[partition_key(one.file.partition), one.file.bucket].append(one)
        clean: list[_File] = []
        dirty: list[list[_File]] = []
        for bucket in buckets.values():
            if len({one.data_version for one in bucket}) == 1:
                clean += bucket  # within one version no key comes twice
            else:
                dirty.append(bucket)
        for part in self._parts(clean, apart_deltas=True):
            rows = self._native(part, with_op=part.is_delta)
            yield self._select(part, rows.filter(sf.col(OP) != mor.TOMBSTONE) if part.is_delta else rows)
        if dirty:
            yield from self._merged(dirty)

    def _merged(self, buckets: list[list[_File]]) -> Iterator[DataFrame]:
        bits = (max(one.file.rows for bucket in buckets for one in bucket) >> 6).bit_length()
        parts = self._told_parts([one for bucket in buckets for one in bucket])
        told = {id(one.file): one for part, _ in parts for one in part.files}
        work = [mor.Bucket(tuple(self._key_file(told[id(one.file)], bits) for one in bucket)) for bucket in buckets]
        words = mor.hidden_by_key(self._spark, work)
        for part, rows in parts:
            yield self._select(part, mor.without_hidden(rows, words, self._word(part, AT, bits), AT))

    def _key_file(self, one: _File, bits: int) -> mor.KeyFile:
        ids = {column.name: column.column_id for column in self._meta.columns}
        wanted = [ids[name] for name in self._meta.primary_key]
        names = {column.column_id: column.name for column in self._columns_of(one.file)}
        return mor.KeyFile(
            self._path(one.file.path),
            one.data_version,
            mor.word_key(one.number, bits),
            tuple(names[column_id] for column_id in wanted),
            one.file.kind == common_pb2.FILE_KIND_DELTA,
        )

    # -- files to frames

    def _told_parts(self, files: Sequence[_File]) -> list[tuple[_Part, DataFrame]]:
        """Files of which rows are hidden, in scans in which each row's file is told.

        By its size, if what the entries say of sizes is what Spark finds; or else a row that is hidden would show.
        """
        found = [(part, self._scan(part)) for part in self._parts(self._by_size(files))]
        if not all(self._has_sizes(part, rows) for part, rows in found if part.told is Told.BY_SIZE):
            found = [(part, self._scan(part)) for part in self._parts(self._by_path(files))]
        return [(part, self._with_origins(part, rows)) for part, rows in found]

    def _by_size(self, files: Sequence[_File]) -> list[_File]:
        seen: Counter[int] = Counter()
        found, others = [], []
        for one in files:
            size = one.file.bytes
            wide = size >> NUMBER_BITS or (one.file.carries_row_ids and row_ids(one.file)[1] > WIDE_ROW_ID)
            if wide or seen[size] >= ALIKE_MAX:
                others.append(one)
            else:
                found.append(replace(one, told=Told.BY_SIZE, number=seen[size] << NUMBER_BITS | size))
                seen[size] += 1
        return found + self._by_path(others)

    def _by_path(self, files: Sequence[_File]) -> list[_File]:
        taken: set[int] = set()
        found = []
        for one in files:
            wide = one.file.carries_row_ids and row_ids(one.file)[1] > WIDE_ROW_ID
            number = self._path_hash(one.file) if _is_plain(one.file) else len(taken)
            told = Told.ALONE if wide or number in taken or not _is_plain(one.file) else Told.BY_PATH
            while number in taken:
                number = (number + 1) % (1 << NUMBER_BITS)
            taken.add(number)
            found.append(replace(one, told=told, number=BY_NAME | number))
        return found

    def _path_hash(self, file: common_pb2.DataFile) -> int:
        return mor.xxhash64(self._spelled(file)) & ((1 << NUMBER_BITS) - 1)

    @staticmethod
    def _has_sizes(part: _Part, rows: DataFrame) -> bool:
        """Whether the files are together as large as their entries say."""
        return classic.listed_bytes(rows) == sum(one.file.bytes for one in part.files)

    def _spelled(self, file: common_pb2.DataFile) -> str:
        """The path as Spark shows it in a scan; where that isn't sure the entry's own, which never looks like it."""
        return self._path_prefix(file) + file.path if _is_plain(file) else "/" + file.path

    def _parts(self, files: Sequence[_File], *, apart_deltas: bool = False) -> list[_Part]:
        """Files that can be read together."""
        groups: dict[tuple[object, ...], list[_File]] = defaultdict(list)
        for one in files:
            layout = self._layout(one.file)
            alone = self._stands_alone(one)
            is_delta = apart_deltas and one.file.kind == common_pb2.FILE_KIND_DELTA
            key = (layout.tag, one.file.carries_row_ids, one.file.path if alone else "", is_delta, one.alike, one.told)
            groups[key].append(one)
        return [
            _Part(self._layout(listed[0].file), tuple(listed), bool(own_ids), bool(alone), bool(is_delta))
            for (_, own_ids, alone, is_delta, _, _), listed in groups.items()
        ]

    def _stands_alone(self, one: _File) -> bool:
        """Where nothing in the scan tells its rows, or the path must be known and Spark may spell it in another way."""
        is_shown = self._with_origin or one.tag is not None
        return one.told is Told.ALONE or (is_shown and not _is_plain(one.file))

    def _native(self, part: _Part, *, with_op: bool = False) -> DataFrame:
        """The files' rows under their layout's schema, with what is needed beside."""
        return self._with_origins(part, self._scan(part, with_op=with_op))

    def _scan(self, part: _Part, *, with_op: bool = False) -> DataFrame:
        schema = t.StructType(list(part.layout.schema.fields))
        if part.has_own_ids:
            schema.add(ROW_ID, t.LongType())
        if with_op:
            schema.add(OP, t.IntegerType())
        return read_files(self._spark, schema, [self._path(one.file.path) for one in part.files])

    def _with_origins(self, part: _Part, rows: DataFrame) -> DataFrame:
        """What tells of each row where it comes from."""
        is_told, is_shown = part.told is not Told.NOT, self._with_origin or part.is_tagged
        if not (is_told or is_shown):
            return rows
        origin = rows.metadataColumn("_metadata")
        facts = [origin.getField("row_index").alias(AT)]
        if part.told is Told.BY_SIZE:
            facts.append(origin.getField("file_size").alias(SIZE))
        if part.told is Told.BY_PATH or is_shown:
            facts.append(origin.getField("file_path").alias(PATH))
        rows = rows.select("*", *facts)
        if part.told is Told.BY_PATH:
            rows = rows.withColumn(NUMBER, self._number_of_path(part))
        needs_first = not self._meta.primary_key and (self._with_origin or (part.has_own_ids and is_told))
        return self._with_facts(part, rows, needs_first=needs_first)

    def _with_facts(self, part: _Part, rows: DataFrame, *, needs_first: bool) -> DataFrame:
        """What is known of each row's file: the id of its first row, its tag."""
        facts: dict[str, list[int]] = {}
        if needs_first:
            facts[FIRST] = [one.file.first_row_id for one in part.files]
        if part.is_tagged:
            tags = [one.tag or (0, 0) for one in part.files]
            facts |= {name: [tag[at] for tag in tags] for at, name in enumerate(TAGS)}
        for name, values in facts.items():
            if len(set(values)) == 1:
                rows = rows.withColumn(name, sf.lit(values[0]).cast("bigint"))
        differing = {name: values for name, values in facts.items() if len(set(values)) > 1}
        if not differing:
            return rows
        if part.told is Told.BY_SIZE:
            file_keys, row_key = [one.file.bytes for one in part.files], sf.col(SIZE)
        else:
            file_keys, row_key = [mor.xxhash64(self._spelled(one.file)) for one in part.files], sf.xxhash64(PATH)
        if len(set(file_keys)) < len(file_keys):
            raise AssertionError("two files of one key")
        known = self._spark.createDataFrame(pa.table({HASH: pa.array(file_keys, pa.int64()), **differing}))
        return rows.join(sf.broadcast(known), row_key == known[HASH]).drop(HASH)

    def _word(self, part: _Part, position: str, bits: int) -> str:
        """The key of a row's word."""
        match part.told:
            case Told.BY_SIZE:
                number = f"{SIZE} + {part.files[0].alike << NUMBER_BITS}L" if part.files[0].alike else SIZE
            case Told.BY_PATH:
                number = NUMBER
            case _:
                number = f"{part.files[0].number}L"
        return f"shiftleft({number}, {bits}) ^ shiftright({position}, 6)"

    def _number_of_path(self, part: _Part) -> Column:
        """Were Spark to spell a path in another way, hidden rows would show: it fails instead."""
        path, prefix = sf.col(PATH), self._path_prefix(part.files[0].file)
        as_known = sf.when(sf.startswith(path, sf.lit(prefix)), path)
        known = as_known.otherwise(sf.raise_error(sf.concat(sf.lit("LAKETX_PATH "), path)))
        return sf.xxhash64(known).bitwiseAND(sf.lit((1 << NUMBER_BITS) - 1)).bitwiseOR(sf.lit(BY_NAME))

    def _select(self, part: _Part, rows: DataFrame, *, with_op: bool = False) -> DataFrame:
        if part.layout.is_target and not (self._with_origin or part.is_tagged or with_op):
            return self._without_facts(part, rows)
        own = [sf.col(quoted(one.name)) for one in self.target.fields] if part.layout.is_target else []
        columns = [*own, *part.layout.columns]
        if self._with_origin:
            if part.alone:
                columns.append(sf.lit(part.files[0].file.path).alias(FILE))
            else:
                begin = len(self._path_prefix(part.files[0].file)) + 1
                columns.append(sf.substring(sf.col(PATH), begin, 1 << 20).alias(FILE))
            if not self._meta.primary_key:
                columns.append(sf.expr(self._row_id(part)).alias(ROW_ID))
        if part.is_tagged:
            columns += [sf.col(name) for name in TAGS]
        if with_op:
            columns.append(sf.col(OP))
        return rows.select(*columns)

    @staticmethod
    def _without_facts(part: _Part, rows: DataFrame) -> DataFrame:
        """The columns that the scan gave, which are the table's, alone."""
        beside = [ROW_ID] if part.has_own_ids else []
        beside += [OP] if part.is_delta else []
        if part.told is not Told.NOT:
            beside += {Told.BY_SIZE: [AT, SIZE], Told.BY_PATH: [AT, PATH, NUMBER]}.get(part.told, [AT])
            beside += [FIRST] if part.has_own_ids else []
        return rows.drop(*beside) if beside else rows

    def _path(self, path: str) -> str:
        """Where an entry lies: an external one's path is whole."""
        return path if "://" in path or path.startswith(("/", "file:")) else f"{self._table.folder}/{path}"

    def _path_prefix(self, file: common_pb2.DataFile) -> str:
        """What Spark puts before the path of every file of the table."""
        if self._prefix is None:
            shown = read_files(self._spark, self.target, [self._path(file.path)]).inputFiles()[0]
            if not shown.endswith(file.path):
                raise AssertionError(f"Spark calls {file.path} {shown}")
            prefix = shown.removesuffix(file.path)
            self._prefix = re.sub(r"\Afile:///", "file:/", prefix)  # a listing and a scan spell it differently
        return self._prefix

    # -- layouts

    def _columns_of(self, file: common_pb2.DataFile) -> list[catalog_pb2.Column]:
        """The table's columns when the file was written."""
        if file.schema_version == self._meta.schema_version:
            return list(self._meta.columns)
        if self._schemas is None:
            listed = self._table.lake.client.list_schemas(self._table.table_id)
            self._schemas = {one.schema_version: list(one.columns) for one in listed}
        return self._schemas[file.schema_version or min(self._schemas)]

    def _layout(self, file: common_pb2.DataFile) -> Layout:
        tag: object = file.schema_version
        if file.external:
            tag = (file.schema_version, partition_key(file.partition))
        found = self._layouts.get(tag)
        if found is None:
            columns = self._columns_of(file)
            if file.external:
                found = self._layout_by_name(columns, file.partition, tag)
            elif self._names_agree(columns):
                found = Layout(self.target, (), "as it is", is_target=True)
            else:
                found = self._layout_by_id(columns)
            self._layouts[tag] = found
        return found

    def _names_agree(self, columns: Sequence[catalog_pb2.Column]) -> bool:
        """Whether no name means one thing in the file and another in the schema."""
        by_id = {column.column_id: column for column in columns}
        by_name = {column.name.lower(): column.column_id for column in columns}
        for column in self._meta.columns:
            then = by_id.get(column.column_id)
            if by_name.get(column.name.lower(), column.column_id) != column.column_id:
                return False
            if then is not None and (then.name != column.name or not _nested_agree(then, column)):
                return False
        return True

    def _layout_by_id(self, columns: Sequence[catalog_pb2.Column]) -> Layout:
        """The file's names with the schema's types, and from there to the schema's names."""
        by_id = {column.column_id: column for column in columns}
        fields, shown = [], []
        for column, wanted in zip(self._meta.columns, self.target.fields, strict=True):
            then = by_id.get(column.column_id)
            if then is None:
                shown.append(sf.lit(None).cast(plain(wanted.dataType)).alias(wanted.name))
                continue
            paths = {one.field_id: one.path for one in then.nested}
            kind = _with_names(wanted.dataType, paths)
            fields.append(t.StructField(then.name, kind, True, wanted.metadata))
            value = sf.col(quoted(then.name))
            same = _nested_agree(then, column)
            shown.append((value if same else value.cast(plain(wanted.dataType))).alias(wanted.name))
        tag = (tuple(one.json() for one in fields), tuple(column.column_id in by_id for column in self._meta.columns))
        return Layout(t.StructType(fields), tuple(shown), tag)

    def _layout_by_name(
        self, columns: Sequence[catalog_pb2.Column], partition: common_pb2.Partition, tag: object
    ) -> Layout:
        by_id = {column.column_id: column for column in columns}
        values = {one.column: one.value for one in partition.values}
        fields, shown = [], []
        for column, wanted in zip(self._meta.columns, self.target.fields, strict=True):
            then = by_id.get(column.column_id)
            if column.name in values:
                shown.append(_partition_literal(values[column.name], wanted.dataType).alias(wanted.name))
            elif then is None:
                shown.append(sf.lit(None).cast(plain(wanted.dataType)).alias(wanted.name))
            else:
                fields.append(t.StructField(then.name, plain(wanted.dataType)))
                shown.append(sf.col(quoted(then.name)).alias(wanted.name))
        return Layout(t.StructType(fields), tuple(shown), ("external", tag))


def read_files(spark: SparkSession, schema: t.StructType, paths: Sequence[str]) -> DataFrame:
    """A scan of files that are there, listed by the driver alone."""
    before = spark.conf.get(LISTED_IN_DRIVER)
    widened = len(paths) > int(before or 32)
    if widened:
        spark.conf.set(LISTED_IN_DRIVER, str(len(paths)))
    try:
        reader = spark.read.schema(schema).option("spark.sql.parquet.fieldId.read.enabled", "true")
        reader = reader.option("__globPaths__", "false")
        at_once = classic.parquet(reader, paths) if len(paths) > PATHS_ONE_BY_ONE else None
        return reader.parquet(*paths) if at_once is None else at_once
    finally:
        if widened and before is not None and is_classic(spark):  # Spark Connect looks at it when a job begins
            spark.conf.set(LISTED_IN_DRIVER, before)


def row_ids(file: common_pb2.DataFile) -> tuple[int, int]:
    """The smallest and the largest that its rows may have."""
    first, last = file.first_row_id, file.first_row_id + max(file.rows, 1) - 1
    if not file.carries_row_ids:
        return first, last
    if not file.HasField("row_id_min") or not file.HasField("row_id_max"):
        return 0, max(last, (1 << 62) - 1)
    return min(first, file.row_id_min), max(last, file.row_id_max)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def plain(kind: t.DataType) -> t.DataType:
    """The type without ids."""
    match kind:
        case t.StructType():
            return t.StructType([t.StructField(one.name, plain(one.dataType), True) for one in kind.fields])
        case t.ArrayType():
            return t.ArrayType(plain(kind.elementType))
        case t.MapType():
            return t.MapType(plain(kind.keyType), plain(kind.valueType))
        case _:
            return kind


def _is_plain(file: common_pb2.DataFile) -> bool:
    return not file.external and _SAFE.match(file.path) is not None


def _nested_agree(then: catalog_pb2.Column, now: catalog_pb2.Column) -> bool:
    by_path = {one.path.lower(): one.field_id for one in then.nested}
    by_id = {one.field_id: one.path for one in then.nested}
    return all(
        by_path.get(one.path.lower(), one.field_id) == one.field_id and by_id.get(one.field_id, one.path) == one.path
        for one in now.nested
    )


def _with_names(kind: t.DataType, paths: Mapping[int, str]) -> t.DataType:
    """The type with the names that a file has for the same ids; what it lacks gets a name that nothing has."""
    match kind:
        case t.StructType():
            fields = []
            for one in kind.fields:
                field_id = one.metadata.get(FIELD_ID, 0)
                name = paths[field_id].rpartition(".")[2] if field_id in paths else f"_laketx_{field_id}"
                fields.append(t.StructField(name, _with_names(one.dataType, paths), True, one.metadata))
            return t.StructType(fields)
        case t.ArrayType():
            return t.ArrayType(_with_names(kind.elementType, paths))
        case t.MapType():
            return t.MapType(_with_names(kind.keyType, paths), _with_names(kind.valueType, paths))
        case _:
            return kind


def _partition_literal(value: common_pb2.Value, kind: t.DataType) -> Column:
    match value.WhichOneof("kind"):
        case "null" | None:
            return sf.lit(None).cast(kind)
        case "date":
            return sf.date_from_unix_date(sf.lit(value.date)).cast(kind)
        case "timestamp_us":
            return sf.timestamp_micros(sf.lit(value.timestamp_us)).cast(kind)
        case found:
            return sf.lit(getattr(value, found)).cast(kind)
