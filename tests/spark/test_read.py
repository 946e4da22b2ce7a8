"""Reads of tables whose every version is known."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as sf

from laketx.snapshot import snapshot_of
from metaservice.client import InvalidError, add_column, drop_column, rename_column, widen_column
from metaservice.client.calling import Caller
from protos.laketx.v1 import catalog_pb2
from tests.spark.histories import grow
from tests.spark.lab_tables import COLUMNS, WIDE, row
from tests.spark.reading import LabLake, LabTable, Row, expected, open_lab, shown, union
from worker.base.errors import InputError
from worker.dataframes import scan


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("a lake")) as made:
        yield made


def test_an_append_table_shows_every_version(lake: LabLake) -> None:
    table = lake.create("appended", COLUMNS)
    assert shown(scan.read(table.view)) == []
    table.insert([row(number) for number in range(200)])
    table.insert([row(number) for number in range(200, 230)])
    table.delete(table.find(0, 63, 64, 127, 199, 229))
    five, other = table.find(5, 210)
    table.update({five: row(5, 7.5, "paid"), other: row(210, 2.5, "paid")})
    table.delete([five])
    table.insert([row(1000)])
    table.compact()
    table.delete([other])
    check(table)


def test_a_primary_key_table_shows_every_version(lake: LabLake) -> None:
    table = lake.create("keyed", COLUMNS, key=["id"])
    table.insert([row(number) for number in range(100)])
    table.insert([row(number, 2.0) for number in range(50, 60)])
    table.delete([(number,) for number in (1, 55, 99)])
    table.insert([row(99, 3.0), row(200)])
    table.minor()
    table.delete([(200,)])
    table.compact()
    table.insert([row(7, 9.0)])
    check(table)


def check(table: LabTable) -> None:
    """Every version, in one job."""
    frames = [scan.read(table.view, version=version).select(sf.lit(version).alias("v"), "*") for version in table.at]
    found: dict[int, list[tuple[object, ...]]] = {version: [] for version in table.at}
    for one in union(frames).collect():
        found[one[0]].append(tuple(one)[1:])
    for version in table.at:
        assert sorted(map(repr, found[version])) == list(map(repr, expected(table, version))), version


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_random_histories(lake: LabLake, seed: int, keyed: bool) -> None:
    check(grow(lake, f"history_{seed}_{keyed}", seed, keyed=keyed))


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_columns_are_told_by_id(lake: LabLake, keyed: bool) -> None:
    table = lake.create(f"evolves_{keyed}", WIDE, key=["id"] if keyed else [], buckets=1)

    def old(number: int) -> Row:
        price = Decimal(number) / 4
        return {"id": number, "a": 1, "b": 2, "c": "old", "price": price, "part": 0.5, "day": date(2026, 11, 1)}

    table.insert([old(number) for number in range(4)])
    table.insert([old(3)] if keyed else [old(4)])
    before = table.head
    table.alter(
        rename_column("a", "x"),
        rename_column("b", "a"),
        rename_column("x", "b"),
        widen_column("a", "bigint"),
        drop_column("c"),
        add_column("c", "int"),
        widen_column("price", "decimal(20,4)"),
        widen_column("part", "double"),
        widen_column("day", "timestamp_ntz"),
        rows=lambda row: {
            "id": row["id"],
            "b": row["a"],
            "a": row["b"],
            "price": row["price"],
            "part": row["part"],
            "day": datetime(2026, 11, 1, tzinfo=UTC).replace(tzinfo=None),
            "c": None,
        },
    )
    image = {**table.rows[table.find(2)[0]], "a": 1 << 40, "c": 7}
    table.update({table.find(2)[0]: image})
    names = table.names
    assert names == ["id", "b", "a", "price", "part", "day", "c"]
    assert shown(scan.read(table.view)) == expected(table, table.head)
    was = scan.read(table.view, version=before)
    assert was.columns == list(WIDE)
    assert shown(was) == expected(table, before, list(WIDE))
    for where, then in [("a = 2 AND c IS NULL", None), ("c = 7", None), ("b = 2", before), ("c = 'old'", before)]:
        version = table.head if then is None else then
        whole = scan.read(table.view, version=version)
        assert shown(scan.read(table.view, version=version, where=where)) == shown(whole.filter(where)) != []
    assert shown(scan.read(table.view, where="b = 2")) == []
    assert shown(scan.read(table.view, where=sf.col("c") == 7)) == [tuple(image[name] for name in names)]


SWAP = (rename_column("status", "x"), rename_column("note", "status"), rename_column("x", "note"))


def swap(row: Row) -> Row:
    return row | {"status": row["note"], "note": row["status"]}


@pytest.mark.parametrize("meanwhile", ["alter", "compact", "drop"])
@pytest.mark.parametrize("keyed", [False, True])
def test_what_comes_between_the_calls_of_a_read_changes_nothing(
    lake: LabLake, monkeypatch: pytest.MonkeyPatch, keyed: bool, meanwhile: str
) -> None:
    table = lake.create(f"between_{meanwhile}_{keyed}", COLUMNS | {"note": "string"}, key=["id"] if keyed else [])
    for number in range(4):
        table.insert([row(number, status=f"s{number}") | {"note": "s9"}])
    changes: dict[str, Callable[[], object]] = {
        "alter": lambda: table.alter(*SWAP, rows=swap),
        "compact": table.compact,
        "drop": lambda: table.evolve(drop_column("status")),
    }
    version, view, real = table.head, table.view, lake.client.get_table
    seen: list[int] = []

    def look(name: str = "", **asked: Any) -> catalog_pb2.Table:
        found = real(name, **asked)
        if asked.get("version") == version and not seen:
            seen.append(version)
            changes[meanwhile]()
        return found

    monkeypatch.setattr(lake.client, "get_table", look)
    found = scan.read(view, where="status = 's2'")
    assert (seen, table.head) == ([version], version + 1)
    assert found.columns == [*COLUMNS, "note"]
    assert shown(found) == [one for one in expected(table, version, found.columns) if one[0] == 2]


def test_a_read_takes_two_calls_before_spark_plans_it(lake: LabLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.create("calls", COLUMNS)
    table.inlined_each = 0
    for number in range(3):
        table.insert([row(number)])
    asked: list[str] = []
    here = threading.get_ident()  # pins are renewed by a thread of their own

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Caller, method: object, request: object, **more: Any) -> Any:
            if threading.get_ident() == here:
                asked.append(type(request).__name__)
            return real(self, method, request, **more)

        return call

    view = table.view
    for name in ("_call", "_stream"):
        monkeypatch.setattr(Caller, name, counted(getattr(Caller, name)))
    for version, where, wanted in ((None, "id = 2", [2]), (2, "id = 1", [1]), (1, None, [0])):
        asked.clear()
        assert [each[0] for each in shown(scan.read(view, version=version, where=where))] == wanted
        assert asked == ["PinVersionsRequest", "GetTableRequest"]


def test_rows_tell_where_they_come_from(lake: LabLake) -> None:
    table = lake.create("origins", COLUMNS)
    table.insert([row(number) for number in range(2)])
    table.insert([row(number) for number in range(10, 13)], name="odd ü%20=.parquet")
    one, other = table.find(1, 11)
    table.update({one: row(1, 4.0)})
    table.delete([other])
    found = scan.read(table.view).select("*", "_file", "_row_id")
    assert found.columns == [*COLUMNS, "_file", "_row_id"]
    stored = {entry.file.path: entry for entry in lake.client.list_files(table.table_id) if entry.HasField("file")}
    rows = found.collect()
    assert {(each["_row_id"],): each["id"] for each in rows} == {key: each["id"] for key, each in table.rows.items()}
    assert {each["_file"] for each in rows} == set(stored)
    image = next(each["_file"] for each in rows if each["id"] == 1)
    assert stored[image].added_version == 3


def test_a_moment_and_a_count_of_commits(lake: LabLake) -> None:
    table = lake.create("travels", COLUMNS)
    table.insert([row(1)])
    table.insert([row(2)])
    first = next(one for one in lake.client.list_versions(table.table_id) if one.version == 1)
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=first.commit_time_us)
    assert shown(scan.read(table.view, timestamp=moment)) == expected(table, 1)
    assert shown(scan.read(table.view, timestamp=moment.replace(tzinfo=None).isoformat(" "))) == expected(table, 1)
    assert shown(scan.read(table.view, commits_ago=1)) == expected(table, 1)
    with pytest.raises(InputError, match="VERSION_AMBIGUOUS"):
        scan.read(table.view, version=1, commits_ago=1)
    with pytest.raises(InputError, match="TIMESTAMP_INVALID"):
        scan.read(table.view, timestamp="yesterday")
    with pytest.raises(InvalidError):
        scan.read(table.view, version=99)


def test_what_is_read_is_pinned(lake: LabLake) -> None:
    table = lake.create("pinned", COLUMNS)
    table.insert([row(1)])

    def held() -> list[int]:
        return sorted(pin.version for pin in lake.client.list_pins() if pin.table_id == table.table_id)

    with snapshot_of(table.view) as snapshot:
        assert snapshot.version == 1
        assert held() == [1]
        table.insert([row(2)])
        assert snapshot.read().count() == 1
    assert held() == []
    scan.read(table.view)
    scan.read(table.view)
    scan.read(table.view, version=1)
    assert held() == [1, 2]
    lake.pins.close()
    assert held() == []
