"""Rows of `make bench-turns` that read and write tables without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.arrow_data import ARROW, SCHEMA, batches, is_hundredth, rows
from benchmarks.trees.work import UNCOMPACTED, Place, Row, Work, repeated, restoring
from laketx import Lake, Table

ROWS_READ = 1_000_000
BUCKETS = 8
DELTAS = 10
FEW = 10
COMMITS = 500
WIDE = 1_000  # columns
PARTITIONS = 200
SINGLE = 3_000


def of(ids: Any, edition: int = 0) -> pa.Table:
    return pa.Table.from_batches([rows(ids, edition)])


def append_table(lake: Lake, name: str) -> Table:
    table = lake.create_table(f"bench.{name}", SCHEMA, properties=UNCOMPACTED)
    table.append(pa.RecordBatchReader.from_batches(ARROW, batches(ROWS_READ)))
    return table


def keyed_table(lake: Lake, name: str, deltas: int = 0) -> Table:
    table = lake.create_table(f"bench.{name}", SCHEMA, primary_key=["id"], buckets=BUCKETS, properties=UNCOMPACTED)
    table.upsert(pa.Table.from_batches(batches(ROWS_READ)))
    for number in range(deltas):
        table.upsert(hundredth(number, number + 1))
    return table


def hundredth(number: int, edition: int) -> pa.Table:
    ids = np.arange(ROWS_READ)
    return of(ids[is_hundredth(number)(ids)], edition)


def small_table(lake: Lake, name: str, **settings: Any) -> Table:
    return lake.create_table(f"bench.{name}", SCHEMA, properties=UNCOMPACTED, **settings)


# -- reads -------------------------------------------------------------------------------------------------------------


def clean(place: Place) -> Work:
    return Work(append_table(place.lake, "clean").to_arrow)


def column(place: Place) -> Work:
    return Work(repeated(10, partial(append_table(place.lake, "column").to_arrow, columns=["amount"])))


def condition(place: Place) -> Work:
    table = append_table(place.lake, "condition")
    return Work(
        repeated(3, partial(table.to_arrow, columns=["id", "cust"], where="amount < 10 AND day > '2026-01-15'"))
    )


def deleted(place: Place) -> Work:
    table = append_table(place.lake, "deleted")
    ids = np.arange(ROWS_READ)
    table.delete(f"id IN ({', '.join(map(str, ids[is_hundredth(0)(ids)].tolist()))})")
    return Work(table.to_arrow)


def ten(place: Place) -> Work:
    return Work(keyed_table(place.lake, "ten", DELTAS).to_arrow)


def ten_anew(place: Place) -> Work:
    """The first read after an upsert has to find the hidden rows of each bucket."""
    table = keyed_table(place.lake, "anew", DELTAS)
    version = table.refresh().meta.head_version

    def before() -> None:
        table.restore(version=version)
        table.upsert(of(np.arange(0, ROWS_READ, ROWS_READ // 1_000), 99))

    return Work(table.to_arrow, before)


def look_up(place: Place) -> Work:
    table = keyed_table(place.lake, "lookup", 1)
    chance = np.random.default_rng(1)

    def unit() -> None:
        for key in chance.integers(0, ROWS_READ, 10).tolist():
            if table.to_arrow(where=f"id = {key}").num_rows != 1:
                raise RuntimeError(f"{key} was not found")

    return Work(unit)


def many_small(place: Place, name: str) -> Table:
    table = small_table(place.lake, name)
    for at in range(COMMITS):
        table.append(of(np.arange(at * FEW, (at + 1) * FEW)))
    return table


def inlined(place: Place) -> Work:
    return Work(repeated(5, many_small(place, "inlined").to_arrow))


def travel(place: Place) -> Work:
    table = many_small(place, "travelled")
    version = table.refresh().meta.head_version
    return Work(repeated(10, partial(table.to_arrow, version=version - COMMITS + 20)))


def small(place: Place) -> Work:
    """What a read takes that finds next to nothing."""
    table = small_table(place.lake, "little")
    table.append(of(np.arange(FEW)))
    return Work(repeated(30, table.to_arrow))


def process(place: Place) -> Work:
    small_table(place.lake, "first").append(of(np.arange(FEW)))
    program = (
        f"import laketx; lake = laketx.connect('laketx://{place.address}', warehouse={place.lake.warehouse!r}); "
        "print(lake.table('bench.first').to_arrow(limit=1).num_rows)"
    )
    return Work(lambda: subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL))


# -- writes ------------------------------------------------------------------------------------------------------------


def append_few(place: Place) -> Work:
    table, few = small_table(place.lake, "few"), of(np.arange(FEW))
    return Work(repeated(50, lambda: table.append(few)))


def append_many(place: Place) -> Work:
    table, many = small_table(place.lake, "appended"), of(np.arange(ROWS_READ // 4))
    return restoring(table, lambda: table.append(many))


def upsert_few(place: Place) -> Work:
    table, few = keyed_table(place.lake, "upserted_few"), of(np.arange(FEW), 1)
    return restoring(table, repeated(20, lambda: table.upsert(few)))


def upsert_many(place: Place) -> Work:
    table, changed = keyed_table(place.lake, "upserted"), hundredth(3, 1)
    return restoring(table, repeated(4, lambda: table.upsert(changed)))


def load_keyed(place: Place) -> Work:
    """The first rows of a primary-key table: sorted, and cut into buckets."""
    table, many = small_table(place.lake, "loaded", primary_key=["id"], buckets=BUCKETS), of(np.arange(ROWS_READ // 4))
    return restoring(table, lambda: table.upsert(many))


def delete_hundredth(place: Place, *, keyed: bool) -> Work:
    table = (keyed_table if keyed else append_table)(place.lake, f"shrunk_{keyed}".lower())
    return restoring(table, lambda: table.delete("amount < 100"))


def delete_few(place: Place) -> Work:
    table = keyed_table(place.lake, "one_gone")
    return restoring(table, repeated(5, lambda: table.delete(keys=[5, 50_000, 500_000])))


def overwrite(place: Place) -> Work:
    table, few = small_table(place.lake, "overwritten"), of(np.arange(FEW))
    return Work(repeated(20, lambda: table.overwrite(few)))


def writer(place: Place) -> Work:
    table = small_table(place.lake, "writer")
    row = rows(np.arange(1)).to_pylist()[0]

    def unit() -> None:
        with table.writer(flush_rows=500, flush_ms=10, rows_max=500) as out:
            for number in range(SINGLE):
                out.write({**row, "id": number})

    return Work(unit)


def wide(place: Place, *, read: bool) -> Work:
    names = [f"c{number}" for number in range(WIDE)]
    columns = ", ".join(f"{name} bigint" for name in names)
    table = place.lake.create_table(f"bench.wide_{read}".lower(), columns, properties=UNCOMPACTED)
    given = pa.table({name: list(range(FEW)) for name in names})
    table.append(given)
    return Work(repeated(5, partial(table.to_arrow, columns=names[7:8])) if read else lambda: table.append(given))


def partitions(place: Place, *, read: bool) -> Work:
    table = place.lake.create_table(
        f"bench.parts_{read}".lower(), "p bigint, v double", partition_by=["p"], properties=UNCOMPACTED
    )
    given = pa.table({"p": np.arange(PARTITIONS), "v": np.zeros(PARTITIONS)})
    table.append(given)
    return Work(table.to_arrow) if read else restoring(table, lambda: table.append(given))


def history(place: Place) -> Work:
    table = many_small(place, "remembered")
    return Work(repeated(3, partial(table.history, limit=None)))


MAKES: dict[str, tuple[str, Callable[[Place], Work]]] = {
    "clean": ("read of a clean table", clean),
    "column": ("10 reads of one column", column),
    "condition": ("3 reads by a condition", condition),
    "deleted": ("read, 1 % deleted", deleted),
    "ten": ("read by key, ten deltas, read again", ten),
    "anew": ("read by key, ten deltas, first after an upsert", ten_anew),
    "lookup": ("10 look-ups by key", look_up),
    "inlined": (f"5 reads of {COMMITS} inlined commits", inlined),
    "travel": (f"10 reads of a version {COMMITS - 20} commits ago", travel),
    "small": (f"30 reads of {FEW} rows", small),
    "process": ("a process, until it has a row", process),
    "history": (f"3 times the history of {COMMITS} commits", history),
    "append": (f"50 appends of {FEW} rows", append_few),
    "append-many": (f"append of {ROWS_READ // 4:,} rows", append_many),
    "upsert": (f"20 upserts of {FEW} rows", upsert_few),
    "upsert-many": ("4 upserts of 1 % of the rows", upsert_many),
    "load": (f"{ROWS_READ // 4:,} rows into {BUCKETS} buckets", load_keyed),
    "delete": ("delete of 1 % by a condition", partial(delete_hundredth, keyed=False)),
    "delete-keyed": ("delete of 1 % by a condition, primary key", partial(delete_hundredth, keyed=True)),
    "delete-few": ("5 deletes by three keys", delete_few),
    "overwrite": (f"20 overwrites by {FEW} rows", overwrite),
    "writer": (f"{SINGLE:,} single rows through a writer", writer),
    "wide": (f"append of {FEW} rows of {WIDE:,} columns", partial(wide, read=False)),
    "wide-read": (f"5 reads of one of {WIDE:,} columns", partial(wide, read=True)),
    "partitions": (f"a row each into {PARTITIONS} partitions", partial(partitions, read=False)),
    "partitions-read": (f"read of {PARTITIONS} partitions", partial(partitions, read=True)),
}
ROWS = {name: Row(title, make) for name, (title, make) in MAKES.items()}
