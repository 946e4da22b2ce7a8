"""UPDATE, DELETE and MERGE: what they hide, and what they write instead.

An append table hides rows by their ids (one delete set for each partition) and writes new images that keep the ids of
the rows they replace. A primary-key table writes upserts and tombstones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyroaring import BitMap64
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as t

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker import merge_reads, scan
from worker.errors import InputError
from worker.frames import frame_of
from worker.merge_on_read import xxhash64
from worker.predicates import to_wire
from worker.row_sets import changes_all, ranges_of
from worker.schema import FILE, OP, ROW_ID, quoted, table_schema
from worker.staging import Stage, Staged
from worker.storage import storage
from worker.transaction import Write
from worker.writes import TOMBSTONE, fitted, upserts

if TYPE_CHECKING:
    from worker.table import Table

Settings = Mapping[str, str | Column]
Files = Mapping[str, common_pb2.Partition]  # by path
INLINE_BYTES_MAX: Final = 256 << 10  # a larger delete set is kept in a file
CLAUSE: Final = "_laketx_clause"
TARGET, SOURCE = "target", "source"


# -- DELETE and UPDATE -------------------------------------------------------------------------------------------------


def plan_delete(table: Table, where: str) -> Write:
    meta = table.meta
    read = condition_read(table, where)

    def stage(stage: Stage) -> Staged:
        rows, files = target_of(table, stage, where)
        return hide(stage, rows, files)

    return Write(meta, table.folder, common_pb2.OPERATION_DELETE, stage, reads=[read])


def plan_update(table: Table, settings: Settings, where: str | None) -> Write:
    meta = table.meta
    read = condition_read(table, where)
    read.changes_all = read.changes_all and changes_all(*settings.values())
    values = checked_settings(meta, settings)
    shape = table.lake.spark.createDataFrame([], table_schema(meta, nullable=True))
    fitting(meta, shape, values)

    def stage(stage: Stage) -> Staged:
        rows, files = target_of(table, stage, where)
        if meta.primary_key and not moves(
            meta, values
        ):  # nothing is looked at twice: no row is hidden but by its image
            return stage.write_keyed(upserts(fitting(meta, rows, values)), may_repeat=False)
        before = rows.localCheckpoint()
        return replace_rows(stage, before, fitting(meta, before, values), files)

    return Write(meta, table.folder, common_pb2.OPERATION_UPDATE, stage, reads=[read])


def condition_read(table: Table, where: str | None) -> common_pb2.Read:
    """What is read, for the service; a condition that the columns don't bear is refused."""
    if where is None:
        return common_pb2.Read(predicate=common_pb2.Predicate(literal=True), changes_all=True)
    spark, meta = table.lake.spark, table.meta
    try:
        _ = spark.createDataFrame([], table_schema(meta, nullable=True)).where(where).schema
    except AnalysisException as error:
        raise InputError("CONDITION_INVALID", f"{where!r}: {error.getMessage()}") from error
    return common_pb2.Read(predicate=to_wire(where, meta, spark), changes_all=changes_all(where))


def checked_settings(meta: catalog_pb2.Table, settings: Settings) -> dict[str, Column]:
    """By the table's names; values as Columns."""
    names = {column.name.lower(): column.name for column in meta.columns}
    found: dict[str, Column] = {}
    if not settings:
        raise InputError("SETTINGS_EMPTY", "no column is set")
    for given, value in settings.items():
        name = names.get(given.lower())
        if name is None:
            raise InputError("COLUMN_UNKNOWN", f"{meta.name} has no column {given}")
        if name in found:
            raise InputError("COLUMN_TWICE", f"{name} is set twice")
        if name in meta.primary_key:
            raise InputError("KEY_SET", f"{name} is of the key: delete the row and insert another")
        found[name] = sf.expr(value) if isinstance(value, str) else value
    return found


def moves(meta: catalog_pb2.Table, names: Collection[str]) -> bool:
    """Whether rows may leave their partition where these columns are set."""
    return any(name in names for name in meta.partition_columns)


def fitting(meta: catalog_pb2.Table, rows: DataFrame, values: Mapping[str, Column]) -> DataFrame:
    """The new images of these rows, in the table's shape; of rows with an id its `_row_id` is the old one."""
    with refused_values(meta):
        return shaped(meta, rows.withColumns(dict(values)).drop(FILE))


def shaped(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """With `_row_id` where it is there."""
    schema = table_schema(meta, nullable=True)
    ids = [row_id_field()] if ROW_ID in rows.columns else []
    return fitted(rows, t.StructType([*schema.fields, *ids]))


@contextmanager
def refused_values(meta: catalog_pb2.Table) -> Iterator[None]:
    """Says of values that Spark refuses that they don't fit."""
    try:
        yield
    except AnalysisException as error:
        raise InputError("VALUE_INVALID", f"a value doesn't fit {meta.name}: {error.getMessage()}") from error


def row_id_field() -> t.StructField:
    return t.StructField(ROW_ID, t.LongType())


# -- what is staged ----------------------------------------------------------------------------------------------------


def target_of(table: Table, stage: Stage, where: str | None = None) -> tuple[DataFrame, Files]:
    """The rows that a change looks at, and the files that they may lie in; with their origin in an append table."""
    version = stage.read_version
    meta = table.lake.client.get_table(table_id=table.table_id, version=version)
    entries = scan.plan(table, meta, version, where)
    rows = frame_of(table, meta, entries, with_origin=not meta.primary_key)
    files = {entry.file.path: entry.file.partition for entry in entries if entry.HasField("file")}
    return rows if where is None else rows.filter(where), files


def hide(stage: Stage, rows: DataFrame, files: Files) -> Staged:
    if stage.meta.primary_key:
        return stage.write_keyed(tombstones(stage.meta, rows), may_repeat=False)
    return Staged(delete_sets=delete_sets(stage, rows, files))


def replace_rows(stage: Stage, before: DataFrame, after: DataFrame, files: Files) -> Staged:
    """`after` has a row for each of `before`, by row id or key."""
    meta = stage.meta
    if not meta.primary_key:
        staged = Staged(delete_sets=delete_sets(stage, before, files))
        staged.add(stage.write_append(with_new_ids(meta, before, after)))
        return staged
    return stage.write_keyed(delta(meta, before, after))


def with_new_ids(meta: catalog_pb2.Table, before: DataFrame, after: DataFrame) -> DataFrame:
    """A row that left its partition gets a new id."""
    if not meta.partition_columns:
        return after
    old = before.selectExpr(ROW_ID, *map(quoted, meta.partition_columns)).alias("old")
    new = after.alias("new")
    kept = f"case when {same('old', 'new', meta.partition_columns)} then new.{ROW_ID} end as {ROW_ID}"
    columns = [f"new.{quoted(column.name)}" for column in meta.columns]
    return new.join(old, sf.expr(f"new.{ROW_ID} = old.{ROW_ID}"), "left").selectExpr(*columns, kept)


def tombstones(meta: catalog_pb2.Table, rows: DataFrame) -> DataFrame:
    """The keys of these rows; what the key doesn't need is NULL, unless the table takes none."""
    schema = table_schema(meta, nullable=True)
    kept = {*meta.primary_key, *meta.partition_columns, *[c.name for c in meta.columns if not c.nullable]}
    keys = rows.selectExpr(*[quoted(field.name) for field in schema.fields if field.name in kept])
    return fitted(keys, schema).selectExpr("*", f"{TOMBSTONE}Y as {OP}")


def delete_sets(stage: Stage, rows: DataFrame, files: Files) -> list[common_pb2.DeleteSet]:
    """Their row ids, a set for each partition. What travels to the driver are numbers: a row's id, its file's hash."""
    found = rows.selectExpr(f"xxhash64({FILE}) as {FILE}", ROW_ID).toArrow()
    order = np.argsort(found.column(FILE).to_numpy(), kind="stable")
    hashes, begins = np.unique(found.column(FILE).to_numpy()[order], return_index=True)
    by_file = np.split(found.column(ROW_ID).to_numpy()[order], begins[1:])
    by_hash = {xxhash64(path): path for path in files} if len(hashes) else {}
    ids: dict[bytes, BitMap64] = {}
    touched: dict[bytes, set[str]] = {}
    for of_file, row_ids in zip(hashes.tolist(), by_file, strict=False):
        path = by_hash[of_file]
        key = files[path].SerializeToString(deterministic=True)
        ids.setdefault(key, BitMap64()).update(row_ids.tolist())
        touched.setdefault(key, set()).add(path)
    numbers = count()
    return [delete_set(stage, key, bitmap, touched[key], next(numbers)) for key, bitmap in ids.items()]


def delete_set(stage: Stage, key: bytes, bitmap: Any, touches: set[str], number: int) -> common_pb2.DeleteSet:
    raw = bitmap.serialize()
    found = common_pb2.DeleteSet(
        path=f"{stage.txn_id}/deletes-{number}.bin",
        partition=common_pb2.Partition.FromString(key),
        rows=len(bitmap),
        touches=sorted(touches),
    )
    if len(raw) <= INLINE_BYTES_MAX:
        found.bitmap = raw
        return found
    found.bytes, found.row_id_min, found.row_id_max = len(raw), bitmap.min(), bitmap.max()
    found.ranges.extend(ranges_of(bitmap))
    files, root = storage(stage.table_folder)
    files.create_dir(f"{root}/{stage.txn_id}", recursive=True)
    with files.open_output_stream(f"{root}/{found.path}") as out:
        out.write(raw)
    return found


# -- MERGE -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clause:
    """What is done to rows of one kind ("matched", "not_matched", "by_source") for which the condition is true."""

    when: str
    action: str
    settings: Settings | None
    condition: str | None


@dataclass(frozen=True)
class Merge:
    """A MERGE as it is asked for."""

    source: DataFrame
    on: str | list[str]
    clauses: tuple[Clause, ...] = ()

    def with_clause(self, when: str, action: str, settings: Settings | None, condition: str | None) -> Merge:
        return replace(self, clauses=(*self.clauses, Clause(when, action, settings, condition)))


def plan_merge(table: Table, merge: Merge) -> Write:
    meta = table.meta
    shape = table.lake.spark.createDataFrame([], table_schema(meta, nullable=True))
    empty = shape if meta.primary_key else shape.selectExpr("*", f"cast(null as bigint) as {ROW_ID}", f"'' as {FILE}")
    for clause, rows in clause_rows(merge, joined(meta, merge, empty)):
        if clause.action != "delete":
            merge_images(meta, merge, clause, rows)

    asked = common_pb2.Predicate(literal=True)
    names = on_columns(meta, merge.on)
    reads_all = any(clause.when == "by_source" for clause in merge.clauses)
    if names is None and not reads_all:
        asked = merge_reads.of_condition(str(merge.on), meta, table.lake.spark)
    shared = [] if reads_all else merge_reads.shared_partitions(meta, names or [], merge.source)

    def stage(stage: Stage) -> Staged:
        target, files = target_of(table, stage)
        if not shared:
            return stage_merge(stage, merge, target, files)
        source = merge.source.localCheckpoint()
        places, rows = merge_reads.partitions_of(meta, shared, source)
        near = target if rows is None else target.where(rows)
        staged = stage_merge(stage, replace(merge, source=source), near, files)
        return replace(staged, reads=[merge_reads.read_of([asked, places])])

    # What is declared now can only doom it: where the source has yet to say more, nothing is.
    reads = [] if shared else [merge_reads.read_of([asked])]
    return Write(meta, table.folder, common_pb2.OPERATION_MERGE, stage, reads=reads)


def stage_merge(stage: Stage, merge: Merge, target: DataFrame, files: Files) -> Staged:
    meta = stage.meta
    touched = joined(meta, merge, target).localCheckpoint()
    refuse_several_sources(meta, touched)
    images = [
        merge_images(meta, merge, clause, rows)
        for clause, rows in clause_rows(merge, touched)
        if clause.action != "delete"
    ]
    hides = [number for number, clause in enumerate(merge.clauses) if clause.when != "not_matched"]
    origin = [ROW_ID, FILE] if not meta.primary_key else []
    before = touched.where(f"{CLAUSE} in ({', '.join(map(str, hides)) or 'null'})").select(f"{TARGET}.*", *origin)
    after = reduce(DataFrame.unionByName, images) if images else None
    if after is None:
        return hide(stage, before, files) if hides else Staged()
    if meta.primary_key:
        return stage.write_keyed(delta(meta, before, after))
    staged = Staged(delete_sets=delete_sets(stage, before, files) if hides else [])
    staged.add(stage.write_append(with_new_ids(meta, before, after)))
    return staged


def delta(meta: catalog_pb2.Table, before: DataFrame, after: DataFrame) -> DataFrame:
    """Upserts, and tombstones for rows that were deleted or left their partition."""
    where = [*meta.partition_columns, *meta.primary_key]
    old, new = tombstones(meta, before).alias("old"), after.selectExpr(*map(quoted, where)).alias("new")
    gone = old.join(new, sf.expr(same("old", "new", where)), "left_anti")
    return upserts(after).unionByName(gone)


def same(left: str, right: str, names: Sequence[str]) -> str:
    """Whether two sides agree in these columns."""
    return " and ".join(f"{left}.{quoted(name)} <=> {right}.{quoted(name)}" for name in names)


def joined(meta: catalog_pb2.Table, merge: Merge, target: DataFrame) -> DataFrame:
    """`target` and `source` as structs, NULL where a side has no row, and the number of the clause that applies."""
    columns = ", ".join(quoted(column.name) for column in meta.columns)
    origin = [name for name in (ROW_ID, FILE) if name in target.columns]
    left = target.selectExpr(f"struct({columns}) as {TARGET}", *origin)
    right = merge.source.selectExpr(f"struct(*) as {SOURCE}")
    kinds = {clause.when for clause in merge.clauses}
    how = {
        (True, True): "full",
        (True, False): "left",
        (False, True): "right",
        (False, False): "inner",
    }["by_source" in kinds, "not_matched" in kinds]
    try:
        both = left.join(right, sf.expr(on_condition(meta, merge)), how)
        found = both.withColumn(CLAUSE, clause_number(merge)).where(f"{CLAUSE} is not null")
        _ = found.schema
    except AnalysisException as error:
        raise InputError("CONDITION_INVALID", error.getMessage() or "the merge's condition") from error
    return found


def on_condition(meta: catalog_pb2.Table, merge: Merge) -> str:
    names = on_columns(meta, merge.on)
    if names is None:
        return str(merge.on)
    return " AND ".join(f"{TARGET}.{quoted(name.strip())} = {SOURCE}.{quoted(name.strip())}" for name in names)


def on_columns(meta: catalog_pb2.Table, on: str | list[str]) -> list[str] | None:
    """The columns that both sides have to share; None where it is a condition."""
    if isinstance(on, str):
        known = {column.name.lower() for column in meta.columns}
        return [on] if on.strip().lower() in known else None
    return on


def clause_number(merge: Merge) -> Column:
    kinds = {
        "matched": f"{TARGET} is not null and {SOURCE} is not null",
        "not_matched": f"{TARGET} is null and {SOURCE} is not null",
        "by_source": f"{TARGET} is not null and {SOURCE} is null",
    }
    found: Column | None = None
    for number, clause in enumerate(merge.clauses):
        holds = sf.expr(kinds[clause.when])
        if clause.condition is not None:
            holds = holds & sf.coalesce(sf.expr(clause.condition), sf.lit(False))
        found = sf.when(holds, number) if found is None else found.when(holds, number)
    assert found is not None
    return found


def clause_rows(merge: Merge, touched: DataFrame) -> list[tuple[Clause, DataFrame]]:
    return [(clause, touched.where(f"{CLAUSE} = {number}")) for number, clause in enumerate(merge.clauses)]


def merge_images(meta: catalog_pb2.Table, merge: Merge, clause: Clause, rows: DataFrame) -> DataFrame:
    taken = taken_columns(meta, merge, clause) if clause.settings is None else {}
    values = {} if clause.settings is None else clause_values(meta, clause, clause.settings)
    is_new = clause.when == "not_matched"
    images = []
    for column in meta.columns:
        name = quoted(column.name)
        kept = "null" if is_new else f"{TARGET}.{name}"
        text = taken.get(column.name, kept)
        images.append(values[column.name].alias(column.name) if column.name in values else sf.expr(f"{text} as {name}"))
    with refused_values(meta):
        ids = [name for name in (ROW_ID,) if name in rows.columns]
        return shaped(meta, rows.select(*images, *ids))


def taken_columns(meta: catalog_pb2.Table, merge: Merge, clause: Clause) -> dict[str, str]:
    """What the source has of the table's columns, where nothing is said of values."""
    there = {name.lower(): name for name in merge.source.columns}
    fixed = () if clause.when == "not_matched" else meta.primary_key
    names = [column.name for column in meta.columns if column.name.lower() in there and column.name not in fixed]
    if not names:
        raise InputError("SETTINGS_EMPTY", "the source has no column of the table")
    return {name: f"{SOURCE}.{quoted(there[name.lower()])}" for name in names}


def clause_values(meta: catalog_pb2.Table, clause: Clause, settings: Settings) -> dict[str, Column]:
    if clause.when != "not_matched":
        return checked_settings(meta, settings)
    keys = list(meta.primary_key)
    given = {name.lower(): value for name, value in settings.items()}
    others = {name: value for name, value in settings.items() if name.lower() not in {k.lower() for k in keys}}
    found = checked_settings(meta, others) if others else {}
    for key in keys:
        value = given.get(key.lower())
        if value is None:
            raise InputError("COLUMN_MISSING", f"the insert of the merge lacks {key}, which is of the key")
        found[key] = sf.expr(value) if isinstance(value, str) else value
    return found


def refuse_several_sources(meta: catalog_pb2.Table, touched: DataFrame) -> None:
    """A row of the table that two source rows would change has no right value."""
    keys = [sf.col(f"{TARGET}.{quoted(name)}") for name in [*meta.partition_columns, *meta.primary_key]]
    row = keys if meta.primary_key else [sf.col(ROW_ID)]
    named = [column.alias(f"k{at}") for at, column in enumerate(row)]
    changed = touched.where(sf.col(TARGET).isNotNull()).select(*named)
    twice = changed.groupBy(*[f"k{at}" for at in range(len(named))]).count().where("count > 1").head(1)
    if twice:
        facts = list(twice[0])[:-1]
        raise InputError("MERGE_AMBIGUOUS", f"{twice[0]['count']} source rows match one row of {meta.name}: {facts}")
