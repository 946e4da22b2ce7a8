"""What calls cost as one thing grows by tens: processor time of a commit, a plan and a start, and memory.

    make bench-growth                   every thing
    make bench-growth ARGS="tags pins"  only these

A lake begins with one table of one file. One thing is added to it; at each size the service is started anew and its
processor time is measured: for the start, for appends of a file, and for plans that find one file. The figure is the
slope over the last ten times: 0 is a cost that does not grow, 1 one that grows as the thing does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import plot_growth
from benchmarks.figures import figure_text
from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.plan_tables import ROWS, Loader, data_file, loader
from benchmarks.serving import Served, memory, processor_seconds, server
from benchmarks.words import chosen
from metaservice.client import MetaClient, uuid7
from metaservice.client.conditions import parse_condition
from metaservice.core.limits import CURSORS_PER_TABLE_MAX, TAGS_PER_TABLE_MAX
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2

FLAGS: Final = (
    "--schedule-ms", "0", "--purge-delay-ms", "3600000", "--lease-ms", "3600000",
    *("--transactions-each", "10000", "--pins-each", "10000"),
    *("--requests-max", "1000000", "--requests-each", "1000000"),
)  # fmt: skip
RUNS: Final = 5
CALLS: Final = 30
WARM: Final = 20
FILES_A_COMMIT: Final = 10_000
SLOPES: Final = {"start": 1.1, "memory": 1.1, "commit": 0.2, "plan": 0.2}  # at most, over the last ten times
UNITS: Final = {"start": "s", "memory": "MiB", "commit": "ms", "plan": "ms"}


@dataclass
class Lake:
    """A lake whose one thing grows: a folder, and the table that is written and planned."""

    folder: Path
    table_id: str = ""
    columns: int = 0  # beside those that the table has
    tables: list[str] = field(default_factory=list)  # for marks, of which a table can have only so many


@dataclass(frozen=True)
class Thing:
    """What grows, by tens; `grow` makes the rest of a size from the one before."""

    sizes: Sequence[int]
    grow: Callable[[Lake, int, int], None]
    slopes: Mapping[str, float] = field(default_factory=dict)  # of costs that have to grow, at most


@contextmanager
def served(lake: Lake) -> Iterator[tuple[Served, MetaClient]]:
    with server(lake.folder, *FLAGS) as service, MetaClient(service.address, principal="bench") as client:
        client.ping()
        yield service, client


# -- what grows --------------------------------------------------------------------------------------------------------


def by_loading(work: Callable[[Loader, Lake, int, int], None]) -> Callable[[Lake, int, int], None]:
    """Growth by the service's own code, in this process."""

    def grow(lake: Lake, first: int, last: int) -> None:
        with loader(lake.folder) as load:
            work(load, lake, first, last)

    return grow


def by_calls(work: Callable[[MetaClient, Lake, int, int], None]) -> Callable[[Lake, int, int], None]:
    """Growth by calls of a client."""

    def grow(lake: Lake, first: int, last: int) -> None:
        with served(lake) as (_, client):
            work(client, lake, first, last)

    return grow


def add_files(load: Loader, lake: Lake, first: int, last: int) -> None:
    for start in range(first, last, FILES_A_COMMIT):
        numbers = range(start, min(start + FILES_A_COMMIT, last))
        load.append(lake.table_id, [[data_file(0, number) for number in numbers]])


def add_partitions(load: Loader, lake: Lake, first: int, last: int) -> None:
    for start in range(first, last, FILES_A_COMMIT):
        days = range(start, min(start + FILES_A_COMMIT, last))
        load.append(lake.table_id, [[data_file(day, day) for day in days]])


def add_versions(load: Loader, lake: Lake, first: int, last: int) -> None:
    load.replace(lake.table_id, last - first)


def add_tables(load: Loader, _lake: Lake, first: int, last: int) -> None:
    for number in range(first, last):
        load.append(load.create(f"t{number}"), [[data_file(0, 0)]])


def add_columns(client: MetaClient, lake: Lake, _first: int, last: int) -> None:
    """A table of its own for each size."""
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="int")]
    columns += [catalog_pb2.Column(name=f"c{number}", type="bigint") for number in range(last - 2)]
    table = catalog_pb2.Table(name=f"wide{last}", columns=columns, partition_columns=["day"])
    lake.table_id, lake.columns = client.create_table(table).table_id, last - 2
    append(client, lake, 0)


def marked(client: MetaClient, lake: Lake, number: int) -> str:
    """The table that is planned, and further ones."""
    lake.tables = lake.tables or [lake.table_id]
    while len(lake.tables) <= number:
        table = catalog_pb2.Table(name=f"m{len(lake.tables)}", columns=[catalog_pb2.Column(name="id", type="bigint")])
        lake.tables.append(client.create_table(table).table_id)
        client.append(lake.tables[-1], [])
    return lake.tables[number]


def add_tags(client: MetaClient, lake: Lake, first: int, last: int) -> None:
    for number in range(first, last):
        client.create_tag(marked(client, lake, number // TAGS_PER_TABLE_MAX), f"tag{number}", version=1)


def add_cursors(client: MetaClient, lake: Lake, first: int, last: int) -> None:
    for number in range(first, last):
        client.create_cursor(marked(client, lake, number // CURSORS_PER_TABLE_MAX), f"cursor{number}", version=1)


def add_pins(client: MetaClient, lake: Lake, first: int, last: int) -> None:
    for _ in range(first, last):
        client.pin([read_pb2.TableVersion(table_id=lake.table_id, version=1)], lease_ms=3_600_000)


def add_transactions(client: MetaClient, lake: Lake, first: int, last: int) -> None:
    intent = transaction_pb2.TableIntent(table_id=lake.table_id, operation=common_pb2.OPERATION_INSERT)
    for _ in range(first, last):
        client.begin_now(
            transaction_pb2.BeginTransactionRequest(
                txn_id=uuid7(), tables=[intent], principal=common_pb2.Principal(name="bench")
            )
        )


def add_inlined(client: MetaClient, lake: Lake, first: int, last: int) -> None:
    """Commits whose rows the service holds itself, 500 in a call."""
    for start in range(first, last, 500):
        appends = []
        for number in range(start, min(start + 500, last)):
            txn_id = uuid7()
            file = data_file(0, number)
            file.path, file.rows, file.content = f"{txn_id}/0.parquet", 10, bytes(512)
            file.bytes = len(file.content)
            appends.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=lake.table_id, files=[file]))
        client.commit_batch(appends)


THINGS: Final[Mapping[str, Thing]] = {
    "files": Thing((100, 1_000, 10_000, 100_000), by_loading(add_files), {"plan": 0.5}),  # in one partition
    "partitions": Thing((100, 1_000, 10_000, 100_000), by_loading(add_partitions)),
    "versions": Thing((100, 1_000, 10_000, 100_000), by_loading(add_versions)),
    "columns": Thing((20, 200, 2_000), by_calls(add_columns), {"commit": 1.1, "plan": 1.1}),
    "tables": Thing((10, 100, 1_000, 10_000), by_loading(add_tables)),
    "tags": Thing((10, 100, 1_000, 10_000), by_calls(add_tags)),
    "cursors": Thing((10, 100, 1_000, 10_000), by_calls(add_cursors)),
    "pins": Thing((10, 100, 1_000, 8_000), by_calls(add_pins)),
    "transactions": Thing((10, 100, 1_000, 8_000), by_calls(add_transactions)),
    "inlined": Thing((10, 100, 1_000, 10_000), by_calls(add_inlined)),
}


# -- what is measured --------------------------------------------------------------------------------------------------


def append(client: MetaClient, lake: Lake, number: int) -> None:
    txn_id = uuid7()
    file = data_file(0, number)
    file.path = f"{txn_id}/0.parquet"
    if lake.columns:
        del file.stats[1:]
        value = common_pb2.Value(integer=number)
        for column in range(lake.columns):
            file.stats.add(column_id=column + 3, min=value, max=value, nulls=0)
    client.append(lake.table_id, [file], txn_id=txn_id)


def plan(client: MetaClient, lake: Lake, predicate: common_pb2.Predicate) -> None:
    answered = sum(len(part.entries) for part in client.plan_scan(lake.table_id, predicate=predicate))
    assert answered >= 1


def cost(service: Served, call: Callable[[], None]) -> float:
    """Milliseconds of the service's processors for a call: the least of several runs."""
    for _ in range(WARM):
        call()
    runs = []
    for _ in range(RUNS):
        before = processor_seconds(service.pid)
        for _ in range(CALLS):
            call()
        runs.append(1000 * (processor_seconds(service.pid) - before) / CALLS)
    return min(runs)


def measure(lake: Lake) -> dict[str, float]:
    with served(lake) as (service, client):
        figures = {"start": processor_seconds(service.pid)}
        (columns,) = (table.columns for table in client.list_tables() if table.table_id == lake.table_id)
        predicate = parse_condition("id = 7 AND day = 0", columns)
        figures["plan"] = cost(service, lambda: plan(client, lake, predicate))
        figures["memory"] = memory(service)
        figures["commit"] = cost(service, lambda: append(client, lake, 10**9 // ROWS))
    return figures


def slope(points: Sequence[tuple[int, float]]) -> float:
    """Of the last two sizes, on a log-log scale."""
    (first, low), (last, high) = points[-2:]
    return math.log(max(high, 1e-9) / max(low, 1e-9)) / math.log(last / first)


def grown(thing: Thing, folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What each cost is at each size."""
    lake = Lake(folder)
    with loader(folder) as load:
        lake.table_id = load.create("growing")
        load.append(lake.table_id, [[data_file(0, 0)]])
    series: dict[str, list[tuple[int, float]]] = {name: [] for name in UNITS}
    before = 1
    for whole in thing.sizes:
        size = scaled(whole, before + 1)
        thing.grow(lake, before, size)
        for name, figure in measure(lake).items():
            series[name].append((size, figure))
        before = size
    return series


def main() -> int:
    names = chosen(__doc__, THINGS) or list(THINGS)
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    bench = Benchmark(
        "growth",
        "What calls cost as one thing grows",
        ["grpcio", "rocksdict", "protobuf"],
        draw=lambda path, title, machine: plot_growth.save(path, title, machine, curves, UNITS),
    )
    for name in names:
        thing = THINGS[name]
        with scratch() as folder:
            curves[name] = grown(thing, folder / "lake")
        for what, points in curves[name].items():
            listed = " · ".join(f"{size:,}: {figure_text(figure)}" for size, figure in points)
            at_most = thing.slopes.get(what, SLOPES[what])
            note = f"{UNITS[what]} {listed}"
            bench.add(f"{name}: {what}", [slope(points)], unit="slope", at_most=at_most, note=note)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
