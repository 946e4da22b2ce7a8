"""Rows computed from the table that they are written to, without Spark: the write has read them, and loses if they
changed, however the rows come: as a scan, a reader, a lazy frame, a relation of DuckDB, a generator."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from laketx import Commit, ConflictError, InputError, Lake, Table, connect
from tests.arrow.begins import before_begin

COLUMNS: Final = "id bigint, day string, n bigint"
ROWS: Final = [{"id": 1, "day": "a", "n": 1}, {"id": 2, "day": "a", "n": 2}, {"id": 3, "day": "b", "n": 3}]
MORE: Final = [{"id": 4, "day": "a", "n": 4}]
SCHEMA: Final = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])
PROFILES: Final = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("rows-read")) as opened:
        yield opened


def made(
    lake: Lake, name: str, profile: str = "delta_serializable", *, keyed: bool = False, is_inlined: bool = True
) -> Table:
    key = ["id", "day"] if keyed else []
    name = f"{name}_{profile}_{keyed}".replace(" ", "_")
    table = lake.create_table(
        name,
        COLUMNS,
        primary_key=key,
        partition_by=["day"],
        profile=profile,
        properties={} if is_inlined else {"write.inline.rows": "0"},  # a batch for each partition
    )
    (table.upsert if keyed else table.append)(ROWS)
    return table


def generated(schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches())


def by_generator(table: Table) -> pa.RecordBatchReader:
    """The next number, computed when the rows are asked for, from a version that was fixed before."""
    scan = table.scanner()

    def batches() -> Iterator[pa.RecordBatch]:
        numbers = scan.to_arrow().column("id").to_pylist()
        yield pa.RecordBatch.from_pylist([{"id": max(numbers) + 1, "day": "a", "n": 0}], schema=SCHEMA)

    return generated(SCHEMA, batches)


def begun_reader(table: Table) -> pa.RecordBatchReader:
    """Its first rows were taken before the write."""
    reader = table.to_batches()
    reader.read_next_batch()
    return reader


def by_snapshot(table: Table) -> Any:
    with table.snapshot() as held:
        return held.scanner()


def by_duckdb(table: Table) -> Any:
    return table.to_duckdb(duckdb.connect()).filter("n > 1")


FORMS: Final[dict[str, Callable[[Table], Any]]] = {
    "scan": lambda table: table.scanner(),
    "snapshot": by_snapshot,
    "reader": lambda table: table.to_batches(),
    "begun reader": begun_reader,
    "lazy frame": lambda table: table.to_lazy_polars().filter(pl.col("n") > 1),
    "relation": by_duckdb,
    "generator": by_generator,
    "changes": lambda table: table.to_batches(since=0, columns=["id", "day", "n"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_that_changed_since_they_were_read_are_not_written(lake: Lake, form: str) -> None:
    """Neither does an overwrite erase what it didn't see, nor an insert bring what it computed from old rows."""
    for verb in ("append", "overwrite", "upsert"):
        table = made(lake, f"{form}_{verb}", keyed=verb == "upsert", is_inlined=form != "begun reader")
        rows = FORMS[form](table)
        rival = lake.table(table.name)
        (rival.upsert if verb == "upsert" else rival.append)(MORE)
        with pytest.raises(ConflictError):
            getattr(table, verb)(rows)
        assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2, 3, 4], verb


@pytest.mark.parametrize("profile", PROFILES)
def test_two_inserts_of_the_next_number_do_not_both_commit(lake: Lake, profile: str) -> None:
    table = made(lake, "next", profile)
    mine, theirs = by_generator(table), by_generator(table)
    lake.table(table.name).append(theirs)
    with pytest.raises(ConflictError):
        table.append(mine)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2, 3, 4]


def test_keys_to_delete_that_were_read_are_judged_from_their_version(lake: Lake) -> None:
    table = made(lake, "keys", keyed=True)
    keys = table.scanner(columns=["id", "day"], where="n < 3")
    lake.table(table.name).upsert([{"id": 1, "day": "a", "n": 9}])
    with pytest.raises(ConflictError):
        table.delete(keys=keys)
    assert table.count() == 3


def test_an_insert_that_read_its_table_is_not_resubmitted(lake: Lake) -> None:
    table = made(lake, "resubmit")
    for rows in (table.scanner(), table.to_batches(), by_generator(table)):
        with pytest.raises(InputError, match="POLICY_INVALID"):
            table.append(rows, on_conflict="resubmit")
    table.append(table.scanner(version=1), on_conflict="resubmit")  # a constant
    assert table.count() == 6


def test_rerun_computes_the_rows_of_a_scan_again(lake: Lake) -> None:
    table = made(lake, "rerun")
    rows = table.scanner()
    lake.table(table.name).append(MORE)
    done = table.append(rows, on_conflict="rerun")
    assert (done.attempts, done.rows_staged, table.count()) == (2, 4, 8)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("reader", "a stream, which can be read once"),
        ("relation", "were read at version 1 and stay as they are"),
        ("snapshot", "were read at version 1 and stay as they are"),
    ],
)
def test_rerun_says_why_it_cannot_compute_rows_again(lake: Lake, form: str, words: str) -> None:
    table = made(lake, f"once {form}")
    rows = FORMS[form](table)
    lake.table(table.name).append(MORE)
    with pytest.raises(ConflictError, match=words) as lost:
        table.append(rows, on_conflict="rerun")
    assert lost.value.attempts == 1
    assert table.count() == 4


def test_a_condition_keeps_the_read_narrow(lake: Lake) -> None:
    table = made(lake, "narrow")
    for form in (
        lambda: table.scanner(where="day = 'b'"),
        lambda: table.to_lazy_polars().filter(pl.col("day") == "b"),
        lambda: table.to_duckdb(duckdb.connect()).filter("day = 'b'"),
    ):
        rows = form()
        lake.table(table.name).append(MORE)
        table.append(rows)
    assert sorted(table.to_arrow().column("day").to_pylist()) == ["a"] * 5 + ["b"] * 8


def test_a_named_version_and_columns_added_since_are_no_change_of_what_was_read(lake: Lake) -> None:
    table = made(lake, "constant")
    old, current = table.scanner(version=1), table.scanner()
    table.add_columns("note string")
    table.append(current)
    assert table.count() == 6
    table.overwrite(old)
    assert table.count() == 3


def test_what_a_stream_reads_late_is_judged_too_or_refused(lake: Lake) -> None:
    """Its first rows come from elsewhere, so the write has begun when it says that it reads the table."""
    table = made(lake, "late")

    def late(scan: Any, meanwhile: Callable[[], Any]) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist(MORE, schema=SCHEMA)
            yield from scan.to_arrow().to_batches()
            meanwhile()

        return generated(SCHEMA, batches)

    rival = lake.table(table.name)
    with pytest.raises(ConflictError):
        table.append(late(table.scanner(), lambda: rival.append(MORE)))
    old = table.scanner()
    rival.append(MORE)
    with pytest.raises(InputError, match="READ_TOO_LATE"):
        table.append(late(old, lambda: None))
    assert table.count() == 5
    assert table.append(late(table.scanner(), lambda: None)).rows_staged == 6


def test_a_transaction_counts_what_is_read_by_its_tables_without_spark(lake: Lake) -> None:
    reads: dict[str, Callable[[Any], Any]] = {
        "scan": lambda table: table.scanner(where="day = 'a'"),
        "rows": lambda table: table.to_arrow(where="day = 'a'"),
        "count": lambda table: table.count(where="day = 'a'"),
    }
    for form, read in reads.items():
        table = made(lake, f"inside {form}")
        rival = lake.table(table.name)
        with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012 - its end raises
            mine = txn.table(table.name)
            read(mine)
            rival.append(MORE)
            assert mine.count(where="day = 'a'") == 2  # its version is fixed
            mine.append(MORE)
        with lake.transaction() as txn:
            txn.table(table.name).scanner(where="day = 'b'", limit=1)
            rival.append(MORE)
            txn.table(table.name).append(MORE)
        assert table.count() == 6


def test_a_table_that_a_transaction_only_reads_without_spark_counts(lake: Lake) -> None:
    read, changed = made(lake, "only read"), made(lake, "changed")
    rival = lake.table(read.name)
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012 - its end raises
        rows = txn.table(read.name).to_arrow()
        rival.append(MORE)
        txn.table(changed.name).append(rows)
    assert changed.count() == 3


def test_what_another_thread_reads_meanwhile_is_not_the_write_s(lake: Lake) -> None:
    table = made(lake, "threads")

    def batches() -> Iterator[pa.RecordBatch]:
        other = threading.Thread(target=lambda: table.scanner().to_arrow())
        other.start()
        other.join()
        yield pa.RecordBatch.from_pylist(MORE, schema=SCHEMA)

    def write() -> Commit:
        return table.append(generated(SCHEMA, batches))

    with before_begin(lake, lambda: lake.table(table.name).overwrite(MORE)):
        assert write().attempts == 1  # blind: it is no conflict under this profile


# -- reads of other tables


def test_reads_of_other_tables_are_declared_where_the_table_says_so(lake: Lake) -> None:
    read, table = made(lake, "read elsewhere"), made(lake, "written")
    rival = lake.table(read.name)

    def copied(form: str, **options: Any) -> Commit:
        rows = FORMS[form](read)
        rival.append(MORE)
        return table.append(rows, **options)

    assert copied("scan").attempts == 1
    table.set_properties(**{"isolation.reads": "all"})
    for form in ("scan", "reader", "relation", "generator"):
        with pytest.raises(ConflictError, match=read.name):
            copied(form)
    assert copied("scan", on_conflict="rerun").attempts == 2
    assert table.append(read.scanner(where="day = 'b'")).rows_staged == 1
    assert read.history(1)[0].operation == "UPDATE"
    assert table.append(MORE).attempts == 1


@pytest.mark.parametrize("is_changed", [False, True])
def test_reads_of_other_tables_are_declared_inside_a_transaction_too(lake: Lake, is_changed: bool) -> None:
    read, table = made(lake, f"read within {is_changed}"), made(lake, f"written within {is_changed}")
    rival = lake.table(read.name)

    def copied() -> None:
        rows = read.scanner()
        with lake.transaction() as txn:
            if is_changed:
                txn.table(read.name).append(MORE)
            txn.table(table.name).append(rows)
            rival.append(MORE)

    copied()
    table.set_properties(**{"isolation.reads": "all"})
    with pytest.raises(ConflictError, match=read.name):
        copied()
    rows, count = read.scanner(), read.count()
    with lake.transaction() as txn:
        if is_changed:
            txn.table(read.name).append(MORE)
        txn.table(table.name).append(rows)
    assert read.history(1)[0].operation == ("INSERT" if is_changed else "UPDATE")
    assert read.count() == count + is_changed * len(MORE)


def test_what_its_profile_does_not_check_elsewhere_takes_no_part(lake: Lake) -> None:
    read, table = made(lake, "unchecked", "maxcompute"), made(lake, "checked")
    table.set_properties(**{"isolation.reads": "all"})
    rows = read.scanner()
    lake.table(read.name).append(MORE)
    table.append(rows)
    assert (table.count(), read.history(1)[0].operation) == (6, "INSERT")


def test_a_late_read_of_another_table_is_refused_where_it_had_to_be_declared(lake: Lake) -> None:
    read, table = made(lake, "read late"), made(lake, "written late")

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist(MORE, schema=SCHEMA)
        yield from read.to_batches()

    table.append(generated(SCHEMA, batches))
    table.set_properties(**{"isolation.reads": "all"})
    with pytest.raises(InputError, match="READ_TOO_LATE"):
        table.append(generated(SCHEMA, batches))
    assert table.count() == 7
