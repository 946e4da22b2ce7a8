"""`laketx head`, `count` and `export`: the rows of tables in a terminal, without Spark."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx.commands import export
from metaservice.cli import command_line
from metaservice.cli.failures import Exit
from metaservice.cli.show import count_live
from metaservice.client.folder_service import find_or_start
from tests.arrow.tables import open_lake
from tests.integration.terminal import Ended
from tests.spark.histories import grow
from tests.spark.reading import LabLake, LabTable, Row

Run = Callable[..., Ended]
ROOT = Path(__file__).parents[2]
COLUMNS = {"id": "bigint", "day": "date", "amount": "decimal(10,2)", "at": "timestamp", "note": "string"}
MANY = 40_000


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lake(tmp_path_factory.mktemp("lake")) as made:
        yield made


@pytest.fixture(scope="module", params=["append", "keyed"])
def orders(lake: LabLake, request: pytest.FixtureRequest) -> LabTable:
    """With rows that were updated and rows that were deleted."""
    table = lake.create(f"{request.param}_orders", COLUMNS, key=["id"] if request.param == "keyed" else [])
    table.insert([order(number) for number in range(6)])
    table.update({one: {**table.rows[one], "note": 'late, and "big"'} for one in table.find(1)})
    table.delete(table.find(2, 3))
    table.insert([order(number) for number in (8, 9)])
    return table


def order(number: int) -> Row:
    return {
        "id": number,
        "day": date(2026, 11, 1 + number),
        "amount": Decimal(number).scaleb(-2) * 150,
        "at": datetime(2026, 11, 1, number, 30, 0, 250_000 * (number % 2), UTC),
        "note": None if number == 4 else "" if number == 5 else f"n{number}",
    }


@pytest.fixture
def run(lake: LabLake, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> Ended:
        capfd.readouterr()
        code = command_line.run([*map(str, words)], {"LAKETX_FOLDER": lake.warehouse})
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return run


def ids(table: LabTable, version: int | None = None) -> list[int]:
    return sorted(row["id"] for row in table.at[table.head if version is None else version].values())


# ------------------------------------------------------------------------------------------------------ head and count


def test_head_shows_the_visible_rows_as_a_table(orders: LabTable, run: Run) -> None:
    shown = run("head", orders.meta.name)
    header, *rows = shown.lines()
    assert (shown.code, shown.err, header.split()) == (0, "", ["ID", "DAY", "AMOUNT", "AT", "NOTE"])
    assert sorted(row.split(maxsplit=5) for row in rows) == [
        ["0", "2026-11-01", "0.00", "2026-11-01", "00:30:00Z", "n0"],
        ["1", "2026-11-02", "1.50", "2026-11-01", "01:30:00.250000Z", 'late, and "big"'],
        ["4", "2026-11-05", "6.00", "2026-11-01", "04:30:00Z", "NULL"],
        ["5", "2026-11-06", "7.50", "2026-11-01", "05:30:00.250000Z"],
        ["8", "2026-11-09", "12.00", "2026-11-01", "08:30:00Z", "n8"],
        ["9", "2026-11-10", "13.50", "2026-11-01", "09:30:00.250000Z", "n9"],
    ]


def test_head_takes_columns_a_condition_a_version_and_a_limit(orders: LabTable, run: Run) -> None:
    name = orders.meta.name
    shown = run("head", name, "--columns", "note, ID", "--where", "id IN (1, 2) AND day < '2026-12-01'").lines()
    assert [line.split() for line in shown] == [["NOTE", "ID"], ["late,", "and", '"big"', "1"]]
    assert len(run("head", name, "-n", 4, "--version", 1).lines()) == 1 + 4
    lines = run("head", orders.table_id, "--version", 1, "-o", "json", "--columns", "id,amount,at,note").lines()
    assert sorted(lines)[5] == '{"id": 5, "amount": 7.50, "at": "2026-11-01T05:30:00.250000Z", "note": ""}'
    assert [json.loads(line)["note"] for line in sorted(lines)] == ["n0", "n1", "n2", "n3", None, ""]


def test_every_version_is_counted(orders: LabTable, run: Run) -> None:
    name = orders.meta.name
    for version, rows in orders.at.items():
        assert run("count", name, "--version", version).out == f"{len(rows)}\n"
    assert run("count", name, "--ago", 1).out == "4\n"
    assert json.loads(run("count", name, "--where", "amount >= 7.5", "-o", "json").out) == {
        "table": name,
        "version": orders.head,
        "rows": 3,
    }
    assert run("tag", "create", name, "first", "--version", 1).code == 0
    assert run("count", name, "--tag", "first").out == "6\n"


def test_what_is_asked_wrongly_is_refused(orders: LabTable, run: Run, tmp_path: Path) -> None:
    name = orders.meta.name
    column = run("head", name, "--columns", "id,price")
    assert column.code == Exit.REFUSED
    assert "COLUMN_UNKNOWN: there is no column price; there are id, day, amount, at, note" in column.err
    condition = run("count", name, "--where", "id > ")
    assert (condition.code, condition.err.splitlines()[-1].strip()) == (Exit.USAGE, "^")
    assert run("count", "nothing").code == Exit.NOT_FOUND
    assert run("count", name, "--version", 99).code == Exit.REFUSED
    assert run("head", name, "--version", 1, "--ago", 1).code == Exit.USAGE
    elsewhere = run("head", name, "--warehouse", tmp_path)
    assert (elsewhere.code, "FILE_UNREADABLE" in elsewhere.err) == (Exit.REFUSED, True)
    assert "is --warehouse right?" in elsewhere.err


def test_a_service_needs_the_place_of_the_files(lake: LabLake, orders: LabTable, run: Run) -> None:
    address = find_or_start(Path(lake.warehouse))
    asked = run("count", orders.meta.name, "--server", address)
    assert (asked.code, "--warehouse says where the data files lie" in asked.err) == (Exit.USAGE, True)
    assert run("count", orders.meta.name, "--server", address, "--warehouse", lake.warehouse).out == "6\n"


def test_show_says_the_number_of_rows_where_it_is_known(lake: LabLake, orders: LabTable, run: Run) -> None:
    name = orders.meta.name
    for version, rows in orders.at.items():
        live = json.loads(run("show", name, "--version", version, "-o", "json").out)["live"]
        assert live["rows"] >= len(rows)
        assert live.get("visible_rows", len(rows)) == len(rows), version
    stored = 11 if orders.meta.primary_key else 9  # with two tombstones
    assert f"live rows     at most {stored}: `laketx count {name} --version 4`" in run("show", name).out
    assert "live rows     0\n" in run("show", name, "--version", 0).out
    plain = lake.create(f"plain_{name}", COLUMNS, key=list(orders.meta.primary_key))
    plain.insert([order(1), order(2)])
    plain.compact()
    assert "live rows     2\n" in run("show", plain.meta.name).out
    plain.overwrite([order(3)])
    plain.compact()
    assert "live rows     1\n" in run("show", plain.meta.name).out


@pytest.mark.parametrize("seed", range(4))
def test_show_never_says_a_wrong_number(lake: LabLake, seed: int) -> None:
    table = grow(lake, f"grown{seed}", seed, keyed=bool(seed % 2))
    known = 0
    for version, rows in table.at.items():
        live = count_live(lake.client, table.table_id, version)
        known += "visible_rows" in live
        assert live.get("visible_rows", len(rows)) == len(rows) <= live["rows"], version
    assert known  # at least of the table without rows


# -------------------------------------------------------------------------------------------------------------- exports


def test_an_export_to_csv(orders: LabTable, run: Run, tmp_path: Path) -> None:
    done = run("export", orders.meta.name, "--to", tmp_path / "rows.csv", "--columns", "id,note,amount,at")
    assert done.out == f"exported 6 rows of {orders.meta.name}, version {orders.head}, to {tmp_path}/rows.csv\n"
    header, *lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert header == "id,note,amount,at"
    assert sorted(lines)[1:4] == [
        '1,"late, and ""big""",1.50,2026-11-01 01:30:00.250000Z',
        "4,,6.00,2026-11-01 04:30:00Z",
        '5,"",7.50,2026-11-01 05:30:00.250000Z',
    ]
    with (tmp_path / "rows.csv").open(newline="") as file:
        assert sorted(int(row["id"]) for row in csv.DictReader(file)) == ids(orders)


def test_an_export_to_json(orders: LabTable, run: Run, tmp_path: Path) -> None:
    for name in ("rows.json", "rows.NDJSON"):
        path = tmp_path / name
        done = run("export", orders.meta.name, "--to", path, "--version", 1, "--where", "id > 3", "-o", "json")
        answer = {"table": orders.meta.name, "version": 1, "rows": 2, "file": str(path)}
        assert json.loads(done.out) == answer
        assert sorted(map(json.loads, path.read_text().splitlines()), key=lambda row: row["id"]) == [
            {"id": 4, "day": "2026-11-05", "amount": 6.0, "at": "2026-11-01T04:30:00Z", "note": None},
            {"id": 5, "day": "2026-11-06", "amount": 7.5, "at": "2026-11-01T05:30:00.250000Z", "note": ""},
        ]


def test_an_export_to_parquet(orders: LabTable, run: Run, tmp_path: Path) -> None:
    for version in orders.at:
        path = tmp_path / f"{version}.parquet"
        assert run("export", orders.meta.name, "--to", path, "--version", version).code == 0
        found = pq.read_table(path)
        assert found.schema.field("at").type == pa.timestamp("us", "UTC")
        wanted = sorted(orders.at[version].values(), key=lambda row: row["id"])
        assert found.sort_by("id").to_pylist() == wanted


def test_an_export_to_standard_output(orders: LabTable, run: Run) -> None:
    done = run("export", orders.meta.name, "--to", "-", "--format", "csv", "--columns", "id", "--where", "id = 9")
    assert (done.out, done.err) == ("id\n9\n", f"1 rows of {orders.meta.name}, version {orders.head}\n")
    assert run("export", orders.meta.name, "--to", "-").code == Exit.USAGE


def test_a_file_that_is_there_stays(orders: LabTable, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    words = ["export", orders.meta.name, "--to", path, "--format", "csv", "--columns", "id"]
    assert run("export", orders.meta.name, "--to", path).code == Exit.USAGE
    assert run(*words).code == 0
    again = run(*words, "--where", "id = 1")
    assert (again.code, "FILE_EXISTS" in again.err) == (Exit.REFUSED, True)
    assert len(path.read_text().splitlines()) == 7
    assert run(*words, "--where", "id = 1", "--overwrite").code == 0
    assert path.read_text() == "id\n1\n"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("keyed", [False, True])
def test_an_export_that_fails_leaves_nothing(lake: LabLake, run: Run, tmp_path: Path, form: str, keyed: bool) -> None:
    table = lake.create(f"torn_{form}_{keyed}", {"id": "bigint"}, key=["id"] if keyed else [], buckets=1)
    for number in range(5):
        table.insert([{"id": number}])
    gone = next(iter(lake.client.list_files(table.table_id))).file
    (Path(table.folder) / gone.path).unlink()
    path = tmp_path / f"rows.{form}"
    failed = run("export", table.meta.name, "--to", path)
    assert (failed.code, "FILE_UNREADABLE" in failed.err, list(tmp_path.iterdir())) == (Exit.REFUSED, True, [])
    path.write_text("mine")
    assert run("export", table.meta.name, "--to", path, "--overwrite").code == Exit.REFUSED
    assert (path.read_text(), list(tmp_path.iterdir())) == ("mine", [path])


def test_places_that_no_export_takes(lake: LabLake, orders: LabTable, run: Run, tmp_path: Path) -> None:
    own = next(Path(orders.folder).rglob("*.parquet"))
    for to in (own, "s3://bucket/rows.csv", tmp_path / "missing" / "rows.csv"):
        refused = run("export", orders.meta.name, "--to", to, "--overwrite")
        assert (refused.code, "PATH_INVALID" in refused.err) == (Exit.REFUSED, True), to
    refused = run("export", orders.meta.name, "--to", tmp_path, "--format", "csv", "--overwrite")
    assert "is not a file" in refused.err
    assert run("count", orders.meta.name).out == "6\n"


def test_an_imported_file_is_not_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "arrivals").mkdir()
    path = tmp_path / "arrivals" / "rows.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    assert run("import", path.parent, "imported").code == 0
    refused = run("export", "imported", "--to", path, "--overwrite")
    assert (refused.code, "belongs to the table itself" in refused.err) == (Exit.REFUSED, True)
    assert sorted(run("head", "imported").out.split()) == ["1", "2", "ID"]


def test_csv_takes_no_nested_columns(lake: LabLake, run: Run, tmp_path: Path) -> None:
    lake.create("nested", {"id": "bigint", "tags": "array<string>"})
    refused = run("export", "nested", "--to", tmp_path / "rows.csv")
    assert (refused.code, list(tmp_path.iterdir())) == (Exit.REFUSED, [])
    assert "COLUMN_NESTED: CSV has no arrays, maps and structs, such as tags" in refused.err
    assert run("export", "nested", "--to", tmp_path / "rows.csv", "--columns", "id").code == 0
    assert (tmp_path / "rows.csv").read_text() == "id\n"
    assert run("export", "nested", "--to", tmp_path / "rows.parquet").code == 0
    assert pq.read_table(tmp_path / "rows.parquet").schema.names == ["id", "tags"]


def test_an_export_of_many_rows(lake: LabLake, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROW_GROUP_BYTES", 1 << 18)
    table = lake.create("many", {"id": "bigint", "name": "string"})
    table.insert([{"id": number, "name": f"name {number}"} for number in range(MANY)])
    table.insert([{"id": -1, "name": None}])
    for form in ("csv", "json", "parquet"):
        assert run("export", "many", "--to", tmp_path / f"rows.{form}").code == 0
    found = sorted(map(json.loads, (tmp_path / "rows.json").open()), key=lambda row: row["id"])
    assert found == sorted(table.rows.values(), key=lambda row: row["id"])
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == MANY + 2
    written = pq.ParquetFile(tmp_path / "rows.parquet")
    assert (written.metadata.num_rows, written.metadata.num_row_groups > 1) == (MANY + 1, True)
    assert written.read().sort_by("id").to_pylist() == found


def test_no_spark_is_needed(lake: LabLake, orders: LabTable, tmp_path: Path) -> None:
    story = f"""
import sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None  # as if it weren't installed
from metaservice.cli import command_line
environment = {{"LAKETX_FOLDER": {lake.warehouse!r}}}
for words in (["count"], ["head"], ["export", "--to", "rows.csv"]):
    code = command_line.run([words[0], {orders.meta.name!r}, *words[1:]], environment)
    assert code == 0, words
"""
    words = [sys.executable, "-c", story]
    subprocess.run(words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 7
