"""Bloom filters: files without a value are not read, and no row with it is missed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laketx import Lake, Table, connect
from metaservice.client import MetaServiceError
from metaservice.shared.column_lists import column_list, parse_column_list
from tests.arrow.damaged_files import damage_pages, parquet_files
from worker.files import bloom_filters
from worker.files.bloom_filters import hashes_of, may_have
from worker.iceberg.commits.properties import shown_properties

REFUSED = r"BLOOM_COLUMNS_INVALID|PROPERTY_INVALID"
AS_FILES = {"write.inline.rows": "0"}
DAY, MOMENT = date(2026, 11, 1), datetime(2026, 11, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    """A type of columns, values of it, and how a condition writes one."""

    type: str
    value: Any
    literal: Any


KINDS = [
    Kind("string", lambda n: f"u{n}@x", lambda v: f"'{v}'"),
    Kind("tinyint", lambda n: n % 100 - 50, str),
    Kind("smallint", lambda n: n * 7 - 3_000, str),
    Kind("int", lambda n: n * 104_729 - 9_000_000, str),
    Kind("bigint", lambda n: n * 10**15 - 10**17, str),
    Kind("date", lambda n: DAY + timedelta(n - 500), lambda v: f"'{v}'"),
    Kind("timestamp", lambda n: MOMENT + timedelta(seconds=n, microseconds=n), lambda v: f"'{v.isoformat()}'"),
    Kind("decimal(9,2)", lambda n: Decimal(n * 37 - 9_000).scaleb(-2), str),
    Kind("decimal(18,3)", lambda n: Decimal(n * 10**14 - 10**16).scaleb(-3), str),
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("bloom")) as made:
        yield made


def folder_of(table: Table) -> Path:
    return Path(table.view.folder.removeprefix("file:"))


def ids(table: Table, where: str) -> list[int]:
    return sorted(row["id"] for row in table.to_arrow(where=where).to_pylist())


def test_every_value_is_found_and_other_files_are_not_read(lake: Lake) -> None:
    names = [f"v{at}" for at in range(len(KINDS))]
    columns = ", ".join(f"{name} {kind.type}" for name, kind in zip(names, KINDS, strict=True))
    properties = AS_FILES | {"index.bloom.columns": ", ".join(names)}
    table = lake.create_table("of_kinds", f"id int, {columns}", properties=properties)
    rows: list[dict[str, Any]] = [
        {"id": n, **{name: kind.value(n) if n % 17 else None for name, kind in zip(names, KINDS, strict=True)}}
        for n in range(300)
    ]
    for part in range(3):  # each over the whole range, so that bounds leave none out
        table.append([row for row in rows if row["id"] % 3 == part])

    def asked(name: str, kind: Kind, *numbers: int) -> None:
        values = [kind.value(n) for n in numbers]
        listed = ", ".join(map(kind.literal, values))
        where = f"{name} IN ({listed})" if len(values) > 1 else f"{name} = {listed}"
        assert ids(table, where) == [row["id"] for row in rows if row[name] in values], where

    for name, kind in zip(names, KINDS, strict=True):
        for n in (1, 50, 99, 298):
            asked(name, kind, n)
        asked(name, kind, 31, 61, 92)
    assert damage_pages(folder_of(table), "id", {31}) == 2
    for name, kind in zip(names, KINDS, strict=True):
        if kind.type != "tinyint":  # whose few values are in each of the files
            asked(name, kind, 31)


def test_widened_renamed_and_dropped_columns(lake: Lake) -> None:
    table = lake.create_table("altered", "id int, a int, `b c` string, gone string", properties=AS_FILES)
    table.set_properties(**{"index.bloom.columns": "A, `b c`, gone"})
    table.append([{"id": n, "a": n * 3, "b c": f"s{n}", "gone": "x"} for n in range(50)])
    table.widen_column("a", "bigint")
    table.rename_column("b c", "d,e").drop_column("gone")
    assert parse_column_list(table.refresh().meta.properties["index.bloom.columns"]) == ("a", "d,e")
    table.append([{"id": n, "a": n * 3, "d,e": f"s{n}"} for n in range(50, 100)])
    for n in (0, 7, 49, 50, 99):
        assert ids(table, f"a = {n * 3}") == ids(table, f"`d,e` = 's{n}'") == [n]
    assert ids(table, "a = 1 OR a = 3") == [1]
    assert ids(table, f"a IN ({2**40}, 6, NULL)") == [2]


@pytest.mark.parametrize("keyed", [False, True])
def test_compactions_make_them_and_deleted_rows_stay_away(lake: Lake, keyed: bool) -> None:
    table = lake.create_table(
        f"compacted_{keyed}",
        "id int not null, email string, n int",
        primary_key=["id"] if keyed else [],
        properties=AS_FILES | {"index.bloom.columns": "email"},
    )
    chance = random.Random(7)
    rows: dict[int, dict[str, Any]] = {}
    for step in range(6):
        if keyed:
            given = {n: {"id": n, "email": f"e{chance.randrange(60)}", "n": step} for n in chance.sample(range(80), 30)}
            table.upsert(list(given.values()))
        else:
            numbers = range(step * 30, step * 30 + 30)
            given = {n: {"id": n, "email": f"e{chance.randrange(60)}", "n": step} for n in numbers}
            table.append(list(given.values()))
        rows |= given
        gone = f"e{chance.randrange(60)}"
        table.delete(f"email = '{gone}'")
        rows = {n: row for n, row in rows.items() if row["email"] != gone}
        if step in (2, 4):
            table.compact("minor" if step == 2 else "major")
        for number in range(0, 60, 5):
            wanted = sorted(n for n, row in rows.items() if row["email"] == f"e{number}")
            assert ids(table, f"email = 'e{number}'") == wanted, (step, number)
            assert table.count(where=f"email = 'e{number}'") == len(wanted)
    table.compact("major")
    newest = max(parquet_files(folder_of(table)), key=lambda path: path.stat().st_mtime_ns)
    assert pq.read_metadata(newest).row_group(0).column(1).bloom_filter_offset is not None


def test_a_large_filter_is_read_by_blocks_and_an_unknown_one_rules_nothing_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink = BytesIO()
    rows = pa.table({"v": [f"v{n}" for n in range(20_000)]})
    pq.write_table(rows, sink, bloom_filter_options={"v": {"ndv": 20_000, "fpp": 0.001}}, row_group_size=5_000)
    stream, metadata = pa.BufferReader(sink.getvalue()), pq.read_metadata(BytesIO(sink.getvalue()))
    present = [hashes_of([f"v{n * 5_000 + 11}"], pa.string()) for n in range(4)]
    absent = hashes_of([f"w{n}" for n in range(16)], pa.string())
    for whole in (1 << 18, 64):
        monkeypatch.setattr(bloom_filters, "WHOLE_BYTES", whole)
        for group in range(4):
            chunk = metadata.row_group(group).column(0)
            assert [may_have(stream, chunk, one) for one in present] == [at == group for at in range(4)]
            assert not may_have(stream, chunk, absent)
    many = hashes_of([f"w{n}" for n in range(17)], pa.string())
    assert may_have(stream, metadata.row_group(0).column(0), many)  # more blocks than are worth it
    offset = metadata.row_group(0).column(0).bloom_filter_offset
    changed = bytearray(sink.getvalue())
    changed[offset + 5] ^= 0x30  # another algorithm
    assert may_have(pa.BufferReader(bytes(changed)), metadata.row_group(0).column(0), absent)


@pytest.mark.parametrize(
    ("listed", "fact"),
    [
        ("emial", "emial"),
        ("id, ratio", "ratio"),
        ("wide", "wide"),
        ("tags", "tags"),
        ("id, ID", "id, ID"),
        ("id,,email", "id,,email"),
    ],
)
def test_a_column_without_filters_is_refused(lake: Lake, listed: str, fact: str) -> None:
    columns = "id int, email string, ratio double, wide decimal(30,2), tags array<string>"
    if "refused" not in lake.tables():
        lake.create_table("refused", columns)
    with pytest.raises(MetaServiceError, match=REFUSED) as refused:
        lake.table("refused").set_properties(**{"index.bloom.columns": listed})
    assert fact in str(refused.value)
    with pytest.raises(MetaServiceError, match=REFUSED):
        lake.create_table("never", columns, properties={"index.bloom.columns": listed})
    assert "index.bloom.columns" not in lake.table("refused").meta.properties
    assert "never" not in lake.tables()


def test_lists_of_columns() -> None:
    names = ("a", "b c", "d,e", "f`g", "h(")
    assert parse_column_list(column_list(names)) == names
    assert parse_column_list("  ") == () == parse_column_list(column_list(()))
    for wrong in (",", "a,", "`a", "a b`", "a, A"):
        with pytest.raises(ValueError, match=r".*"):
            parse_column_list(wrong)


def test_writers_of_iceberg_are_told() -> None:
    shown = shown_properties({"index.bloom.columns": "email, `b c`", "user.iceberg.owner": "ana"})
    prefix = "write.parquet.bloom-filter-enabled.column."
    assert shown == {f"{prefix}email": "true", f"{prefix}b c": "true", "owner": "ana"}
