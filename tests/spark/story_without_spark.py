"""Calls that need no Spark, played with it and without it: what they answer is the same."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import laketx
from metaservice.cli.command_line import run_words

COLUMNS = "id bigint, region string, amount double"


def play(lake: laketx.Lake, folder: Path) -> list[object]:
    """The answers, without ids and times."""
    said: list[object] = []
    orders = lake.create_table("shop.orders", COLUMNS, primary_key=["id"])
    orders.upsert([{"id": 1, "region": "eu", "amount": 1.5}, {"id": 2, "region": "us"}])
    orders.upsert([{"id": 2, "region": "us", "amount": 2.5}, {"id": 3, "region": "eu"}])
    orders.delete(keys=[1])
    times = {one.version: one.time for one in orders.history()}
    said += [orders.resolve(), orders.resolve(version=1), orders.resolve(commits_ago=1)]
    said += [orders.resolve(timestamp=times[2]), orders.resolve(timestamp=times[2].isoformat())]
    cursor = orders.cursor("nightly", version=1)
    said += [cursor.version, rows_of(cursor.to_arrow(mode="log")), cursor.read_to, cursor.advance()]
    said += [cursor.count(), rows_of(cursor.to_arrow(until=3)), cursor.advance()]
    said += [orders.restore(version=1).version, rows_of(orders.to_arrow())]
    said += [orders.restore(timestamp=times[3]).version, orders.truncate().version, orders.count()]
    visits = lake.create_table("shop.visits", "id bigint, at timestamp, region string", partition_by=["at", "region"])
    at = "2026-11-01T10:00:00Z"
    for region in ("eu", "us"):
        moments = pa.array([0, 0], pa.timestamp("us", "UTC"))
        visits.append(pa.table({"id": [1, 2], "at": moments, "region": [region] * 2}))
    visits.truncate(partition={"AT": "1970-01-01T00:00:00Z", "region": "eu"})
    said += [rows_of(visits.to_arrow()), visits.truncate(partition=[{"at": at, "region": "us"}]).version]
    with lake.transaction("both") as txn:
        txn.table("shop.orders").restore(version=2)
        txn.table("shop.visits").truncate()
        txn.advance(moved(cursor.refresh()))
    said += [(one.version, one.operation, one.files_added, one.files_removed) for one in visits.history()]
    said += [rows_of(orders.to_arrow()), cursor.version, *looks(orders, times[3]), differing(lake)]
    said += [imported(lake, folder), defined(lake)]
    return said


def looks(orders: laketx.Table, time: datetime) -> list[object]:
    """Versions that stay, and increments in every mode, by numbers and by times."""
    said: list[object] = []
    for point in ({}, {"version": 2}, {"timestamp": time}, {"timestamp": time.isoformat()}, {"commits_ago": 1}):
        with orders.snapshot(**point) as held:
            orders.upsert([{"id": 9}])
            rows = [
                held.to_arrow(),
                held.to_arrow(columns=["id"], where="id > 1", limit=5),
                held.to_batches().read_all(),
            ]
            said += [held.version, held.count(), *map(rows_of, rows)]
    for mode in ("latest", "changes", "log"):
        said += [rows_of(orders.to_arrow(since=0, mode=mode)), rows_of(orders.to_arrow(since=time, until=4, mode=mode))]
    return said


def differing(lake: laketx.Lake) -> list[str]:
    """`laketx diff` at every pair of versions, as the command line shows it, and `describe`."""
    compared = lake.create_table("compared", "id bigint not null comment 'which', day date", comment="of a story")
    for day in (1, 2):
        compared.append([{"id": 1, "day": date(2026, 11, day)}])
    compared.truncate()
    found: list[str] = []
    for older in range(4):
        for newer in range(4):
            shown = io.StringIO()
            words = [
                "--folder",
                lake.warehouse,
                "diff",
                "compared",
                "--from",
                str(older),
                "--to",
                str(newer),
                "-o",
                "json",
            ]
            with redirect_stdout(shown):
                assert run_words(words, {}) == 0
            answer = json.loads(shown.getvalue())
            found += [f"{side} {entry['file']['rows']}" for side in ("added", "removed") for entry in answer[side]]
    return [*found, str(compared.describe().to_pylist()), str(compared.describe().schema)]


def defined(lake: laketx.Lake) -> list[object]:
    """Columns by words."""
    words = "ID Integer, `a b` Long comment 'it''s', s struct<x: short, y byte>, d dec(5,1) default 1.5, t timestamp"
    table = lake.create_table("defined", words, primary_key=["id"])
    table.add_columns("note string, s.z Array<Real>, m map<string, numeric>").rename_column("note", "remark")
    table.widen_column("s.x", "LONG").set_default("remark", "'none'").drop_column("t")
    again = lake.create_table("again", table.schema)
    assert again.schema.to_arrow() == again.to_arrow().schema
    assert again.schema == lake.table("again").schema == table.schema != lake.table("shop.orders").schema
    return [repr(table.schema), str(table.schema.to_arrow()), table.schema.names, table.schema["ID"].type, again.ddl()]


def imported(lake: laketx.Lake, folder: Path) -> list[object]:
    for day in ("2026-11-01", "2026-11-02"):
        (folder / f"day={day}" / "n=1").mkdir(parents=True)
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "tags": [["a"], None], "a b": [{"x": 1}, None]})
        pq.write_table(rows, folder / f"day={day}" / "n=1" / "x.parquet")
    table = lake.import_parquet(folder, "shop.imported")
    return [table.ddl(), rows_of(table.to_arrow()), table.meta.head_version]


def moved(cursor: Any) -> Any:
    cursor.scanner()
    return cursor


def rows_of(rows: pa.Table) -> list[str]:
    shown = rows.drop_columns([name for name in rows.column_names if name == "_commit_time"])
    return sorted(map(repr, shown.to_pylist()))


def refusals(lake: laketx.Lake) -> list[str]:
    """The reasons of what is wrong."""
    table = lake.create_table("refused", "id bigint, day date", partition_by=["day"])
    cursor = table.cursor("c")
    wrong: list[Callable[[], object]] = [
        lambda: table.resolve(version=9),
        lambda: table.resolve(timestamp="yesterday"),
        lambda: table.resolve(timestamp="1970-01-01T00:00:00Z"),
        table.restore,
        lambda: table.restore(version=7),
        lambda: table.truncate(partition="dynamic"),
        lambda: table.truncate(partition={"month": 1}),
        lambda: table.truncate(partition={"day": "soon"}),
        lambda: table.truncate(on_conflict="resubmit"),
        cursor.advance,
        lambda: cursor.to_arrow(since=0),
        lambda: cursor.to_arrow(mode="all"),
        lambda: snapshot_rows(table, version=0),
        lambda: snapshot_rows(table, since=0),
        lambda: table.snapshot(version=0, tag="x").__enter__(),
        lambda: table.snapshot(version=9).__enter__(),
        lambda: lake.import_parquet("/no/such/folder", "x"),
        lambda: lake.create_table("wrong", "id text"),
        lambda: lake.create_table("wrong", "id varchar(3)"),
        lambda: lake.create_table("wrong", "id bigint,"),
        lambda: table.add_columns("note string not null"),
        lambda: table.add_columns("id.x string"),
        lambda: table.add_columns("note string default 'x'"),
        lambda: table.widen_column("id", "number"),
    ]
    return [reason_of(one) for one in wrong]


def snapshot_rows(table: laketx.Table, **asked: Any) -> object:
    with table.snapshot() as held:
        return held.to_arrow(**asked)


def reason_of(work: Callable[[], object]) -> str:
    try:
        work()
    except (laketx.MetaServiceError, laketx.InputError) as error:
        return error.reason
    return "none"
