"""Files of a table as Spark scans: which files are read together, and how a scan identifies the files of its rows.

`file_layouts` decides how each file is read, `file_identity` how a row's file is identified.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import common_pb2
from worker.base.arrow_shapes import arrow_schema, in_shape
from worker.base.inlined import rows_in
from worker.base.schema import FILE, OP, ROW_ID, ROW_INDEX, quoted
from worker.base.session import is_classic, listed_bytes, parquet_at_once, path_prefixes, with_settings
from worker.base.spark_hash import xxhash64
from worker.base.table_view import TableView
from worker.read.file_identity import BY_NAME, ScannedFile, Told, by_path, by_size, is_plain
from worker.read.file_layouts import FileLayout, FileLayouts, plain
from worker.read.float_conditions import dressed

PATH: Final = "_laketx_path"
FIRST: Final = "_laketx_first"
TAGS: Final = ("_laketx_tag0", "_laketx_tag1")
HASH: Final = "_laketx_hash"
SIZE: Final = "_laketx_size"
PATHS_ONE_BY_ONE: Final = 10
FACTS_IN_TEXT: Final = 64  # of more files they are joined
PRUNED: Final = "spark.sql.optimizer.nestedSchemaPruning.enabled"
VECTORED_IO: Final = "parquet.hadoop.vectored.io.enabled"
OPTIONS: Final = {  # whatever the session says
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "__globPaths__": "false",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "ignoredPathSegmentRegex": "^[._]",  # hides none of them
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}
LISTED_IN_DRIVER: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"


@dataclass(frozen=True, slots=True)
class Part:
    """Files of one scan. `alone`: a single file, whose path Spark may spell differently."""

    layout: FileLayout
    files: tuple[ScannedFile, ...]
    has_own_ids: bool = False
    alone: bool = False

    @property
    def told(self) -> Told:
        return self.files[0].told

    @property
    def sizes_by_name(self) -> list[int]:
        """The range of sizes of files that are identified by a hash of their path; empty if sizes identify all."""
        sizes = sorted(one.file.bytes for one in self.files if one.is_by_name)
        return [sizes[0], sizes[-1]] if sizes else []

    @property
    def is_inlined(self) -> bool:
        return self.files[0].file.inlined

    @property
    def is_tagged(self) -> bool:
        return self.files[0].tag is not None


class FileScans:
    """Reads files of one table, all under one of its schemas."""

    def __init__(self, table: TableView, *, with_origin: bool = False) -> None:
        self._table = table
        self._spark = table.spark
        self._meta = table.meta
        self._with_origin = with_origin
        self.layouts = FileLayouts(table)
        self.target = self.layouts.target

    def told_parts(self, files: Sequence[ScannedFile]) -> list[tuple[Part, DataFrame]]:
        """Files with hidden rows, in scans that identify each row's file.

        By its size, if Spark finds the sizes that the entries have; otherwise a hidden row would become visible.
        """
        found = [(part, self._scan(part)) for part in self.parts(by_size(files, self._path_hash))]
        scanned = [(part, rows) for part, rows in found if part.told is Told.BY_SIZE and not part.is_inlined]
        if not all(self._has_sizes(part, rows) for part, rows in scanned):
            found = [(part, self._scan(part)) for part in self.parts(by_path(files, self._path_hash))]
        return [(part, self._with_origins(part, rows)) for part, rows in found]

    @staticmethod
    def _has_sizes(part: Part, rows: DataFrame) -> bool:
        """Whether the files have the total size that their entries say."""
        return listed_bytes(rows) == sum(one.file.bytes for one in part.files)

    def _spelled(self, file: common_pb2.DataFile) -> str:
        """The path as Spark shows it in a scan; if that is uncertain, the entry's own, which never looks like it."""
        return self._path_prefix(file) + file.path if is_plain(file) else "/" + file.path

    def parts(self, files: Sequence[ScannedFile]) -> list[Part]:
        """Files that can be read together."""
        groups: dict[tuple[object, ...], list[ScannedFile]] = defaultdict(list)
        for one in files:
            layout = self.layouts.layout_of(one.file)
            alone = self._stands_alone(one)
            key = (layout.tag, one.file.carries_row_ids, one.file.path if alone else "", one.told)
            groups[key].append(one)
        return [
            Part(self.layouts.layout_of(listed[0].file), tuple(listed), bool(own_ids), bool(alone))
            for (_, own_ids, alone, _), listed in groups.items()
        ]

    def _stands_alone(self, one: ScannedFile) -> bool:
        """Whether nothing in the scan identifies its rows, or the path is needed and Spark may spell it differently."""
        is_shown = self._with_origin or one.tag is not None
        return one.told is Told.ALONE or (is_shown and not is_plain(one.file))

    def native(self, part: Part, *, with_op: bool = False) -> DataFrame:
        """The files' rows under their layout's schema, with the additional columns needed."""
        return self._with_origins(part, self._scan(part, with_op=with_op))

    def _scan(self, part: Part, *, with_op: bool = False) -> DataFrame:
        if part.is_inlined:
            return self._inlined(part, with_op=with_op)
        schema = t.StructType(list(part.layout.schema.fields))
        if part.has_own_ids:
            schema.add(ROW_ID, t.LongType())
        if with_op:
            schema.add(OP, t.IntegerType())
        if self._places_by_name(part):
            schema.add(ROW_INDEX, t.LongType())
        return read_files(self._spark, schema, [self._table.path(one.file.path) for one in part.files])

    def _inlined(self, part: Part, *, with_op: bool) -> DataFrame:
        """The rows of inlined files, and the columns that give their origin if they are needed."""
        shape = arrow_schema(self._meta, with_op=with_op, with_row_id=part.has_own_ids)
        schema = t.StructType([t.StructField(one.name, plain(one.dataType)) for one in self.target.fields])
        found = []
        for one in part.files:
            rows = in_shape(rows_in(one.file.content), shape)
            if part.told is not Told.NOT or self._is_shown(part):
                count = len(rows)
                rows = rows.append_column(ROW_INDEX, pa.array(range(count), pa.int64()))
                rows = rows.append_column(SIZE, pa.repeat(pa.scalar(one.file.bytes, pa.int64()), count))
                rows = rows.append_column(PATH, pa.repeat(one.file.path, count))
            found.append(rows)
        for name in found[0].column_names[len(schema) :]:
            schema.add(name, {OP: t.ByteType(), PATH: t.StringType()}.get(name, t.LongType()))
        return self._spark.createDataFrame(pa.concat_tables(found).combine_chunks(), schema)

    def _is_shown(self, part: Part) -> bool:
        return self._with_origin or part.is_tagged

    def _places_by_name(self, part: Part) -> bool:
        """Whether the rows' positions can be read as a column, which costs less than a field of `_metadata`.

        Spark refuses to read both. The other fields of `_metadata` go unread only where Spark prunes them, which it
        does below a join like ours.
        """
        by_size = part.told is Told.BY_SIZE and not self._is_shown(part)
        return by_size and self._spark.conf.get(PRUNED, "true") == "true"

    def _with_origins(self, part: Part, rows: DataFrame) -> DataFrame:
        """The columns that give each row's origin."""
        is_told, is_shown = part.told is not Told.NOT, self._is_shown(part)
        if not (is_told or is_shown):
            return rows
        needs_first = not self._meta.primary_key and (self._with_origin or (part.has_own_ids and is_told))
        if part.is_inlined:
            return self._with_facts(part, rows, needs_first=needs_first)
        wanted = {} if self._places_by_name(part) else {ROW_INDEX: "row_index"}
        if part.told is Told.BY_SIZE:
            wanted[SIZE] = "file_size"
        if is_shown or (part.told is not Told.ALONE and part.sizes_by_name):
            wanted[PATH] = "file_path"
        if any(field.name.lower() == "_metadata" for field in part.layout.schema.fields):
            origin = rows.metadataColumn("_metadata")
            rows = rows.select("*", *[origin.getField(field).alias(name) for name, field in wanted.items()])
        else:
            rows = rows.selectExpr("*", *[f"_metadata.{field} as {name}" for name, field in wanted.items()])
        return self._with_facts(part, rows, needs_first=needs_first)

    def _with_facts(self, part: Part, rows: DataFrame, *, needs_first: bool) -> DataFrame:
        """The known facts of each row's file: the id of its first row, its tag."""
        facts: dict[str, list[int]] = {}
        if needs_first:
            facts[FIRST] = [one.file.first_row_id for one in part.files]
        if part.is_tagged:
            tags = [one.tag or (0, 0) for one in part.files]
            facts |= {name: [tag[at] for tag in tags] for at, name in enumerate(TAGS)}
        texts = [f"{values[0]}L as {name}" for name, values in facts.items() if len(set(values)) == 1]
        differing = {name: values for name, values in facts.items() if len(set(values)) > 1}
        if differing:
            if part.told in (Told.BY_SIZE, Told.BY_PATH):
                file_keys, row_key = [one.number for one in part.files], self.number(part)
            else:
                file_keys, row_key = [xxhash64(self._spelled(one.file)) for one in part.files], f"xxhash64({PATH})"
            if len(set(file_keys)) < len(file_keys):
                raise AssertionError("two files of one key")
            if len(file_keys) > FACTS_IN_TEXT:
                known = self._spark.createDataFrame(pa.table({HASH: pa.array(file_keys, pa.int64()), **differing}))
                rows = rows.join(sf.broadcast(known), sf.expr(f"{row_key} = {HASH}")).drop(HASH)
            else:
                texts += [f"{_looked_up(row_key, file_keys, values)} as {name}" for name, values in differing.items()]
        return rows.selectExpr("*", *texts) if texts else rows

    @staticmethod
    def row_id(part: Part) -> str:
        """The id of a row, as a Spark expression."""
        by_place = f"{FIRST} + {ROW_INDEX}"
        return f"coalesce({ROW_ID}, {by_place})" if part.has_own_ids else by_place

    def number(self, part: Part) -> str:
        """The number of a row's file, as a Spark expression."""
        match part.told:
            case Told.BY_SIZE if part.sizes_by_name:
                smallest, largest = part.sizes_by_name
                return f"if({SIZE} between {smallest}L and {largest}L, {self._hash_of_path(part)}, {SIZE})"
            case Told.BY_SIZE:
                return SIZE
            case Told.BY_PATH:
                return self._hash_of_path(part)
            case _:
                return f"{part.files[0].number}L"

    def _hash_of_path(self, part: Part) -> str:
        """If Spark spelled a path differently, hidden rows would become visible, so the expression fails instead."""
        prefix = literal(self._path_prefix(part.files[0].file))
        known = f"if(startswith({PATH}, {prefix}), {PATH}, raise_error(concat('LAKETX_PATH ', {PATH})))"
        return f"((xxhash64({known}) & {BY_NAME - 1}L) | {BY_NAME}L)"

    def select(self, part: Part, rows: DataFrame, *, with_op: bool = False) -> DataFrame:
        """The table's columns of a scan, and the additional columns to show."""
        rows = dressed(rows, part.layout.schema)
        if part.layout.is_target and not (self._is_shown(part) or with_op):
            return self._without_facts(part, rows)
        beside = []
        if self._with_origin:
            beside.append(f"{self._file_text(part)} as {FILE}")
            if not self._meta.primary_key:
                beside.append(f"{self.row_id(part)} as {ROW_ID}")
        if part.is_tagged:
            beside += TAGS
        if with_op:
            beside.append(OP)
        if part.layout.is_target:
            return rows.selectExpr(*[quoted(one.name) for one in self.target.fields], *beside)
        return rows.select(*part.layout.columns, *map(sf.expr, beside))

    def _file_text(self, part: Part) -> str:
        """The path in the entry of a row's file."""
        file = part.files[0].file
        if part.alone:
            return literal(file.path)
        return f"substring({PATH}, {len(self._path_prefix(file)) + 1})"

    @staticmethod
    def _without_facts(part: Part, rows: DataFrame) -> DataFrame:
        """The columns that the scan returned, which are the table's, without additional ones."""
        beside = [ROW_ID] if part.has_own_ids else []
        if part.told is not Told.NOT:
            beside += [ROW_INDEX, SIZE, PATH]
            beside += [FIRST] if part.has_own_ids else []
        return rows.drop(*beside) if beside else rows  # what isn't there it doesn't mind

    def _path_prefix(self, file: common_pb2.DataFile) -> str:
        """The prefix that Spark puts before the path of every file of the table."""
        if file.inlined:
            return ""
        known = path_prefixes(self._spark)
        if self._table.folder not in known:
            shown = read_files(self._spark, self.target, [self._table.path(file.path)]).inputFiles()[0]
            if not shown.endswith(file.path):
                raise AssertionError(f"Spark calls {file.path} {shown}")
            prefix = shown.removesuffix(file.path)
            # a listing and a scan spell it differently
            known[self._table.folder] = re.sub(r"\Afile:///", "file:/", prefix)
        return known[self._table.folder]

    def _path_hash(self, file: common_pb2.DataFile) -> int:
        return xxhash64(self._spelled(file))


def literal(text: str) -> str:
    """A text as a Spark literal: as bytes it needs no quotes."""
    return f"decode(X'{text.encode().hex()}', 'UTF-8')"


def _looked_up(key: str, keys: Sequence[int], values: Sequence[int]) -> str:
    """A Spark expression for the value of a key."""
    return f"map({', '.join(f'{one}L, {value}L' for one, value in zip(keys, values, strict=True))})[{key}]"


def read_files(spark: SparkSession, schema: t.StructType, paths: Sequence[str]) -> DataFrame:
    """A scan of existing files, listed by the driver only."""
    if len(paths) <= int(spark.conf.get(LISTED_IN_DRIVER) or 32):
        return _scanned(spark, schema, paths)
    if not is_classic(spark):  # it looks at the setting when a job begins
        spark.conf.set(LISTED_IN_DRIVER, str(len(paths)))
        return _scanned(spark, schema, paths)
    with with_settings(spark, {LISTED_IN_DRIVER: str(len(paths))}):
        return _scanned(spark, schema, paths)


def _scanned(spark: SparkSession, schema: t.StructType, paths: Sequence[str]) -> DataFrame:
    reader = spark.read.schema(schema).options(**OPTIONS)
    if all("://" not in path or path.startswith("file:") for path in paths):
        # on local disks a thread for each range costs more than it saves
        reader = reader.option(VECTORED_IO, "false")
    at_once = parquet_at_once(reader, paths) if len(paths) > PATHS_ONE_BY_ONE else None
    return reader.parquet(*paths) if at_once is None else at_once
