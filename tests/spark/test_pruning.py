"""What a read leaves out matches nothing: every writer, type and operator, against rows that no reader has pruned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from laketx import Lake, Table
from tests.arrow.damaged_files import damage_pages
from tests.spark import pruning
from tests.spark.pruning import FEW_CONDITIONS, PARTS, TYPES, Counts
from tests.spark.stored import live
from worker.dataframes import scan

Names = Callable[[], str]
Oracle = dict[tuple[str, str], int]
FOREIGN = ("pyarrow", "polars", "outside")


@dataclass(frozen=True)
class Written:
    """A table, in which each of the writers wrote each of the parts."""

    table: Table
    writers: Sequence[str]
    parts: Sequence[str]

    def wanted(self, oracle: Oracle, tests: Sequence[str]) -> Counts:
        return {
            (test, writer, part): oracle[test, part]
            for test in tests
            for writer in self.writers
            for part in self.parts
            if (test, part) in oracle
        }


def write_tables(lake: Lake, parts: Sequence[str], folder: Path) -> list[Written]:
    name = f"tests.pruned_{len(parts)}"
    append = pruning.append_table(lake, f"{name}_append", parts, folder)
    keyed = pruning.keyed_table(lake, f"{name}_keyed", parts)
    return [Written(append, pruning.APPEND_WRITERS, parts), Written(keyed, pruning.KEYED_WRITERS, parts)]


@pytest.fixture(scope="module")
def tables(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    return write_tables(lake, pruning.QUICK_PARTS, tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="module")
def large_tables(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    return write_tables(lake, PARTS, tmp_path_factory.mktemp("outside"))


@pytest.fixture(scope="module")
def oracle(spark: SparkSession) -> Oracle:
    return pruning.oracle(spark, list(dict.fromkeys([*pruning.conditions(), *FEW_CONDITIONS])))


def check_planned(written: Written, oracle: Oracle, tests: Sequence[str]) -> None:
    table, pruned = written.table, set()
    for test in tests:
        planned = pruning.places_planned(scan.plan(table.view, table.meta.head_version, test))
        assert {(writer, part) for _, writer, part in written.wanted(oracle, [test])} <= planned, test
        if len(planned) < len(written.writers) * len(written.parts):
            pruned |= {name for name in TYPES if test.startswith(name)}
    assert pruned >= TYPES.keys() - {*pruning.NESTED, "raw"}  # it isn't that nothing is ever left out


def check_scanned(written: Written, oracle: Oracle, tests: Sequence[str]) -> None:
    rows = written.table.refresh().read()
    assert differences(pruning.matching(rows, tests), written.wanted(oracle, tests)) == {}


def test_planned_files_hold_every_match(tables: list[Written], oracle: Oracle) -> None:
    for written in tables:
        check_planned(written, oracle, [*pruning.conditions()[::5], *FEW_CONDITIONS])


def test_spark_leaves_out_no_match(tables: list[Written], oracle: Oracle) -> None:
    for written in tables:
        check_scanned(written, oracle, FEW_CONDITIONS)


def differences(found: Counts, wanted: Counts) -> dict[tuple[str, str, str], tuple[int, int]]:
    pairs = {key: (found.get(key, 0), wanted.get(key, 0)) for key in found.keys() | wanted.keys()}
    return {key: (many, should) for key, (many, should) in pairs.items() if many != should}


def test_no_footer_of_ours_bounds_floats_that_hold_nan(tables: list[Written]) -> None:
    """NaN as a bound says so itself; floats of files from outside have no bounds in the table."""
    bounded = 0
    for table in (one.table for one in tables):
        ids = {column.column_id: column.type for column in table.meta.columns}
        for entry in live(table):
            writer, part = (one.value.text for one in entry.file.partition.values)
            real = [one for one in entry.file.stats if ids[one.column_id] in ("float", "double")]
            assert not (writer in FOREIGN and any(one.HasField("min") for one in real))
            if writer in FOREIGN:
                continue
            footer = pq.read_metadata(Path(table.folder) / entry.file.path)
            for at in range(len(footer.schema)):
                chunk = footer.row_group(0).column(at)
                stats = chunk.statistics
                if chunk.physical_type in ("FLOAT", "DOUBLE") and stats is not None and stats.has_min_max:
                    has_nan = part == "odd" or (chunk.path_in_schema, part) == ("f32", "nulls")
                    assert not has_nan or stats.max != stats.max, (writer, part, chunk.path_in_schema)
                    bounded += 1
            if part in ("odd", "nulls"):
                assert not any(one.HasField("max") and ids[one.column_id] == "float" for one in real)
    assert bounded


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_a_compaction_leaves_rows_with_nan_where_they_were_found(
    lake: Lake, spark: SparkSession, new_name: Names, keyed: bool
) -> None:
    nan = float("nan")
    schema = "id bigint not null, d double, s struct<d:double>"
    table = lake.create_table(new_name(), schema, primary_key=["id"] if keyed else [], buckets=1 if keyed else None)
    for first in (0, 3):
        rows = [(first, 1.0, (nan,)), (first + 1, nan, (1.0,)), (first + 2, -0.0, None)]
        table.insert(spark.createDataFrame(rows, schema).coalesce(1))
    for operation in ("minor", "major"):
        table.compact(operation)
        assert sorted(row.id for row in table.read(where="d > 5").collect()) == [1, 4]
        assert sorted(row.id for row in table.read().where("d > 5 or s.d > 5").collect()) == [0, 1, 3, 4]
        assert table.read().where("d = 0.0").count() == 2
    table.update({"s": "null"}, where="not (d <= 5)")
    table.delete("d > 5")
    assert sorted(row.id for row in table.read().collect()) == [0, 2, 3, 5]


def test_bloom_filters_of_either_writer_serve_either_reader(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    columns = "id bigint not null, email string, `a t` timestamp, price decimal(12,2)"
    properties = {"write.inline.rows": "0", "index.bloom.columns": "EMAIL, `a t`, price"}
    table = lake.create_table(new_name(), columns, properties=properties)
    moment = datetime(2026, 11, 1, tzinfo=UTC)
    rows = [(n, f"u{n}@x", moment + timedelta(seconds=n), Decimal(n).scaleb(-2)) for n in range(400)]
    for part in range(4):  # each over the whole range, so that bounds leave none out
        if part % 2:
            table.append([dict(zip(table.to_arrow().column_names, row, strict=True)) for row in rows[part::4]])
        else:
            table.insert(spark.createDataFrame(rows[part::4], columns).coalesce(1))
    assert damage_pages(Path(table.folder), "id", {30, 31}) == 2  # one of each writer
    for n in (30, 31):
        for where in (f"email = 'u{n}@x'", f"`a t` = '{rows[n][2].isoformat()}'", f"price IN ({rows[n][3]})"):
            assert [row.id for row in table.read(where=where).collect()] == [n]
            assert table.to_arrow(columns=["id"], where=where).to_pylist() == [{"id": n}]


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_planned_files_hold_every_match_of_any_condition(large_tables: list[Written], oracle: Oracle) -> None:
    for written in large_tables:
        check_planned(written, oracle, pruning.conditions())


@pytest.mark.long
@pytest.mark.parametrize("at", range(8))
def test_spark_leaves_out_no_match_of_any_condition(large_tables: list[Written], oracle: Oracle, at: int) -> None:
    for written in large_tables:
        check_scanned(written, oracle, pruning.conditions()[at::8])


@pytest.mark.long
@pytest.mark.parametrize("test", FEW_CONDITIONS)
def test_reads_and_deletes_by_a_condition_find_every_match(
    large_tables: list[Written], oracle: Oracle, test: str
) -> None:
    for written in large_tables:
        table, wanted = written.table, written.wanted(oracle, [test])
        read = table.read(where=test).groupBy("writer", "part").count().collect()
        assert differences({(test, row["writer"], row["part"]): row["count"] for row in read}, wanted) == {}
        before, rows = table.refresh().meta.head_version, table.read().count()
        table.delete(test)
        assert table.read().count() == rows - sum(wanted.values())
        table.restore(version=before)
