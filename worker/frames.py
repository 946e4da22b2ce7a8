"""A table's entries as DataFrames, read by Spark's own Parquet reader.

Clean files are read as they are. Dirty ones (rows of theirs are hidden) are a second scan, with the hidden rows' words
anti-joined (`merge_on_read`). How each file is read is in `layouts`, how a row's file is told in `telling`.
"""

from __future__ import annotations

import re
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final, Protocol

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker import classic
from worker import merge_on_read as mor
from worker.layouts import Layout, Layouts, plain
from worker.schema import FILE, OP, ROW_ID, ROW_INDEX, quoted
from worker.spark_jobs import is_classic
from worker.storage import storage
from worker.telling import BY_NAME, NUMBER_BITS, ScannedFile, Tag, Told, by_path, by_size, is_plain, row_ids
from worker.values import PartitionKey, partition_key

PATH: Final = "_laketx_path"
FIRST: Final = "_laketx_first"
TAGS: Final = ("_laketx_tag0", "_laketx_tag1")
HASH: Final = "_laketx_hash"
SIZE: Final = "_laketx_size"
IS_IMAGE: Final = f"coalesce({OP}, 0) != {mor.TOMBSTONE}"  # base files have no such column
NUMBER: Final = "_laketx_number"
PATHS_ONE_BY_ONE: Final = 10
FACTS_IN_TEXT: Final = 64  # of more files they are joined
PRUNED: Final = "spark.sql.optimizer.nestedSchemaPruning.enabled"
VECTORED_IO: Final = "parquet.hadoop.vectored.io.enabled"
LISTED_IN_DRIVER: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"


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


_prefixes: weakref.WeakKeyDictionary[SparkSession, dict[str, str]] = weakref.WeakKeyDictionary()


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
class _Part:
    """Files of one scan. `alone`: a single file, whose path Spark may spell in another way."""

    layout: Layout
    files: tuple[ScannedFile, ...]
    has_own_ids: bool = False
    alone: bool = False

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
        self._layouts = Layouts(meta, self._schemas)
        self.target = self._layouts.target

    # -- what a table shows

    def shown(
        self,
        entries: Sequence[common_pb2.LiveEntry],
        tag: Callable[[common_pb2.DataFile], Tag] | None = None,
    ) -> DataFrame:
        """The rows of a snapshot's entries; with their files' tags in the columns TAGS, where there are rows."""
        files = [
            ScannedFile(entry.file, entry.data_version, tag=None if tag is None else tag(entry.file))
            for entry in entries
            if entry.WhichOneof("entry") == "file"
        ]
        if self._meta.primary_key:
            return self._union(self._keyed(files))
        sets = [entry for entry in entries if entry.WhichOneof("entry") == "delete_set"]
        return self._union(self._appended(self._with_hidden(files, sets)))

    def written(self, files: Iterable[tuple[common_pb2.DataFile, Tag]], *, with_op: bool = False) -> DataFrame:
        """All the rows in files, hidden or not, with their tags; with the tombstones of deltas and their column."""
        parts = self._parts([ScannedFile(file, 0, tag=tag) for file, tag in files])
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

    def _with_hidden(self, files: Sequence[ScannedFile], sets: Sequence[common_pb2.LiveEntry]) -> Iterator[ScannedFile]:
        """The files with the row ids of theirs that are hidden; one that shows nothing is left out."""
        by_partition: dict[PartitionKey, list[common_pb2.LiveEntry]] = defaultdict(list)
        for entry in sets:
            by_partition[partition_key(entry.delete_set.partition)].append(entry)
        hiding: dict[PartitionKey, list[ScannedFile]] = defaultdict(list)
        for one in files:
            key = partition_key(one.file.partition) if by_partition else ()
            if key in by_partition:
                hiding[key].append(one)
            else:
                yield one
        for key, listed in hiding.items():
            yield from self._hide(listed, by_partition[key])

    def _hide(self, files: list[ScannedFile], sets: list[common_pb2.LiveEntry]) -> Iterator[ScannedFile]:
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

    def _appended(self, files: Iterable[ScannedFile]) -> Iterator[DataFrame]:
        listed = list(files)
        for part in self._parts([one for one in listed if one.hidden is None]):
            yield self._select(part, self._native(part))
        for part, rows in self._told_parts([one for one in listed if one.hidden is not None]):
            by_id = part.has_own_ids
            last = max(row_ids(one.file)[1] if by_id else one.file.rows for one in part.files)
            bits = (last >> 6).bit_length()
            words = self._spark.createDataFrame(mor.words_table(self._words(one, bits, by_id) for one in part.files))
            position = self._row_id(part) if by_id else ROW_INDEX
            yield self._select(part, mor.without_hidden(rows, words, self._word(part, position, bits), position))

    @staticmethod
    def _words(one: ScannedFile, bits: int, by_id: bool) -> tuple[Any, Any]:
        positions = mor.positions_of(one.hidden or BitMap64())
        if not by_id:
            positions = positions - one.file.first_row_id
        return mor.words_of(positions, mor.word_key(one.number, bits))

    @staticmethod
    def _row_id(part: _Part) -> str:
        by_place = f"{FIRST} + {ROW_INDEX}"
        return f"coalesce({ROW_ID}, {by_place})" if part.has_own_ids else by_place

    # -- primary-key tables

    def _keyed(self, files: Sequence[ScannedFile]) -> Iterator[DataFrame]:
        buckets: dict[tuple[PartitionKey, int], list[ScannedFile]] = defaultdict(list)
        for one in files:
            buckets[partition_key(one.file.partition), one.file.bucket].append(one)
        clean: list[ScannedFile] = []
        dirty: list[list[ScannedFile]] = []
        for bucket in buckets.values():
            if len({one.data_version for one in bucket}) == 1:
                clean += bucket  # within one version no key comes twice
            else:
                dirty.append(bucket)
        if dirty:
            merged = self._merged(dirty)
            if merged is None:
                clean += [one for bucket in dirty for one in bucket]
            else:
                yield from merged
        for part in self._parts(clean):
            has_op = any(one.file.kind == common_pb2.FILE_KIND_DELTA for one in part.files)
            rows = self._native(part, with_op=has_op)
            yield self._select(part, rows.filter(IS_IMAGE).drop(OP) if has_op else rows)

    def _merged(self, buckets: list[list[ScannedFile]]) -> list[DataFrame] | None:
        """None where it is known that no row is hidden."""
        bits = (max(one.file.rows for bucket in buckets for one in bucket) >> 6).bit_length()
        parts = self._told_parts([one for bucket in buckets for one in bucket])
        told = {id(one.file): one for part, _ in parts for one in part.files}
        work = [mor.Bucket(tuple(self._key_file(told[id(one.file)], bits) for one in bucket)) for bucket in buckets]
        words = mor.hidden_by_key(self._spark, work)
        if words is None:
            return None
        return [
            self._select(part, mor.without_hidden(rows, words, self._word(part, ROW_INDEX, bits), ROW_INDEX))
            for part, rows in parts
        ]

    def _key_file(self, one: ScannedFile, bits: int) -> mor.KeyFile:
        ids = {column.name: column.column_id for column in self._meta.columns}
        wanted = [ids[name] for name in self._meta.primary_key]
        names = {column.column_id: column.name for column in self._layouts.columns_of(one.file)}
        return mor.KeyFile(
            self._path(one.file.path),
            one.file.rows,
            one.data_version,
            mor.word_key(one.number, bits),
            tuple(names[column_id] for column_id in wanted),
            one.file.kind == common_pb2.FILE_KIND_DELTA,
        )

    # -- files to frames

    def _told_parts(self, files: Sequence[ScannedFile]) -> list[tuple[_Part, DataFrame]]:
        """Files of which rows are hidden, in scans in which each row's file is told.

        By its size, if what the entries say of sizes is what Spark finds; or else a row that is hidden would show.
        """
        found = [(part, self._scan(part)) for part in self._parts(by_size(files, self._path_hash))]
        if not all(self._has_sizes(part, rows) for part, rows in found if part.told is Told.BY_SIZE):
            found = [(part, self._scan(part)) for part in self._parts(by_path(files, self._path_hash))]
        return [(part, self._with_origins(part, rows)) for part, rows in found]

    @staticmethod
    def _has_sizes(part: _Part, rows: DataFrame) -> bool:
        """Whether the files are together as large as their entries say."""
        return classic.listed_bytes(rows) == sum(one.file.bytes for one in part.files)

    def _spelled(self, file: common_pb2.DataFile) -> str:
        """The path as Spark shows it in a scan; where that isn't sure the entry's own, which never looks like it."""
        return self._path_prefix(file) + file.path if is_plain(file) else "/" + file.path

    def _parts(self, files: Sequence[ScannedFile]) -> list[_Part]:
        """Files that can be read together."""
        groups: dict[tuple[object, ...], list[ScannedFile]] = defaultdict(list)
        for one in files:
            layout = self._layouts.layout_of(one.file)
            alone = self._stands_alone(one)
            key = (layout.tag, one.file.carries_row_ids, one.file.path if alone else "", one.alike, one.told)
            groups[key].append(one)
        return [
            _Part(self._layouts.layout_of(listed[0].file), tuple(listed), bool(own_ids), bool(alone))
            for (_, own_ids, alone, _, _), listed in groups.items()
        ]

    def _stands_alone(self, one: ScannedFile) -> bool:
        """Where nothing in the scan tells its rows, or the path must be known and Spark may spell it in another way."""
        is_shown = self._with_origin or one.tag is not None
        return one.told is Told.ALONE or (is_shown and not is_plain(one.file))

    def _native(self, part: _Part, *, with_op: bool = False) -> DataFrame:
        """The files' rows under their layout's schema, with what is needed beside."""
        return self._with_origins(part, self._scan(part, with_op=with_op))

    def _scan(self, part: _Part, *, with_op: bool = False) -> DataFrame:
        schema = t.StructType(list(part.layout.schema.fields))
        if part.has_own_ids:
            schema.add(ROW_ID, t.LongType())
        if with_op:
            schema.add(OP, t.IntegerType())
        if self._places_by_name(part):
            schema.add(ROW_INDEX, t.LongType())
        return read_files(self._spark, schema, [self._path(one.file.path) for one in part.files])

    def _is_shown(self, part: _Part) -> bool:
        return self._with_origin or part.is_tagged

    def _places_by_name(self, part: _Part) -> bool:
        """Whether the rows' places can be read as a column, which costs less than a field of `_metadata`.

        Spark refuses both at once. What else is in `_metadata` goes unread only where Spark prunes it, which it does
        below a join as ours.
        """
        by_size = part.told is Told.BY_SIZE and not self._is_shown(part)
        return by_size and self._spark.conf.get(PRUNED, "true") == "true"

    def _with_origins(self, part: _Part, rows: DataFrame) -> DataFrame:
        """What tells of each row where it comes from."""
        is_told, is_shown = part.told is not Told.NOT, self._is_shown(part)
        if not (is_told or is_shown):
            return rows
        wanted = {} if self._places_by_name(part) else {ROW_INDEX: "row_index"}
        if part.told is Told.BY_SIZE:
            wanted[SIZE] = "file_size"
        if part.told is Told.BY_PATH or is_shown:
            wanted[PATH] = "file_path"
        if any(field.name.lower() == "_metadata" for field in part.layout.schema.fields):
            origin = rows.metadataColumn("_metadata")
            rows = rows.select("*", *[origin.getField(field).alias(name) for name, field in wanted.items()])
        else:
            rows = rows.selectExpr("*", *[f"_metadata.{field} as {name}" for name, field in wanted.items()])
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
        texts = [f"{values[0]}L as {name}" for name, values in facts.items() if len(set(values)) == 1]
        differing = {name: values for name, values in facts.items() if len(set(values)) > 1}
        if differing:
            if part.told is Told.BY_SIZE:
                file_keys, row_key = [one.file.bytes for one in part.files], SIZE
            else:
                file_keys, row_key = [mor.xxhash64(self._spelled(one.file)) for one in part.files], f"xxhash64({PATH})"
            if len(set(file_keys)) < len(file_keys):
                raise AssertionError("two files of one key")
            if len(file_keys) > FACTS_IN_TEXT:
                known = self._spark.createDataFrame(pa.table({HASH: pa.array(file_keys, pa.int64()), **differing}))
                rows = rows.join(sf.broadcast(known), sf.expr(f"{row_key} = {HASH}")).drop(HASH)
            else:
                texts += [f"{_looked_up(row_key, file_keys, values)} as {name}" for name, values in differing.items()]
        return rows.selectExpr("*", *texts) if texts else rows

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
        if part.layout.is_target and not (self._is_shown(part) or with_op):
            return self._without_facts(part, rows)
        beside = []
        if self._with_origin:
            beside.append(f"{self._file_text(part)} as {FILE}")
            if not self._meta.primary_key:
                beside.append(f"{self._row_id(part)} as {ROW_ID}")
        if part.is_tagged:
            beside += TAGS
        if with_op:
            beside.append(OP)
        if part.layout.is_target:
            return rows.selectExpr(*[quoted(one.name) for one in self.target.fields], *beside)
        return rows.select(*part.layout.columns, *map(sf.expr, beside))

    def _file_text(self, part: _Part) -> str:
        """The path in the entry, of a row."""
        file = part.files[0].file
        if part.alone:  # it may be spelled in any way: as bytes it needs no quotes
            return f"decode(X'{file.path.encode().hex()}', 'UTF-8')"
        return f"substring({PATH}, {len(self._path_prefix(file)) + 1})"

    @staticmethod
    def _without_facts(part: _Part, rows: DataFrame) -> DataFrame:
        """The columns that the scan gave, which are the table's, alone."""
        beside = [ROW_ID] if part.has_own_ids else []
        if part.told is not Told.NOT:
            beside += {Told.BY_SIZE: [ROW_INDEX, SIZE], Told.BY_PATH: [ROW_INDEX, PATH, NUMBER]}.get(
                part.told, [ROW_INDEX]
            )
            beside += [FIRST] if part.has_own_ids else []
        return rows.drop(*beside) if beside else rows

    def _path(self, path: str) -> str:
        """Where an entry lies: an external one's path is whole."""
        return path if "://" in path or path.startswith(("/", "file:")) else f"{self._table.folder}/{path}"

    def _path_prefix(self, file: common_pb2.DataFile) -> str:
        """What Spark puts before the path of every file of the table."""
        known = _prefixes.setdefault(self._spark, {})
        if self._table.folder not in known:
            shown = read_files(self._spark, self.target, [self._path(file.path)]).inputFiles()[0]
            if not shown.endswith(file.path):
                raise AssertionError(f"Spark calls {file.path} {shown}")
            prefix = shown.removesuffix(file.path)
            # a listing and a scan spell it differently
            known[self._table.folder] = re.sub(r"\Afile:///", "file:/", prefix)
        return known[self._table.folder]

    def _schemas(self) -> dict[int, Sequence[catalog_pb2.Column]]:
        listed = self._table.lake.client.list_schemas(self._table.table_id)
        return {one.schema_version: list(one.columns) for one in listed}

    def _path_hash(self, file: common_pb2.DataFile) -> int:
        return mor.xxhash64(self._spelled(file))


def _looked_up(key: str, keys: Sequence[int], values: Sequence[int]) -> str:
    """Spark's words for the value that belongs to a key."""
    return f"map({', '.join(f'{one}L, {value}L' for one, value in zip(keys, values, strict=True))})[{key}]"


def read_files(spark: SparkSession, schema: t.StructType, paths: Sequence[str]) -> DataFrame:
    """A scan of files that are there, listed by the driver alone."""
    before = spark.conf.get(LISTED_IN_DRIVER)
    widened = len(paths) > int(before or 32)
    if widened:
        spark.conf.set(LISTED_IN_DRIVER, str(len(paths)))
    try:
        reader = spark.read.schema(schema).option("spark.sql.parquet.fieldId.read.enabled", "true")
        reader = reader.option("__globPaths__", "false")
        if all("://" not in path or path.startswith("file:") for path in paths):
            reader = reader.option(
                VECTORED_IO, "false"
            )  # on local disks a thread for each range costs more than it saves
        at_once = classic.parquet(reader, paths) if len(paths) > PATHS_ONE_BY_ONE else None
        return reader.parquet(*paths) if at_once is None else at_once
    finally:
        if widened and before is not None and is_classic(spark):  # Spark Connect looks at it when a job begins
            spark.conf.set(LISTED_IN_DRIVER, before)
