"""`laketx load`: rows of files become rows of a table, in one commit or not at all."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx import Lake, Table, connect
from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from metaservice.client import add_column, default_column
from metaservice.client.folder_service import find_or_start
from tests.arrow.tables import texts
from tests.integration.terminal import LAKETX, STYLE, Ended
from worker.base import progress_bars
from worker.formats import source_files, text_blocks

Run = Callable[..., Ended]
ROOT = Path(__file__).parents[2]
ORDERS = "id bigint, day date, amount decimal(10,2), note string"
MANY = 20_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("load")) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a table that no other test has."""
    return "".join(letter if letter.isalnum() else "_" for letter in request.node.name).lower()


@pytest.fixture
def orders(lake: Lake, name: str) -> Table:
    return lake.create_table(f"{name}_orders", ORDERS)


@pytest.fixture
def keyed(lake: Lake, name: str) -> Table:
    return lake.create_table(f"{name}_keyed", ORDERS, primary_key=["id"], buckets=2)


@pytest.fixture
def days(lake: Lake, name: str) -> Table:
    return lake.create_table(f"{name}_days", ORDERS, partition_by=["day"])


@pytest.fixture
def run(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """In a folder with the files; `stdin` is what a pipe brings."""
    monkeypatch.chdir(tmp_path)

    def run(*words: object, stdin: bytes = b"") -> Ended:
        capfd.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = command_line.run([*map(str, words)], {"LAKETX_FOLDER": lake.warehouse, "LAKETX_USER": "ana"})
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


def write(path: str, *lines: str) -> str:
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_arrow(path: str, rows: pa.Table, *, stream: bool = False) -> str:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with pa.OSFile(path, "wb") as file, new(file, rows.schema) as out:
        out.write_table(rows, max_chunksize=2)
    return path


def ids(table: Table) -> list[int | None]:
    return sorted(table.refresh().to_arrow(columns=["id"])["id"].to_pylist())


def check_nothing_was_written(table: Table, version: int = 0) -> None:
    before = table.meta.head_version
    assert table.refresh().meta.head_version == version == before
    entries = table.lake.client.list_files(table.table_id)
    known = {entry.file.path for entry in entries if not entry.file.inlined}
    found = {str(path.relative_to(table.folder)) for path in Path(table.folder).rglob("*.parquet")}
    assert found == known


# ------------------------------------------------------------------------------------------- what an export has written

TYPES = (
    "b boolean, t tinyint, s smallint, i int, l bigint, f float, d double, c decimal(10,2), e decimal(38,18), "
    "v string, x binary, day date, at timestamp, clock timestamp_ntz"
)
NESTED = (
    ", tags array<string>, deep array<array<int>>, m map<string,decimal(5,2)>, n map<timestamp,binary>, "
    "r struct<a:int,b:struct<at:timestamp,x:binary>,l:array<struct<d:date>>>"
)
INF, NAN = float("inf"), float("nan")


def rows_of_all_types(schema: pa.Schema) -> pa.Table:
    """One row of NULL, and some of values that are easily lost."""
    some: dict[str, list[Any]] = {
        "b": [True, False, True],
        "t": [-128, 127, 0],
        "s": [-(2**15), 2**15 - 1, 0],
        "i": [-(2**31), 2**31 - 1, 0],
        "l": [-(2**63), 2**63 - 1, 0],
        "f": [0.1, NAN, -INF],
        "d": [0.1 + 0.2, -0.0, INF],
        "c": [Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.50")],
        "e": [Decimal("9" * 20 + "." + "9" * 18), Decimal("-1E-18"), Decimal(0)],
        "v": ["", ' "a", \\ \r\n\u2028ünï\t', "NULL"],
        "x": [b"", b"\0\xff'", b"X'00'"],
        "day": [date(1, 1, 1), date(9999, 12, 31), date(2026, 11, 1)],
        "at": [-62135596800000000, 253402300799999999, 1],
        "clock": [-62135596800000000, 253402300799999999, 250_000],
        "tags": [[], ["", None, 'a"'], ["x"]],
        "deep": [[[], None, [1, None]], [], [[2]]],
        "m": [[("", Decimal("1.50")), ('k"', None)], [], [("NULL", Decimal(0))]],
        "n": [[(datetime(2026, 11, 1, 0, 0, 0, 5), b"\0")], [], None],  # noqa: DTZ001 - of UTC
        "r": [{"a": 1, "b": {"at": None, "x": b""}, "l": [{"d": None}, None]}, {"a": None, "b": None, "l": None}, None],
    }
    columns = [
        pa.array([None, *values], schema.field(name).type) for name, values in some.items() if name in schema.names
    ]
    return pa.table(columns, schema=schema)


@pytest.mark.parametrize("kind", ["plain", "keyed", "days"])
@pytest.mark.parametrize("form", ["csv", "json", "parquet", "arrow"])
def test_all_types_come_back_from_what_was_exported(lake: Lake, run: Run, name: str, form: str, kind: str) -> None:
    types = TYPES if form == "csv" else TYPES + NESTED
    made = [
        lake.create_table(
            f"{name}_{which}",
            f"id int, {types}",
            primary_key=["id"] if kind == "keyed" else [],
            partition_by=["day"] if kind == "days" else [],
        )
        for which in ("a", "b")
    ]
    source, target = made
    schema = source.to_arrow().schema
    rows = rows_of_all_types(pa.schema(list(schema)[1:])).add_column(
        0, schema.field("id"), pa.array(range(4), pa.int32())
    )
    (source.upsert if kind == "keyed" else source.append)(rows)
    if form == "arrow":
        write_arrow("rows.arrow", source.to_arrow())
    else:
        assert run("export", source.name, "--to", f"rows.{form}").code == 0
    done = run("load", target.name, f"rows.{form}")
    assert (done.code, done.err) == (0, "")
    assert texts(target.refresh().to_arrow()) == texts(source.to_arrow()) == texts(rows)


def test_an_empty_export_comes_back(orders: Table, run: Run) -> None:
    for form in ("csv", "json", "parquet"):
        assert run("export", orders.name, "--to", f"none.{form}").code == 0
        done = run("load", orders.name, f"none.{form}")
        assert (done.code, done.err, done.out[: len("loaded 0 rows")]) == (0, "", "loaded 0 rows")


# ----------------------------------------------------------------------------------------------------- what is written


def test_rows_of_a_file_are_one_commit(orders: Table, run: Run) -> None:
    write("orders.csv", "note,ID,amount", "first,1,12.5", ",2,", '"",3,1')
    done = run("load", orders.name, "orders.csv", "--message", "by hand")
    assert (done.out, done.err) == (f"loaded 3 rows of orders.csv into {orders.name}, version 1\n", "")
    assert orders.refresh().to_arrow().to_pylist() == [
        {"id": 1, "day": None, "amount": Decimal("12.50"), "note": "first"},
        {"id": 2, "day": None, "amount": None, "note": None},
        {"id": 3, "day": None, "amount": Decimal("1.00"), "note": ""},
    ]
    done = run("load", orders.name, "orders.csv", "-o", "json")
    assert json.loads(done.out) == {
        "table": orders.name,
        "version": 2,
        "rows": 3,
        "files": ["orders.csv"],
        "already_applied": False,
    }
    assert [entry.message for entry in orders.history()] == ["load of orders.csv", "by hand", ""]


def test_files_of_all_formats_are_one_commit(orders: Table, run: Run) -> None:
    write("a.csv", "id", "1")
    write("b.ndjson", '{"id": 2}', "", '{"note": "n", "ID": 3}')
    pq.write_table(pa.table({"id": pa.array([4, 5], pa.int8()), "amount": [1.5, None]}), "c.parquet")
    write_arrow("d.feather", pa.table({"id": [6, 7, 8]}))
    write_arrow("e.arrows", pa.table({"id": [9, 10, 11]}), stream=True)
    done = run("load", orders.name, "a.csv", "b.ndjson", "c.parquet", "d.feather", "e.arrows")
    assert (done.code, done.out) == (0, f"loaded 11 rows of 5 files into {orders.name}, version 1\n")
    assert ids(orders) == list(range(1, 12))
    assert orders.history()[0].message == "load of 5 files"


def test_standard_input(orders: Table, run: Run) -> None:
    done = run("load", orders.name, "-", "--format", "csv", stdin=b"id,note\n1,a\n2,b")
    assert (done.out, ids(orders)) == (f"loaded 2 rows of standard input into {orders.name}, version 1\n", [1, 2])
    assert run("load", orders.name, "-", "--format", "json", stdin=b'{"id": 3}\n\n{"id": 4}').code == 0
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("id", pa.int64())])) as out:
        out.write_batch(pa.record_batch({"id": [5]}))
    assert run("load", orders.name, "-", "--format", "arrow", stdin=sink.getvalue()).code == 0
    assert ids(orders) == [1, 2, 3, 4, 5]
    assert "standard input has no format" in run("load", orders.name, "-").err
    assert run("load", orders.name, "-", "--format", "parquet").code == Exit.USAGE
    assert run("load", orders.name, "-", "-", "--format", "csv").code == Exit.USAGE
    again = run("load", orders.name, "-", "--format", "csv", "--on-conflict", "rerun")
    assert (again.code, "standard input can be read once" in again.err) == (Exit.USAGE, True)


def test_a_pipe_is_loaded_without_spark(lake: Lake, orders: Table, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('not installed')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "LAKETX_FOLDER": lake.warehouse}
    words = [*LAKETX, "load", orders.name, "/dev/stdin", "--format", "csv"]
    done = subprocess.run(words, input="id\n1\n", env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, ids(orders)) == (0, "", [1])
    words = [*LAKETX, "load", orders.name, "-", "--format", "json", "--quiet"]
    done = subprocess.run(words, input='{"id": 2}', env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr, ids(orders)) == (0, "", "", [1, 2])


def test_missing_columns_get_their_default(lake: Lake, orders: Table, run: Run) -> None:
    alter = lake.client.alter_columns
    alter(orders.table_id, default_column("note", "'new'"), default_column("amount", "1.5"), add_column("n", "int"))
    write("a.csv", "id,amount", "1,", "2,7")
    write("b.json", '{"id": 3, "note": null}', '{"id": 4, "amount": 2}')
    assert run("load", orders.name, "a.csv", "b.json").code == 0
    found = orders.refresh().to_arrow(columns=["id", "amount", "note", "n"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        (1, None, "new", None),
        (2, Decimal("7.00"), "new", None),
        (3, Decimal("1.50"), None, None),
        (4, Decimal("2.00"), "new", None),
    ]
    alter(orders.table_id, default_column("n", "1 + 1"))
    for file in ("a.csv", "b.json"):
        refused = run("load", orders.name, file)
        assert (refused.code, "the default of n is computed by Spark" in refused.err) == (Exit.REFUSED, True)


def test_a_primary_key_table_upserts(keyed: Table, run: Run) -> None:
    write("a.csv", "id,note", "1,a", "2,a")
    write("b.json", '{"id": 2, "note": "b"}', '{"id": 3, "note": "b"}')
    assert run("load", keyed.name, "a.csv").code == 0
    assert run("load", keyed.name, "b.json").out == f"loaded 2 rows of b.json into {keyed.name}, version 2\n"
    found = keyed.refresh().to_arrow(columns=["id", "note"]).to_pylist()
    assert sorted((row["id"], row["note"]) for row in found) == [(1, "a"), (2, "b"), (3, "b")]
    assert run("load", keyed.name, "b.json", "--overwrite").code == 0
    assert ids(keyed) == [2, 3]


@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--dry-run"], ["--overwrite", "--dry-run"]])
def test_a_key_that_comes_twice_is_refused(keyed: Table, run: Run, more: Sequence[str]) -> None:
    write("a.csv", "id", "1", "2")
    write("b.csv", "id", "2")
    refused = run("load", keyed.name, "a.csv", "b.csv", *more)
    assert refused.code == Exit.REFUSED
    assert f"KEY_TWICE: the key {{'id': 2}} appears twice in the rows written to {keyed.name}" in refused.err
    check_nothing_was_written(keyed)


def test_rows_go_to_their_partitions(days: Table, run: Run) -> None:
    write("a.csv", "id,day", "1,2026-11-01", "2,2026-11-02", "3,", "4,2026-11-01")
    assert run("load", days.name, "a.csv").code == 0
    assert days.refresh().count(where="day = '2026-11-01'") == 2
    assert len(list(days.lake.client.list_files(days.table_id))) == 3
    write("b.csv", "id,day", "5,2026-11-01")
    done = run("load", days.name, "b.csv", "--overwrite", "--partition", "day=2026-11-01")
    assert (done.code, ids(days)) == (0, [2, 3, 5])
    write("c.csv", "id", "6")
    write("d.json", '{"id": 7, "day": null}', '{"id": 8}')
    assert run("load", days.name, "c.csv", "d.json", "--overwrite", "--partition", "DAY=null").code == 0
    assert ids(days) == [2, 5, 6, 7, 8]
    assert run("load", days.name, "c.csv", "--overwrite").code == Exit.REFUSED  # without its day
    assert run("load", days.name, "b.csv", "--overwrite").code == 0
    assert ids(days) == [5]


@pytest.mark.parametrize(
    ("kind", "text", "inside", "outside"),
    [
        ("timestamp", "2026-11-01 10:00:00Z", "2026-11-01 11:00:00+01:00", "2026-11-01 11:00:00Z"),
        ("timestamp_ntz", "2026-11-01 10:00:00", "2026-11-01T10:00", "2026-11-01 10:00:01"),
        ("double", "0", "-0.0", "1"),
        ("string", "it's", "it's", ""),
        ("binary", "X'00'", "x'00'", "X''"),
        ("decimal(5,2)", "1.5", "1.50", "1.51"),
    ],
)
def test_a_partition_of_any_type_is_replaced(
    lake: Lake, run: Run, name: str, kind: str, text: str, inside: str, outside: str
) -> None:
    if kind == "binary":
        text = text.removeprefix("X").strip("'")
    table = lake.create_table(name, f"id int, p {kind}", partition_by=["p"])
    write("a.csv", "id,p", f'1,"{inside}"', f'2,"{outside}"')
    assert run("load", table.name, "a.csv").code == 0
    words = ["load", table.name, "b.csv", "--overwrite", "--partition", f"p={text}"]
    write("b.csv", "id,p", f'3,"{inside}"', f'4,"{outside}"')
    refused = run(*words)
    assert (refused.code, "b.csv, line 3, p: a row belongs to another partition" in refused.err) == (Exit.REFUSED, True)
    write("b.csv", "id", "5")
    done = run(*words)
    assert (done.code, done.err, ids(table)) == (0, "", [2, 5])


def test_a_load_is_repeated_once(lake: Lake, orders: Table, run: Run) -> None:
    write("a.csv", "id", "1")
    words = ["load", orders.name, "a.csv", "--app-id", "nightly", "--app-version"]
    assert run(*words, 7).code == 0
    again = run(*words, 7, "-o", "json")
    assert (again.code, json.loads(again.out)["already_applied"], ids(orders)) == (0, True, [1])
    write("a.csv", "id", "what was loaded is not read again")
    said = f"nothing new: nightly has already loaded its version 6 into {orders.name}\n"
    assert run(*words, 6).out == run(*words, 6, "--dry-run").out == said
    write("a.csv", "id", "2")
    assert (run(*words, 8).code, ids(orders)) == (0, [1, 2])
    alone = run("load", orders.name, "a.csv", "--app-id", "nightly")
    assert (alone.code, "APP_VERSION_INVALID" in alone.err) == (Exit.REFUSED, True)


def test_both_of_two_loads_at_once_count_once(orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one commits while this one reads."""
    write("a.csv", "id", "1")
    read = source_files.Source.batches

    def slow(source: source_files.Source, target: source_files.Target) -> Iterator[pa.RecordBatch]:
        orders.append([{"id": 1}], app_id="nightly", app_version=1)
        return read(source, target)

    monkeypatch.setattr(source_files.Source, "batches", slow)
    done = run("load", orders.name, "a.csv", "--app-id", "nightly", "--app-version", 1)
    assert (done.out, ids(orders)) == (
        f"nothing new: nightly has already loaded its version 1 into {orders.name}\n",
        [1],
    )
    check_nothing_was_written(orders.refresh(), 1)


@pytest.mark.parametrize("policy", ["fail", "resubmit", "rerun"])
def test_a_lost_race(orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    write("a.csv", "id", "1", "2")
    read = source_files.Source.batches
    winners = [lambda: orders.overwrite([{"id": 9}])]

    def slow(source: source_files.Source, target: source_files.Target) -> Iterator[pa.RecordBatch]:
        if winners:
            winners.pop()()
        return read(source, target)

    monkeypatch.setattr(source_files.Source, "batches", slow)
    done = run("load", orders.name, "a.csv", "--on-conflict", policy)
    if policy == "fail":
        assert (done.code, ids(orders)) == (Exit.CONFLICT, [9])
        assert "lost a race" in done.err
    else:
        assert (done.code, done.err, ids(orders)) == (0, "", [1, 2, 9])


def test_input_that_can_be_read_once_is_not_read_again(lake: Lake, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where the table says `rerun`, nor where its columns change while the rows of an upsert are read."""
    table = lake.create_table("once", "id bigint", primary_key=["id"], properties={"write.on_conflict": "rerun"})
    read = source_files.Source.batches
    winners = [lambda: lake.client.alter_columns(table.table_id, add_column("v", "int"))]

    def slow(source: source_files.Source, target: source_files.Target) -> Iterator[pa.RecordBatch]:
        yield from read(source, target)
        if winners:
            winners.pop()()

    monkeypatch.setattr(source_files.Source, "batches", slow)
    words = ["load", "once", "-", "--format", "csv"]
    refused = run(*words, stdin=b"id\n1\n")
    assert (refused.code, "INPUT_CONSUMED: standard input was read already" in refused.err) == (Exit.REFUSED, True)
    assert (run(*words, stdin=b"id\n1\n").code, ids(table)) == (0, [1])
    winners.append(lambda: lake.client.alter_columns(table.table_id, add_column("w", "int")))
    write("a.csv", "id", "2")
    assert (run("load", "once", "a.csv").code, ids(table)) == (0, [1, 2])


def test_a_dry_run_writes_nothing(orders: Table, days: Table, run: Run) -> None:
    write("a.csv", "id,day", "1,2026-11-01")
    assert run("load", orders.name, "a.csv", "--dry-run").out == f"would load 1 rows of a.csv into {orders.name}\n"
    said = run("load", days.name, "a.csv", "--dry-run", "--overwrite").out
    assert said == f"would replace all rows of {days.name} by 1 rows of a.csv\n"
    words = ["load", days.name, "a.csv", "--dry-run", "--overwrite", "--partition", "day=2026-11-01"]
    assert run(*words).out == f"would replace day=2026-11-01 of {days.name} by 1 rows of a.csv\n"
    found = json.loads(run(*words, "-o", "json").out)
    assert (found["rows"], found["dry_run"], found["created"]) == (1, True, False)
    write("a.csv", "id,day", "1,2026-11-02")
    assert "ROW_OUTSIDE_PARTITION: a.csv, line 2, day" in run(*words).err
    check_nothing_was_written(orders)
    check_nothing_was_written(days)


# ----------------------------------------------------------------------------------------------------- what is refused

REFUSED = [
    ("a.csv", ["id,amount", "1,1.5", "2,1.505"], "VALUE_INVALID", "a.csv, line 3, amount: `1.505` is no decimal(10,2)"),
    ("a.csv", ["id,note", '1,"two', 'lines"', "x,"], "VALUE_INVALID", "a.csv, line 4, id: `x` is no bigint"),
    ("a.csv", ["day,id", "x,1", "2026-11-01,y"], "VALUE_INVALID", "a.csv, line 2, day: `x` is no date"),
    ("a.csv", ["id,note", "1,a", "2"], "LINE_INVALID", "a.csv, line 3: there are 1 cells, and 2 names in the header"),
    ("a.csv", ["id,note", '1,"a', "2,b"], "LINE_INVALID", "a.csv, line 2: a quote is not closed"),
    ("a.csv", [], "LINE_INVALID", "a.csv: the file is empty: CSV begins with a line of column names"),
    ("a.csv", ["id,price", "1,2"], "COLUMN_UNKNOWN", "a.csv, price: {table} has no column price"),
    ("a.csv", ["id,ID", "1,2"], "COLUMN_TWICE", "a.csv, id: the column id is there twice"),
    ("a.csv", ["note", "x"], "COLUMN_MISSING", "a.csv: the rows lack id, which {table} requires"),
    ("a.csv", ["id", "1", ""], "NULL_NOT_ALLOWED", "a.csv, line 3: a row has NULL in id"),
    ("a.json", ['{"id": 1}', "", '{"id": "2"}'], "VALUE_INVALID", 'a.json, line 3, id: `"2"` is no bigint'),
    ("a.json", ['{"id": 1}', '{"id": 2, "x": 1}'], "COLUMN_UNKNOWN", "a.json, line 2, x: {table} has no column x"),
    ("a.json", ['{"id": 1, "Id": 1}'], "COLUMN_TWICE", "a.json, line 1, id: the column id is there twice"),
    ("a.json", ['{"id": 1}', '{"note": "x"}'], "COLUMN_MISSING", "a.json, line 2, id: a row lacks id"),
    (
        "a.json",
        ['{"id": 1}', '{"id": 2', "}"],
        "LINE_INVALID",
        "a.json, line 2: this is no JSON: Expecting ',' delimiter at character 9",
    ),
    ("a.json", ['[{"id": 1}]'], "LINE_INVALID", "a.json, line 1: a line of JSON is an object"),
    ("a.json", ['{"id": 1}', "[" * 100_000], "LINE_INVALID", "a.json, line 2: this is no JSON"),
    ("a.parquet", ["no Parquet"], "FILE_UNREADABLE", "Parquet"),
    ("a.arrow", ["no Arrow"], "FILE_UNREADABLE", ""),
    ("a.arrow", [], "FILE_UNREADABLE", ""),
]


@pytest.mark.parametrize("at", range(len(REFUSED)))
def test_what_does_not_fit_is_refused_with_its_place(lake: Lake, run: Run, at: int) -> None:
    path, lines, reason, said = REFUSED[at]
    table = lake.create_table(f"refused{at}", ORDERS.replace("id bigint", "id bigint not null"))
    write("good.csv", "id", "1")
    write(path, *lines)
    for more in ([], ["--dry-run"], ["--overwrite"]):
        refused = run("load", table.name, "good.csv", path, *more)
        assert (refused.code, refused.out) == (Exit.REFUSED, "")
        assert f"{reason}: {said.format(table=table.name)}" in refused.err or (not said and reason in refused.err)
        check_nothing_was_written(table)


def test_a_refusal_has_its_place_as_facts(orders: Table, run: Run) -> None:
    write("a.csv", "id", "1", "x")
    error = json.loads(run("load", orders.name, "a.csv", "-o", "json").err)["error"]
    assert error["facts"] == {"file": "a.csv", "line": "3", "column": "id"}
    assert (error["reason"], error["exit_code"]) == ("VALUE_INVALID", 1)
    pq.write_table(pa.table({"id": [1.0, 2.0, 2.5]}), "a.parquet")
    error = json.loads(run("load", orders.name, "a.parquet", "-o", "json").err)["error"]
    assert error["facts"] == {"file": "a.parquet", "row": "3"}
    assert error["message"].startswith("a.parquet, row 3: a value of id (double) would change as int64")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_file_that_ends_in_the_middle_of_a_line(orders: Table, run: Run, form: str) -> None:
    whole = {"csv": 'id,note\n1,"a"\n2,"b"', "json": '{"id": 1, "note": "a"}\n{"id": 2, "note": "b"}'}[form].encode()
    path = Path(f"a.{form}")
    path.write_bytes(whole)  # no line end at the end is no fault
    assert (run("load", orders.name, path).code, ids(orders)) == (0, [1, 2])
    for cut in (1, 2, 4):
        path.write_bytes(whole[:-cut])
        refused = run("load", orders.name, path)
        assert (refused.code, "line" in refused.err) == (Exit.REFUSED, True), refused.err
        assert "; does the file end in the middle of a line?" in refused.err
    check_nothing_was_written(orders, 1)


def test_letters(orders: Table, run: Run) -> None:
    """A mark of the byte order, line ends of Windows, quoted ones; and what is no UTF-8."""
    bom = b"\xef\xbb\xbf"
    Path("a.csv").write_bytes(bom + 'id,note\r\n1,"ü\r\nx"\r\n2,\r\n'.encode())
    Path("b.json").write_bytes(bom + '{"id": 3, "note": "ü\\r\\nx"}\r\n'.encode())
    assert run("load", orders.name, "a.csv", "b.json").code == 0
    found = orders.refresh().to_arrow(columns=["id", "note"]).to_pylist()
    assert sorted((row["id"], row["note"]) for row in found) == [(1, "ü\r\nx"), (2, None), (3, "ü\r\nx")]
    Path("a.csv").write_bytes("id,note\n1,a\n2,ü\n".encode("latin-1"))
    assert "LINE_INVALID: a.csv, line 3: this is not UTF-8" in run("load", orders.name, "a.csv").err
    Path("a.csv").write_bytes("id,note\n1,a\n".encode("utf-16"))
    assert "LINE_INVALID: a.csv, line 1: this is not UTF-8" in run("load", orders.name, "a.csv").err


def test_an_empty_file(orders: Table, run: Run) -> None:
    Path("a.json").touch()
    assert run("load", orders.name, "a.json").out == f"loaded 0 rows of a.json into {orders.name}, version 1\n"
    write("a.csv", "id")
    assert run("load", orders.name, "a.csv").out == f"loaded 0 rows of a.csv into {orders.name}, version 2\n"
    for word in ("csv", "parquet", "arrow"):
        Path(f"none.{word}").touch()
        assert run("load", orders.name, f"none.{word}", "--overwrite").code == Exit.REFUSED
    check_nothing_was_written(orders.refresh(), 2)


def test_csv_takes_no_nested_columns(lake: Lake, run: Run, name: str) -> None:
    table = lake.create_table(name, "id bigint, tags array<string>")
    write("a.csv", "id,tags", '1,"[""x""]"')
    refused = run("load", table.name, "a.csv")
    assert (refused.code, "COLUMN_NESTED: a.csv, tags: CSV has no arrays" in refused.err) == (Exit.REFUSED, True)
    write("a.csv", "id", "1")
    assert run("load", table.name, "a.csv").code == 0


def test_files_that_can_not_be_read(orders: Table, run: Run, tmp_path: Path) -> None:
    Path("folder.csv").mkdir()
    for path, said in (
        ("missing.csv", "FILE_UNREADABLE: missing.csv doesn't exist"),
        ("folder.csv", "PATH_INVALID: folder.csv is a folder"),
        ("s3://bucket/a.csv", "PATH_INVALID: s3://bucket/a.csv is no file of this machine"),
    ):
        refused = run("load", orders.name, path)
        assert (refused.code, said in refused.err) == (Exit.REFUSED, True), refused.err
    write("a.txt", "id", "1")
    refused = run("load", orders.name, "a.txt")
    assert (refused.code, "`a.txt` names no format" in refused.err) == (Exit.USAGE, True)
    assert run("load", orders.name, "a.txt", "--format", "csv").code == 0
    assert run("load", orders.name).code == Exit.USAGE
    assert run("load", orders.name, "a.txt", "--format", "csv", "--partition", "day=2026-11-01").code == Exit.USAGE
    write("a.csv", "id", "1")
    assert run("load", "nothing", "a.csv").code == Exit.NOT_FOUND
    assert run("load", orders.name, "a.csv", "--overwrite", "--partition", "day=2026-11-01").code == Exit.USAGE
    refused = run("load", orders.name, "a.csv", "--overwrite", "--on-conflict", "resubmit")
    assert (refused.code, "POLICY_INVALID" in refused.err) == (Exit.REFUSED, True)


def test_instants_of_old_spark_are_instants(lake: Lake, run: Run, name: str) -> None:
    table = lake.create_table(name, "id bigint, at timestamp")
    pq.write_table(
        pa.table({"id": [1], "at": pa.array([1_000_001], pa.timestamp("us"))}),
        "a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    assert run("load", table.name, "a.parquet").code == 0
    assert table.refresh().to_arrow()["at"].cast(pa.int64()).to_pylist() == [1_000_001]
    assert run("load", f"{name}_new", "a.parquet", "--create").code == 0
    assert [column.type for column in lake.table(f"{name}_new").meta.columns] == ["bigint", "timestamp"]


# ------------------------------------------------------------------------------------------------- tables that are made


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_missing_table_is_made(lake: Lake, run: Run, name: str, form: str) -> None:
    rows = pa.table({"Id": [1, 2], "day": [date(2026, 11, 1), None], "tags": [["a"], []]})
    path = f"a.{form}"
    if form == "parquet":
        pq.write_table(rows, path)
    else:
        write_arrow(path, rows)
    new = f"{name}_space.orders"
    words = ["load", new, path, "--create"]
    said = f"would create table {new} (Id bigint, day date, tags array<string>) with 2 rows of {path}\n"
    assert run(*words, "--dry-run").out == said
    assert new not in lake.tables()
    assert run(*words[:-1]).code == Exit.NOT_FOUND
    assert run(*words).out == f"loaded 2 rows of {path} into {new}, version 1\n"
    assert run(*words).out == f"loaded 2 rows of {path} into {new}, version 2\n"
    assert texts(lake.table(new).to_arrow()) == sorted([*texts(rows), *texts(rows)])


def test_csv_and_json_make_no_table(lake: Lake, run: Run, name: str) -> None:
    write("a.csv", "id", "1")
    write("a.json", '{"id": 2}')
    refused = run("load", name, "a.csv", "a.json", "--create")
    assert refused.code == Exit.USAGE
    assert "CSV and JSON don't say their types" in refused.err
    assert f'next: create it first: laketx table create {name} "id bigint"' in refused.err
    pq.write_table(pa.table({"id": [3]}), "a.parquet")
    assert run("load", name, "a.csv", "a.parquet", "a.json", "--create").code == 0
    assert ids(lake.table(name)) == [1, 2, 3]
    assert run("load", name, "a.csv", "--create").code == 0


def test_a_table_that_was_made_goes_again_if_the_load_fails(lake: Lake, run: Run, name: str) -> None:
    pq.write_table(pa.table({"id": [3]}), "a.parquet")
    write("b.csv", "id", "x")
    for more in ([], ["--dry-run"]):
        refused = run("load", name, "a.parquet", "b.csv", "--create", *more)
        assert (refused.code, "b.csv, line 2, id" in refused.err) == (Exit.REFUSED, True)
        assert name not in lake.tables()
    pq.write_table(pa.table({"n": pa.array([3], pa.uint16())}), "c.parquet")
    refused = run("load", name, "c.parquet", "--create")
    assert (refused.code, "TYPE_NOT_SUPPORTED" in refused.err) == (Exit.REFUSED, True)


# ----------------------------------------------------------------------------------------------------------- many rows


def test_many_rows_in_many_blocks(orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(source_files, "ROWS_AT_ONCE", 1_000)
    lines = [f'{number},"note\n""{number}"""' for number in range(MANY)]
    write("a.csv", "id,note", *lines)
    write("b.json", *(json.dumps({"id": number, "note": f'note\n"{number}"'}) for number in range(MANY)))
    rows = pa.table({"id": range(MANY), "note": [f'note\n"{number}"' for number in range(MANY)]})
    pq.write_table(rows, "c.parquet", row_group_size=7_000)
    write_arrow("d.arrow", rows.combine_chunks())
    wanted = set(zip(rows["id"].to_pylist(), rows["note"].to_pylist(), strict=True))
    for file in ("a.csv", "b.json", "c.parquet", "d.arrow"):
        done = run("load", orders.name, file, "--overwrite")
        assert (done.code, done.out.split()[1]) == (0, str(MANY)), done.err
        found = orders.refresh().to_arrow()
        assert set(zip(found["id"].to_pylist(), found["note"].to_pylist(), strict=True)) == wanted
    lines[MANY - 3] = "x,"
    write("a.csv", "id,note", *lines)
    refused = run("load", orders.name, "a.csv")
    assert f"a.csv, line {2 * (MANY - 3) + 2}, id: `x` is no bigint" in refused.err
    pq.write_table(pa.table({"id": [*range(MANY), 0.5]}), "c.parquet", row_group_size=7_000)
    assert f"c.parquet, row {MANY + 1}" in run("load", orders.name, "c.parquet").err


@pytest.mark.parametrize(("switch", "shows"), [("on", True), ("off", False)])
def test_a_bar_shows_how_far_it_is(
    orders: Table, run: Run, monkeypatch: pytest.MonkeyPatch, switch: str, shows: bool
) -> None:
    monkeypatch.setattr(progress_bars, "AFTER_S", 0.0)
    monkeypatch.setenv(progress_bars.SWITCH, switch)
    write("a.csv", "id", *map(str, range(MANY)))
    said = run("load", orders.name, "a.csv")
    assert (f"load {orders.name}, MB" in STYLE.sub("", said.err)) == shows
    assert run("load", orders.name, "a.csv", "--quiet").err == ""


def test_a_service_needs_the_place_of_the_files(lake: Lake, orders: Table, run: Run) -> None:
    address = find_or_start(Path(lake.warehouse))
    write("a.csv", "id", "1")
    refused = run("load", orders.name, "a.csv", "--server", address)
    assert (refused.code, "--warehouse says where the data files lie" in refused.err) == (Exit.USAGE, True)
    assert run("load", orders.name, "a.csv", "--server", address, "--warehouse", lake.warehouse).code == 0
    assert ids(orders) == [1]
