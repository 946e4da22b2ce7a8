"""MERGE: which rows of the table and of the source each clause applies to, and the files to stage for them.

The rows are computed once. A merge that is equivalent to an insert by key becomes that insert: the table isn't read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.merge_clauses import Clause, Settings, are_upserts, only_deletes_matched
from worker.arrow.write.row_level import changes_all
from worker.base.errors import InputError
from worker.base.schema import FILE, ROW_ID, exact_names, quoted
from worker.commit import casts
from worker.commit.stages import Stage, Staged
from worker.commit.transaction import Write
from worker.connection.defaults import default_of
from worker.connection.table_view import TableView
from worker.dataframes import merge_reads
from worker.dataframes.blind_writes import fitted, upserts
from worker.dataframes.partition_moves import check_landing
from worker.dataframes.plan_reads import plan_reads, plan_reads_elsewhere
from worker.dataframes.row_changes import (
    Files,
    as_column,
    checked_settings,
    delta,
    expressions_of,
    found_sets,
    hide,
    ids_of,
    moves,
    one_value,
    refused_values,
    shaped,
    target_of,
    with_new_ids,
)
from worker.dataframes.small_writes import few_of
from worker.dataframes.staging import write_append, write_keyed
from worker.spark.column_types import table_schema
from worker.spark.field_paths import column_of, no_row

CLAUSE: Final = "_laketx_clause"
NUMBER: Final = "_laketx_number"  # of a source row
HIT: Final = "_laketx_hit"
TARGET, SOURCE = "target", "source"
IF_TWICE: Final = "two source rows have it: keep one of them, for example with source.dropDuplicates([…])"
FEW: Final = 10_000  # so many source rows go to every task, whatever Spark knows of their size


@dataclass(frozen=True)
class Merge:
    """A MERGE with its clauses."""

    source: DataFrame
    on: str | list[str]
    clauses: tuple[Clause, ...] = ()


def plan_merge(table: TableView, merge: Merge) -> Write:
    meta = table.meta
    found, elsewhere = plan_reads(table, merge.source), plan_reads_elsewhere(table, merge.source)
    shape = table.empty()
    empty = shape if meta.primary_key else shape.selectExpr("*", f"cast(null as bigint) as {ROW_ID}", f"'' as {FILE}")
    rows = joined(meta, merge, empty)
    for clause in merge.clauses:
        if clause.action != "delete":
            merge_images(meta, merge, clause, rows)

    asked = common_pb2.Predicate(literal=True)
    names = on_columns(meta, merge.on)
    reads_all = any(clause.when == "by_source" for clause in merge.clauses) or not changes_all(*expressions(merge))
    if names is None and not reads_all:
        asked = merge_reads.of_condition(str(merge.on), meta, table.spark)
    shared = [] if reads_all else merge_reads.shared_partitions(meta, names or [], merge.source)

    def stage(stage: Stage) -> Staged:
        if not shared:
            return stage_merge(table, stage, merge)
        source = merge.source.localCheckpoint()
        places, near = merge_reads.partitions_of(meta, shared, source)
        staged = stage_merge(table, stage, replace(merge, source=source), near)
        return replace(staged, reads=[merge_reads.read_of([asked, places])])

    # What is declared now can only doom it: where the source has yet to say more, nothing is.
    reads = [] if shared else [merge_reads.read_of([asked])]
    return Write(
        table,
        common_pb2.OPERATION_MERGE,
        stage,
        reads=reads,
        rows_read=found.reads,
        rows_version=found.version,
        elsewhere=elsewhere,
    )


def expressions(merge: Merge) -> list[str | Column]:
    """Those that may have subqueries, which may read more of the table."""
    texts = [merge.on if isinstance(merge.on, str) else None, *(clause.condition for clause in merge.clauses)]
    values = [one for clause in merge.clauses for one in expressions_of(clause.settings or {})]
    return [*(one for one in texts if one is not None), *values]


# -- what is staged ----------------------------------------------------------------------------------------------------


def stage_merge(table: TableView, stage: Stage, merge: Merge, near: Column | None = None) -> Staged:
    """Stages the result. `near`: a condition on rows of the table without which none matches."""
    meta = stage.meta
    if is_upsert(meta, merge):
        try:
            return write_keyed(stage, upserts(source_rows(meta, merge)))
        except InputError as error:
            if error.reason != "KEY_TWICE":
                raise
            stage.remove()  # which error it is the table says
    target, files = target_of(table, stage)
    there, new = touched(meta, merge, target if near is None else target.where(near))
    if meta.primary_key:
        return stage_keyed(table, stage, merge, there, new, files)
    after, before = images_of(meta, merge, there, new), there_rows(meta, merge, there)
    if not any(clause.when != "not_matched" for clause in merge.clauses):
        return Staged() if after is None else write_append(stage, with_new_ids(meta, before, after))
    ids = ids_of(before)
    refuse_id_twice(meta, ids)
    staged = Staged(delete_sets=found_sets(stage, ids, files))
    if after is not None:
        staged.add(write_append(stage, with_new_ids(meta, before, after)))
    return staged


def stage_keyed(table: TableView, stage: Stage, merge: Merge, there: DataFrame, new: DataFrame, files: Files) -> Staged:
    meta, few = stage.meta, few_of(files.values())
    after = images_of(meta, merge, there, new)
    if after is not None and not leaves_tombstones(meta, merge):
        try:
            return write_keyed(stage, upserts(after), few=few, if_twice=IF_TWICE)
        except InputError:
            refuse_key_twice(meta, there)  # this would be the cause
            raise
    if not only_deletes_matched(merge.clauses):
        refuse_key_twice(meta, there)
    before = there_rows(meta, merge, there)
    if after is None:
        return hide(stage, before, files)
    if not moves_rows(meta, merge):
        return write_keyed(stage, delta(meta, before, after), few=few, if_twice=IF_TWICE)
    changed = images_of(meta, merge, there, new, only_changed=True)
    assert changed is not None
    changed = changed.localCheckpoint()  # looked at several times: a value like rand() is one
    looked_at = check_landing(table, stage, before, changed)
    inserted = images_of(meta, merge, there, new, only_changed=False)
    after = changed if inserted is None else changed.unionByName(inserted)
    staged = write_keyed(stage, delta(meta, before, after), few=few, if_twice=IF_TWICE)
    staged.looked_at += looked_at
    return staged


def leaves_tombstones(meta: catalog_pb2.Table, merge: Merge) -> bool:
    """Whether a row of the table may disappear without being hidden by its own new image."""
    return any(clause.action == "delete" for clause in merge.clauses) or moves_rows(meta, merge)


def moves_rows(meta: catalog_pb2.Table, merge: Merge) -> bool:
    """Whether a row may leave its partition.

    A row matched on partition columns takes the same values from the source.
    """
    names = [name.strip() for name in on_columns(meta, merge.on) or ()]
    kept = {name.lower() for name in names if merge_reads.of_same_types(meta, [name], merge.source)}
    for clause in merge.clauses:
        if clause.action == "delete" or clause.when == "not_matched":
            continue
        if clause.settings is not None:
            names = list(clause.settings)
        else:
            names = [name for name in taken_columns(meta, merge, clause) if name.lower() not in kept]
        if moves(meta, names):
            return True
    return False


def there_rows(meta: catalog_pb2.Table, merge: Merge, there: DataFrame) -> DataFrame:
    """The old rows of the table that are changed."""
    origin = [name for name in (ROW_ID, FILE) if name in there.columns]
    rows = there.where(f"{TARGET} is not null").select(f"{TARGET}.*", *origin)
    if not only_deletes_matched(merge.clauses):
        return rows
    return rows.dropDuplicates([*meta.partition_columns, *meta.primary_key] if meta.primary_key else [ROW_ID])


def images_of(
    meta: catalog_pb2.Table, merge: Merge, there: DataFrame, new: DataFrame, *, only_changed: bool | None = None
) -> DataFrame | None:
    """All new images, or only those of existing rows, or only new rows; None if no clause writes."""
    rows = {"not_matched": new}
    images = [
        merge_images(meta, merge, clause, rows.get(clause.when, there).where(f"{CLAUSE} = {number}"))
        for number, clause in enumerate(merge.clauses)
        if clause.action != "delete" and only_changed in (None, clause.when != "not_matched")
    ]
    return reduce(DataFrame.unionByName, images) if images else None


# -- an insert by key --------------------------------------------------------------------------------------------------


def is_upsert(meta: catalog_pb2.Table, merge: Merge) -> bool:
    """Whether every source row becomes the row of its key, whatever exists: then the table need not be read."""
    if not meta.primary_key or not are_upserts(merge.clauses):
        return False
    names = {name.strip().lower() for name in on_columns(meta, merge.on) or ()}
    given = {name.lower() for name in merge.source.columns}
    place = {name.lower() for name in (*meta.partition_columns, *meta.primary_key)}
    is_whole = all(column.name.lower() in given for column in meta.columns)
    return is_whole and names == place and merge_reads.of_same_types(meta, names, merge.source)


def source_rows(meta: catalog_pb2.Table, merge: Merge) -> DataFrame:
    there = {name.lower(): name for name in merge.source.columns}
    names = [f"{quoted(there[column.name.lower()])} as {quoted(column.name)}" for column in meta.columns]
    with refused_values(meta):
        rows = merge.source.selectExpr(*names)
        casts.check_types(rows.schema)
        return fitted(rows, table_schema(meta, nullable=True), exact_names(meta))


# -- which rows --------------------------------------------------------------------------------------------------------


def touched(meta: catalog_pb2.Table, merge: Merge, target: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The table rows that a clause applies to, and the source rows without a match, as in `joined`, computed.

    Unmatched source rows are found among the matched ones, not by an outer join of the table. So Spark can broadcast
    the source and leave the table's rows in place.
    """
    kinds = {clause.when for clause in merge.clauses}
    if "by_source" in kinds or "not_matched" not in kinds:
        rows = joined(meta, merge, target).localCheckpoint()
        return rows, rows
    numbered = merge.source.selectExpr(f"struct(*) as {SOURCE}", f"monotonically_increasing_id() as {NUMBER}")
    source = numbered.localCheckpoint()
    near = sf.broadcast(source) if source.count() <= FEW else source
    both = (
        target_side(meta, target)
        .join(near, sf.expr(on_condition(meta, merge)))
        .withColumn(CLAUSE, clause_number(merge))
    )
    applies = [f"case when {CLAUSE} is not null then {name} end as {name}" for name in (TARGET, SOURCE)]
    origin = [name for name in (ROW_ID, FILE) if name in both.columns]
    there = both.selectExpr(*applies, *origin, NUMBER, CLAUSE).localCheckpoint()
    matched = there.selectExpr(TARGET, *origin, f"{NUMBER} as {HIT}")
    alone = matched.join(source, sf.expr(f"{HIT} = {NUMBER}"), "right").where(f"{HIT} is null")
    new = alone.withColumn(CLAUSE, clause_number(merge)).where(f"{CLAUSE} is not null")
    return there, new.localCheckpoint() if len(merge.clauses) > 2 or leaves_tombstones(meta, merge) else new


def target_side(meta: catalog_pb2.Table, target: DataFrame) -> DataFrame:
    columns = ", ".join(quoted(column.name) for column in meta.columns)
    origin = [name for name in (ROW_ID, FILE) if name in target.columns]
    return target.selectExpr(f"struct({columns}) as {TARGET}", *origin)


def joined(meta: catalog_pb2.Table, merge: Merge, target: DataFrame) -> DataFrame:
    """`target` and `source` as structs, NULL where a side has no row, and the number of the clause that applies."""
    left, right = target_side(meta, target), merge.source.selectExpr(f"struct(*) as {SOURCE}")
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
    nullable = {name.lower() for name in meta.partition_columns} if meta.primary_key else set()
    parts = []
    for name in map(str.strip, names):
        equals = "<=>" if name.lower() in nullable else "="  # NULL is a partition, in which keys are unique
        parts.append(f"{TARGET}.{quoted(name)} {equals} {SOURCE}.{quoted(name)}")
    return " AND ".join(parts)


def on_columns(meta: catalog_pb2.Table, on: str | list[str]) -> list[str] | None:
    """The columns that both sides must share; None if `on` is a condition."""
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


def merge_images(meta: catalog_pb2.Table, merge: Merge, clause: Clause, rows: DataFrame) -> DataFrame:
    taken = taken_columns(meta, merge, clause) if clause.settings is None else {}
    values = {} if clause.settings is None else clause_values(meta, clause, clause.settings)
    is_new = clause.when == "not_matched"
    images = []
    for column in meta.columns:
        if column.name in values:
            image = values[column.name]
        elif column.name in taken or not is_new:
            image = sf.expr(taken.get(column.name, f"{TARGET}.{quoted(column.name)}"))
        else:
            image = default_of(column)
        images.append(image.alias(column.name))
    with refused_values(meta):
        ids = [name for name in (ROW_ID,) if name in rows.columns]
        return shaped(meta, rows.select(*images, *ids), values if is_new else {**values, **taken})


def taken_columns(meta: catalog_pb2.Table, merge: Merge, clause: Clause) -> dict[str, str]:
    """The table's columns that the source has, if no values are given."""
    there = {name.lower(): name for name in merge.source.columns}
    fixed = () if clause.when == "not_matched" else meta.primary_key
    names = [column.name for column in meta.columns if column.name.lower() in there and column.name not in fixed]
    if not names:
        raise InputError("SETTINGS_EMPTY", "the source has no column of the table")
    return {name: f"{SOURCE}.{quoted(there[name.lower()])}" for name in names}


def clause_values(meta: catalog_pb2.Table, clause: Clause, settings: Settings) -> dict[str, Column]:
    if clause.when != "not_matched":
        return checked_settings(meta, settings, column_of(TARGET))
    keys = list(meta.primary_key)
    given = {name.lower(): value for name, value in settings.items()}
    others = {name: value for name, value in settings.items() if name.lower() not in {k.lower() for k in keys}}
    found = checked_settings(meta, others, no_row(meta)) if others else {}
    for key in keys:
        if key.lower() not in given:
            raise InputError("COLUMN_MISSING", f"the insert of the merge lacks {key}, a key column")
        found[key] = one_value(as_column(given[key.lower()]))
    return found


# -- a row of the table that two source rows would change has no right value -----------------------------------------


def refuse_key_twice(meta: catalog_pb2.Table, there: DataFrame) -> None:
    keys = [*meta.partition_columns, *meta.primary_key]
    changed = there.where(f"{TARGET} is not null")
    named = changed.selectExpr(*[f"{TARGET}.{quoted(name)} as k{at}" for at, name in enumerate(keys)])
    twice = named.groupBy(*named.columns).count().where("count > 1").head(1)
    if twice:
        raise several_sources(meta, twice[0]["count"], list(twice[0])[:-1])


def refuse_id_twice(meta: catalog_pb2.Table, ids: pa.Table) -> None:
    rows, counts = np.unique(ids.column(ROW_ID).to_numpy(), return_counts=True)
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        raise several_sources(meta, int(counts[twice[0]]), [int(rows[twice[0]])])


def several_sources(meta: catalog_pb2.Table, count: int, row: list[Any]) -> InputError:
    return InputError("MERGE_AMBIGUOUS", f"{count} source rows match one row of {meta.name}: {row}")
