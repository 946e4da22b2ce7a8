"""Rows inside commits: the same answers as from files, kept as long as their versions, and bounded."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laketx import ConflictError, Lake, Table, connect
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.conformance.server import ROOT, stop
from tests.integration.service import PRINCIPAL, TIMEOUT_S, Service, code_of, data_file, reason_of, service
from worker.arrow.scan.inlined_rows import content_of, joined, read_columns, rows_in
from worker.arrow.scan.plans import entries_of
from worker.arrow.scan.version_rows import VersionRows
from worker.arrow.write.inlined_files import FEW, inlined_files
from worker.arrow.write.staged_files import write_parts
from worker.base.schema import OP, PART, ROW_ID
from worker.commit.stages import Stage
from worker.files.arrow_types import arrow_schema, in_shape

WRITERS = 4
COLUMNS = (
    "k bigint not null, b boolean, i tinyint, f float, d double, p decimal(38,10), s string, x binary, day date, "
    "t timestamp, n timestamp_ntz, a array<string>, m map<string,int>, r struct<q:int>"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("inlined")) as made:
        yield made


def data_files(table: Table) -> list[Path]:
    return [path for path in Path(table.view.folder).rglob("*") if path.is_file()]


def live(table: Table, version: int | None = None) -> list[common_pb2.DataFile]:
    entries = table.lake.client.list_files(table.table_id, version=version)
    return [one.file for one in entries if one.HasField("file")]


# -- streams put together ----------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.tuples(st.none() | st.integers(0, 99), st.text(max_size=3)), max_size=4), min_size=1))
def test_joined_contents_are_their_rows(parts: list[list[tuple[int | None, str]]]) -> None:
    schema = pa.schema({"k": pa.int64(), "s": pa.string()})
    tables = [pa.Table.from_pylist([{"k": k, "s": s} for k, s in rows], schema) for rows in parts]
    assert rows_in(joined([content_of(one) for one in tables])).equals(pa.concat_tables(tables).combine_chunks())


def test_contents_of_other_writers_are_joined_row_by_row() -> None:
    table = pa.table({"k": [1, 2]})
    with_metadata = table.replace_schema_metadata({"by": "another writer"})
    old = pa.BufferOutputStream()
    with pa.ipc.new_stream(old, table.schema, options=pa.ipc.IpcWriteOptions(use_legacy_format=True)) as out:
        out.write_table(table)
    contents = [content_of(table), content_of(with_metadata), bytes(old.getvalue())]
    for first in range(3):
        found = rows_in(joined([*contents[first:], *contents[:first]]))
        assert found.column("k").to_pylist() == [1, 2] * 3


def in_old_format(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(use_legacy_format=True)) as out:
        out.write_table(table)
    return bytes(sink.getvalue())


def test_wanted_columns_are_those_of_all() -> None:
    """A stream is read by the ids of columns, or by their names; those that it lacks are NULL in both ways."""
    chance = random.Random(5)
    ids = [{b"PARQUET:field_id": str(number).encode()} for number in range(6)]
    stored = pa.schema(
        [
            *(pa.field(f"c{number}", pa.int64(), True, ids[number]) for number in range(4)),
            pa.field(OP, pa.int8(), True, {b"PARQUET:field_id": b"2147483540"}),
            pa.field(ROW_ID, pa.int64()),
        ]
    )
    rows = pa.table([pa.array([number, None]).cast(field.type) for number, field in enumerate(stored)], schema=stored)
    known = [
        *(pa.field(f"renamed{number}", pa.int64(), True, ids[number]) for number in range(6)),
        pa.field("c0", pa.int64()),
        pa.field(OP, pa.int8()),
        pa.field(ROW_ID, pa.int64()),
    ]
    for content in (content_of(rows), in_old_format(rows)):
        for _ in range(60):
            wanted = pa.schema(chance.sample(known, chance.randrange(len(known) + 1)))
            found = read_columns(content, wanted)
            assert in_shape(found, wanted).equals(in_shape(rows_in(content), wanted))
            assert len(found) == len(rows)


# -- what is inlined ---------------------------------------------------------------------------------------------------


def test_few_rows_write_no_file(lake: Lake) -> None:
    table = lake.create_table("few.rows", "id bigint, v string", primary_key=["id"], buckets=2)
    table.upsert([{"id": 1, "v": "one"}, {"id": 2, "v": "two"}])
    table.delete(keys=[2])
    assert data_files(table) == []
    assert all(one.inlined and not one.content and one.path.endswith(".arrow") for one in live(table))
    assert sum(one.tombstones for one in live(table)) == 1
    assert table.to_arrow().to_pylist() == [{"id": 1, "v": "one"}]
    assert table.to_arrow(version=1, where="id = 2").to_pylist() == [{"id": 2, "v": "two"}]


@pytest.mark.parametrize(
    ("properties", "rows", "is_inlined"),
    [
        ({}, 1_000, True),
        ({}, 1_001, False),
        ({"write.inline.rows": "0"}, 1, False),
        ({"write.inline.rows": "5"}, 5, True),
        ({"write.inline.bytes": "100"}, 100, False),
    ],
)
def test_properties_say_what_few_rows_are(lake: Lake, properties: dict[str, str], rows: int, is_inlined: bool) -> None:
    table = lake.create_table(f"few.of_{new_uuid7().replace('-', '')}", "id bigint", properties=properties)
    table.append([{"id": at} for at in range(rows)])
    assert [one.inlined for one in live(table)] == [is_inlined]
    assert bool(data_files(table)) is not is_inlined
    assert table.count() == rows


@pytest.mark.parametrize(
    ("properties", "is_inlined"),
    [({}, True), ({"write.inline.rows": "150"}, True), ({"write.inline.rows": "149"}, False)],
)
@pytest.mark.parametrize("keyed", [False, True])
def test_few_rows_for_each_of_many_partitions_write_no_file(
    lake: Lake, properties: dict[str, str], is_inlined: bool, keyed: bool
) -> None:
    """A hundredth of `write.inline.rows` for each: 1,050 rows into 700 partitions."""
    key: dict[str, Any] = {"primary_key": ["id", "p"], "buckets": 1} if keyed else {}
    name = f"few.spread_{new_uuid7().replace('-', '')}"
    table = lake.create_table(name, "id bigint, p bigint", partition_by=["p"], properties=properties, **key)
    rows = [{"id": at, "p": at % 700} for at in range(1_050)]
    (table.upsert if keyed else table.append)(rows)
    assert [one.inlined for one in live(table)] == [is_inlined] * 700
    assert table.to_arrow().sort_by("id").to_pylist() == rows
    assert table.to_arrow(where="p = 7").sort_by("id").to_pylist() == [rows[7], rows[707]]


def test_rows_that_take_too_many_bytes_in_all_become_files(lake: Lake) -> None:
    """Each entry names all columns."""
    columns = ", ".join(f"column_{at:03} bigint" for at in range(100))
    table = lake.create_table("few.wide", f"p bigint, {columns}", partition_by=["p"])
    table.append([{"p": at, "column_099": at} for at in range(700)])
    assert not any(one.inlined for one in live(table))
    assert table.count(where="column_099 >= 600") == 100


def test_one_inlined_file_has_fewer_bytes_than_a_commit() -> None:
    meta = catalog_pb2.Table(name="t")
    meta.columns.add(name="v", type="string", column_id=1)
    parts = [(f"0/part-{at:05}-0.arrow", pa.table({"v": ["x" * (700 << 10)]})) for at in range(2)]
    assert len(inlined_files(meta, parts, common_pb2.FILE_KIND_UNSPECIFIED) or []) == 2
    together = [(parts[0][0], pa.concat_tables([rows for _, rows in parts]))]
    assert inlined_files(meta, together, common_pb2.FILE_KIND_UNSPECIFIED) is None


def test_rows_that_the_service_does_not_keep_become_files(tmp_path: Path) -> None:
    with (
        service(tmp_path / "data", "--inlined-bytes-max", "2000") as (running, _),
        connect(f"laketx://{running.address}", warehouse=str(tmp_path / "lake")) as lake,
    ):
        plain = lake.create_table("t.plain", "id bigint, p bigint", partition_by=["p"])
        keyed = lake.create_table("t.keyed", "id bigint", primary_key=["id"], buckets=1)
        for at in range(5):
            plain.append([{"id": at, "p": 1}])
            keyed.upsert([{"id": at}])
        with lake.transaction() as txn:
            txn.table("t.keyed").delete("id = 0")
            txn.table("t.plain").append([{"id": 9, "p": each} for each in range(2_000)])
        assert [{one.inlined for one in live(table)} for table in (plain, keyed)] == [{False, True}] * 2
        assert [plain.count(where="id < 9"), plain.count(where="id = 9"), keyed.count()] == [5, 2_000, 4]


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_texts_in_keys_are_compared_across_files_and_inlined_rows(lake: Lake, kind: str) -> None:
    name = f"t.texts_{kind}"
    table = lake.create_table(name, f"id {kind}, n bigint", primary_key=["id"], buckets=1)
    keys = [b"a", b"b", b"c"] if kind == "binary" else ["a", "b", "c"]
    table.upsert([{"id": key, "n": 0} for key in keys])
    table.set_properties(**{"write.inline.rows": "0"})
    table.upsert([{"id": key, "n": 1} for key in keys[1:]])
    table.set_properties(**{"write.inline.rows": "100"})
    table.upsert([{"id": keys[2], "n": 2}])
    assert sorted((row["id"], row["n"]) for row in table.to_arrow().to_pylist()) == list(
        zip(keys, range(3), strict=True)
    )


def test_new_base_files_of_a_primary_key_table_are_files(lake: Lake) -> None:
    table = lake.create_table("few.base", "id bigint", primary_key=["id"])
    table.overwrite([{"id": 1}])
    assert [one.inlined for one in live(table)] == [False]


# -- the same facts as of a file ---------------------------------------------------------------------------------------


def texts() -> st.SearchStrategy[str]:
    return st.text(max_size=80)


ROWS = st.fixed_dictionaries(
    {
        "k": st.integers(-5, 5),
        "b": st.none() | st.booleans(),
        "i": st.none() | st.integers(-128, 127),
        "f": st.none() | st.floats(width=32),
        "d": st.none() | st.floats(),
        "p": st.none() | st.decimals("-1e27", "1e27", places=10),
        "s": st.none() | texts(),
        "x": st.none() | st.binary(max_size=5),
        "day": st.none() | st.dates(date(1, 1, 1)),
        "t": st.none() | st.datetimes(timezones=st.just(UTC)),
        "n": st.none() | st.datetimes(),
        "a": st.none() | st.lists(st.none() | texts(), max_size=2),
        "m": st.none() | st.just([("a", 1)]),
        "r": st.none() | st.just({"q": 1}),
    }
)


@given(
    st.lists(ROWS, min_size=1, max_size=8),
    st.sampled_from(["", "k", "b", "p", "s", "day", "t", "n"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_entries_say_what_those_of_files_say(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], by: str, are_many: bool
) -> None:
    columns = [
        catalog_pb2.Column(name=text.split()[0], type=text.split()[1], column_id=at, nullable="not null" not in text)
        for at, text in enumerate(COLUMNS.split(", "), start=1)
    ]
    meta = catalog_pb2.Table(name="t", columns=columns, schema_version=3)
    if by:
        meta.partition_columns.append(by)
        rows = [{**row, by: rows[0][by]} for row in rows]
    stored = pa.concat_tables(
        [pa.Table.from_pylist(rows, arrow_schema(meta))] * (FEW // len(rows) + 1 if are_many else 1)
    )
    stage = Stage(meta, str(tmp_path_factory.getbasetemp() / new_uuid7()), "txn", 0)
    [filed] = write_parts(stage, stored, "0", common_pb2.FILE_KIND_UNSPECIFIED)
    [inlined] = write_parts(stage, stored, "0", common_pb2.FILE_KIND_UNSPECIFIED, may_inline=True)
    assert inlined.bytes == len(inlined.content)
    assert inlined.kind == common_pb2.FILE_KIND_INLINED
    inlined.kind = filed.kind
    for one in (filed, inlined):
        one.ClearField("path")
        one.ClearField("bytes")
        one.ClearField("content")
    assert inlined == filed


@given(
    st.lists(ROWS, min_size=2, max_size=12),
    st.sampled_from(["k", "b", "p", "s", "day", "t", "n"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_entries_of_many_parts_are_those_of_each(rows: list[dict[str, Any]], by: str, are_many: bool) -> None:
    rows = [row for row in rows for _ in range(FEW if are_many else 1)]
    columns = [
        catalog_pb2.Column(name=text.split()[0], type=text.split()[1], column_id=at, nullable="not null" not in text)
        for at, text in enumerate(COLUMNS.split(", "), start=1)
    ]
    meta = catalog_pb2.Table(name="t", columns=columns, schema_version=3, partition_columns=[by])
    stored = pa.Table.from_pylist(rows, arrow_schema(meta)).append_column(
        OP, pa.array([n % 2 for n in range(len(rows))], pa.int8())
    )
    parts = [(f"0/{PART}={at:05}-x/part-0.arrow", part) for at, part in enumerate(pieces(stored, rows, by))]
    together = inlined_files(meta, parts, common_pb2.FILE_KIND_DELTA)
    assert together == [one for part in parts for one in inlined_files(meta, [part], common_pb2.FILE_KIND_DELTA) or []]


def pieces(stored: pa.Table, rows: list[dict[str, Any]], by: str) -> Iterator[pa.Table]:
    """Neighbours with one value."""
    begin = 0
    for end in range(1, len(rows) + 1):
        if end == len(rows) or rows[end][by] != rows[begin][by]:
            yield stored.slice(begin, end - begin)
            begin = end


def test_entries_count_tombstones() -> None:
    meta = catalog_pb2.Table(name="t", primary_key=["id"], buckets=2)
    meta.columns.add(name="id", type="bigint", column_id=1)
    stored = pa.table({"id": [1, 2, 3], OP: pa.array([1, 0, 1], pa.int8())})
    stage = Stage(meta, "/nowhere", "txn", 0)
    [found] = write_parts(stage, stored, "0", common_pb2.FILE_KIND_DELTA, may_inline=True)
    assert (found.tombstones, found.kind, found.rows) == (2, common_pb2.FILE_KIND_INLINED_DELTA, 3)


def test_plans_leave_inlined_files_out_by_their_bounds(lake: Lake) -> None:
    table = lake.create_table("few.pruned", "id bigint, v string")
    for at in range(5):
        table.append([{"id": at * 10 + each, "v": "x"} for each in range(10)])
    condition = common_pb2.Predicate(
        compare=common_pb2.Compare(
            column="id", comparison=common_pb2.COMPARISON_EQUAL, value=common_pb2.Value(integer=23)
        )
    )
    plan = list(lake.client.plan_scan(table.table_id, predicate=condition))
    assert sum(len(part.entries) for part in plan) == 1
    assert table.to_arrow(where="id = 23").to_pylist() == [{"id": 23, "v": "x"}]


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_lost_insert_is_resubmitted_with_its_rows(lake: Lake) -> None:
    table = lake.create_table("few.races", "id bigint", profile="maxcompute")
    table.append([{"id": 0}])

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": [1]})
        table.overwrite([{"id": 9}])  # the append has begun

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), overtaken())
    with pytest.raises(ConflictError):
        table.append(reader, on_conflict="fail")
    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), overtaken())
    done = table.append(reader)
    assert done.attempts == 2
    assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 9]


def test_several_tables_commit_together_or_not_at_all(lake: Lake) -> None:
    one = lake.create_table("few.one", "id bigint")
    other = lake.create_table("few.other", "id bigint not null", primary_key=["id"])
    with lake.transaction() as txn:
        txn.table("few.one").append([{"id": 1}])
        txn.table("few.other").upsert([{"id": 1}])
    with pytest.raises(RuntimeError), lake.transaction() as txn:  # noqa: PT012 - what is raised ends the transaction
        txn.table("few.one").append([{"id": 2}])
        raise RuntimeError
    assert (one.count(), other.count(), data_files(one), data_files(other)) == (1, 1, [], [])


def test_an_application_version_is_applied_once(lake: Lake) -> None:
    table = lake.create_table("few.exactly_once", "id bigint")
    for _ in range(3):
        table.append([{"id": 1}], app_id="app", app_version=7)
    assert table.count() == 1


def test_row_level_tables_know_inlined_keys(lake: Lake) -> None:
    table = lake.create_table(
        "few.row_level", "id bigint, v string", primary_key=["id"], buckets=1, profile="row_level"
    )
    table.upsert([{"id": at, "v": "a"} for at in range(4)])

    def change(key: int, also: int) -> None:
        with lake.transaction() as txn:
            inside = txn.table("few.row_level")
            inside.delete(keys=[key])
            table.upsert([{"id": also, "v": "c"}])

    change(1, 2)
    with pytest.raises(ConflictError):
        change(3, 3)
    found = {row["id"]: row["v"] for row in table.to_arrow().to_pylist()}
    assert found == {0: "a", 2: "c", 3: "c"}


@pytest.mark.parametrize("inlined", ["0", "1000"])
@pytest.mark.parametrize(
    ("column", "key", "same", "other"),
    [
        ("int", 7, 7.0, 8),
        ("string", "ä", "ä", "b"),
        ("date", date(2026, 11, 1), pa.scalar(date(2026, 11, 1), pa.date64()), date(2026, 11, 2)),
        ("timestamp", datetime(2026, 11, 1, 12, tzinfo=UTC), pa.scalar(1793534400, pa.timestamp("s", "UTC")), None),
        ("decimal(9,3)", Decimal("1.5"), Decimal("1.500"), Decimal(2)),
        ("binary", b"\x00", bytearray(b"\x00"), None),  # a read of binary keys is one of all
    ],
)
def test_row_level_tables_tell_keys_of_every_type_apart(
    lake: Lake, column: str, key: Any, same: Any, other: Any, inlined: str
) -> None:
    """However a value was given, its key is that of the row; other keys of a bucket are in nobody's way."""
    table = lake.create_table(
        f"few.apart_{column.partition('(')[0]}_{inlined}",
        f"id {column}, n int",
        primary_key=["id"],
        buckets=1,
        profile="row_level",
        properties={"write.inline.rows": inlined},
    )
    table.upsert([{"id": key, "n": 0}])

    def race(value: Any) -> None:
        with lake.transaction() as txn:
            txn.table(table.name).delete(keys=[key])
            table.upsert(pa.table({"id": pa.array([value]), "n": pa.array([2])}))

    with pytest.raises(ConflictError):
        race(same)
    if other is not None:
        race(other)
        assert [row["id"] for row in table.to_arrow().to_pylist()] == [other]


@pytest.mark.parametrize("inlined", ["0", "1000"])
def test_row_level_tables_know_the_keys_of_each_file(lake: Lake, inlined: str) -> None:
    """A write of several partitions and buckets meets a change of one of its keys, and of no other key."""
    table = lake.create_table(
        f"few.each_file_{inlined}",
        "id bigint, day int, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=2,
        profile="row_level",
        properties={"write.inline.rows": inlined},
    )
    keys = [{"id": at, "day": at % 2} for at in range(6)]
    table.upsert([{**key, "n": 0} for key in keys])

    def race(key: dict[str, int], others: list[dict[str, int]]) -> None:
        with lake.transaction() as txn:
            txn.table(table.name).upsert([{**key, "n": 1}])  # looks for its key, so it begins here
            table.upsert([{**other, "n": 2} for other in others])

    for key in keys:
        with pytest.raises(ConflictError):
            race(key, keys)
        race(key, [other for other in keys if other != key])
    assert sorted(row["n"] for row in table.to_arrow().to_pylist()) == [1, *[2] * 5]


# -- as long as their versions -----------------------------------------------------------------------------------------


def test_versions_and_increments_survive_overwrites_restores_and_a_restart(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table = lake.create_table("kept", "id bigint, v string")
        for at in range(3):
            table.append([{"id": at, "v": str(at)}])
        table.overwrite([{"id": 9, "v": "all"}])
        table.restore(version=2)
        lake.drop_table("kept")
        table = lake.undrop_table("kept")
    with connect(tmp_path) as lake:
        table = lake.table("kept")
        shown = [sorted(table.to_arrow(version=at).column("id").to_pylist()) for at in range(6)]
        assert shown == [[], [0], [0, 1], [0, 1, 2], [9], [0, 1]]
        assert table.to_arrow(since=0, until=3).num_rows == 3
        assert not [one for progress in lake.client.check() for one in progress.problems]
        assert data_files(table) == []


def test_inlined_changes_of_keys_are_read_together_as_one_by_one(lake: Lake) -> None:
    chance = random.Random(5)
    table = lake.create_table(
        "together",
        "id bigint, v string",
        primary_key=["id"],
        buckets=2,
        properties={"compaction.enabled": "false", "write.inline.rows": "20"},
    )
    wanted: dict[int, str] = {}
    for number in range(70):
        ids = chance.sample(range(60), chance.choice([1, 3, 30]))  # the most go to a file
        if number in {25, 45}:
            table.add_columns(f"note{number} string")
        if chance.random() < 0.25:
            table.delete(keys=ids)
            wanted = {key: value for key, value in wanted.items() if key not in ids}
        else:
            table.upsert([{"id": key, "v": str(number)} for key in ids])
            wanted |= dict.fromkeys(ids, str(number))
        if number % 10 == 9:
            found = table.to_arrow()
            assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == wanted, number
            assert len(found) == len(wanted)
            assert table.count() == len(wanted)
            assert table.to_arrow(where="v > '5'").num_rows == sum(value > "5" for value in wanted.values())
            reader = VersionRows(table.view, table.resolve())
            entries = entries_of(table.view, table.resolve())
            names = reader.schema.names
            singly = reader.visit(entries, lambda one: reader.visible(one, names, None, float("inf")), None)  # noqa: B023
            assert found.to_pylist() == [row for part in singly for row in part.to_pylist()]


# -- bounds, and what is refused ---------------------------------------------------------------------------------------


def inlined(txn_id: str, content: bytes = b"rows", **facts: Any) -> common_pb2.DataFile:
    file = data_file(txn_id, "inlined")
    file.content, file.bytes = content, facts.pop("bytes", len(content))
    for name, value in facts.items():
        setattr(file, name, value)
    return file


@pytest.mark.parametrize(
    ("content", "facts", "reason"),
    [
        (b"rows", {"bytes": 5}, "INLINED_INVALID"),
        (b"rows", {"inlined": True}, "INLINED_INVALID"),
        (b"", {"inlined": True}, "INLINED_INVALID"),
        (b"rows", {"rows": 0}, "INLINED_INVALID"),
        (b"rows", {"external": True, "path": "/elsewhere/file.parquet"}, "INLINED_INVALID"),
        (b"x" * (1 << 20), {}, ""),
        (b"x" * ((1 << 20) + 1), {}, "INLINED_TOO_LARGE"),
    ],
)
def test_wrong_inlined_files_are_refused(tmp_path: Path, content: bytes, facts: dict[str, Any], reason: str) -> None:
    with service(tmp_path / "data") as (_, stubs):
        table_id, txn_id = stubs.create("t", profile="delta_write_serializable"), new_uuid7()
        request = transaction_pb2.AppendRequest(
            txn_id=txn_id, table_id=table_id, files=[inlined(txn_id, content, **facts)], principal=PRINCIPAL
        )
        if not reason:
            stubs.txns.Append(request, timeout=TIMEOUT_S)
            return
        with pytest.raises(grpc.RpcError) as caught:
            stubs.txns.Append(request, timeout=TIMEOUT_S)
        assert reason_of(caught.value) == reason
        with pytest.raises(grpc.RpcError) as caught:
            list(stubs.reads.ReadInlined(read_pb2.ReadInlinedRequest(table_id=table_id, paths=[f"{txn_id}/inlined"])))
        assert reason_of(caught.value) == "INLINED_GONE"


def test_writers_wait_while_too_many_bytes_are_inlined(tmp_path: Path) -> None:
    with service(tmp_path / "data", "--inlined-bytes-max", "100") as (_, stubs):
        table_id = stubs.create("t", profile="delta_write_serializable")

        def append(size: int) -> str:
            txn_id = new_uuid7()
            request = transaction_pb2.AppendRequest(
                txn_id=txn_id, table_id=table_id, files=[inlined(txn_id, b"x" * size)], principal=PRINCIPAL
            )
            try:
                stubs.txns.Append(request, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                return f"{code_of(error).name} {reason_of(error)}"
            return ""

        full = "RESOURCE_EXHAUSTED TOO_MANY_INLINED_ROWS"
        assert [append(60), append(41), append(40), append(1)] == ["", full, "", full]
        stubs.append(table_id)  # files are not bounded
        txn_id = stubs.begin(table_id, operation=common_pb2.OPERATION_TRUNCATE)
        stubs.commit(txn_id, common_pb2.Change(table_id=table_id, scope=common_pb2.Scope(all=True)))
        assert append(100) == ""


# -- backups -----------------------------------------------------------------------------------------------------------


def test_a_restored_backup_has_the_inlined_rows(tmp_path: Path) -> None:
    """They are in the store and nowhere else; what was written out after the backup was taken is there as well."""
    warehouse = str(tmp_path / "lake")
    with (
        service(tmp_path / "data") as (running, _),
        connect(f"laketx://{running.address}", warehouse=warehouse) as lake,
    ):
        table = lake.create_table("t", "id bigint, v string", primary_key=["id"], buckets=1)
        table.upsert([{"id": 1, "v": "one"}, {"id": 2, "v": "two"}])
        table.delete(keys=[2])
        wanted = {version: table.to_arrow(version=version).to_pylist() for version in (1, 2)}
        backup = lake.client.backup("b")
        table.upsert([{"id": 3, "v": "later"}])
    command = [sys.executable, "-m", "metaservice", "restore", "--backup", backup.path, "--data"]
    subprocess.run([*command, str(tmp_path / "restored")], cwd=ROOT, check=True, capture_output=True, timeout=60)
    with (
        service(tmp_path / "restored") as (again, _),
        connect(f"laketx://{again.address}", warehouse=warehouse) as lake,
    ):
        table = lake.table("t")
        assert table.meta.head_version == 2
        assert {version: table.to_arrow(version=version).to_pylist() for version in (1, 2)} == wanted
        assert wanted[2] == [{"id": 1, "v": "one"}]
        assert not [one for progress in lake.client.check() for one in progress.problems]
        table.upsert([{"id": 4, "v": "after"}])
        assert table.count() == 2


# -- kill -9 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [5, pytest.param(20, marks=pytest.mark.long)])
def test_kills_lose_and_repeat_no_inlined_row(tmp_path: Path, kills: int) -> None:
    server = Service(tmp_path / "data")
    address = server.start()
    acked: list[list[int]] = [[] for _ in range(WRITERS)]
    tried: list[int] = [0] * WRITERS
    done, failures = threading.Event(), []

    def write(number: int) -> None:
        try:
            with connect(f"laketx://{address}", warehouse=str(tmp_path / "lake")) as lake:
                table = lake.table("t")
                while not done.is_set():
                    tried[number] += 1
                    row = number + WRITERS * tried[number]
                    table.append([{"id": row}])
                    acked[number].append(row)
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            failures.append(error)

    with connect(f"laketx://{address}", warehouse=str(tmp_path / "lake")) as lake:
        lake.create_table("t", "id bigint", profile="delta_write_serializable")
        threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        chance = random.Random(1)
        for _ in range(kills):
            time.sleep(chance.choice((0.1, 0.3, 0.5)))
            server.kill()
            server.start()
        done.set()
        for thread in threads:
            thread.join(120)
        assert not failures
        table = lake.table("t")
        found = table.to_arrow().column("id").to_pylist()
        assert len(found) == len(set(found))
        assert set(found) == {row for rows in acked for row in rows}
        assert len(found) > kills
        assert not [one for progress in lake.client.check() for one in progress.problems]
        assert all(one.inlined for one in live(table))
    stop(server.running())


def test_operators_see_how_much_is_inlined(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table = lake.create_table("t", "id bigint")
        assert lake.client.get_status().inlined_bytes == 0
        table.append([{"id": 1}])
        assert lake.client.get_status().inlined_bytes == live(table)[0].bytes
        lake.drop_table("t")
        assert lake.client.get_status().inlined_bytes == 0
