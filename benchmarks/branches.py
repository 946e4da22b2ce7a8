"""What making and dropping branches, the first write, plans and merges cost. `make bench-branch`; SCALE as elsewhere.

ARGS="making many" measures these parts alone. ARGS=stories prints what merges here, in Nessie and by Spark in Iceberg.
Elsewhere files are records alone: no row is written. SCALE=0.1 takes a minute; the sizes of SCALE=1 are those of a
large lake, and take twenty.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.branch_stories import table_of_stories
from benchmarks.frame import Benchmark, scaled, scratch
from benchmarks.peers.environment import ensure_python, said
from benchmarks.serving import Served, memory, server
from benchmarks.words import chosen
from metaservice.client import MetaClient, uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2

RUNS: Final = 5
BRANCHES: Final = 2_000
KEPT: Final = 100_000  # branches at once
LAKE: Final = 10_000  # tables of the lake whose branches are made and dropped
FILES: Final = 1_000_000  # of the large table
OWN: Final = 1_000  # commits on a branch, and of the parent meanwhile
TABLES: Final = 1_000  # of a merge
PARTS: Final = ("making", "kept", "beside", "many", "large", "story", "stories")
COMMITS: Final = 500
WRITES: Final = 50
ROUNDS_OF_ONE: Final = 3  # merges of one table
SETTLING_S: Final = 3  # the scheduler looks at new tables


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def lake(folder: Path, *flags: str) -> Iterator[tuple[Served, MetaClient]]:
    with server(folder, *flags) as served, MetaClient(f"laketx://{served.address}", principal="bench") as client:
        yield served, client


def create(client: MetaClient, name: str, profile: str = "row_level") -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint", nullable=True)]
    return client.create_table(catalog_pb2.Table(name=name, columns=columns, profile=profile)).table_id


def append(client: MetaClient, table_id: str, files: int = 1) -> None:
    txn_id = uuid7()
    made = [
        common_pb2.DataFile(path=f"{txn_id}/{number}.parquet", rows=1_000, bytes=100_000) for number in range(files)
    ]
    client.append(table_id, made, txn_id=txn_id)


def seconds(work: Callable[..., object], *arguments: object) -> float:
    begin = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begin


def at_once(work: Callable[[str], object], names: Sequence[str], callers: int = 8) -> float:
    """How many calls a second so many callers make."""
    with ThreadPoolExecutor(callers) as pool:
        return len(names) / seconds(lambda: list(pool.map(work, names)))


def meanwhile(client: MetaClient, others: str, work: Callable[[], object]) -> tuple[float, list[float]]:
    """How many seconds the work takes, and in milliseconds each append to another table meanwhile."""
    took: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        begin = time.perf_counter()
        running = pool.submit(work)
        while not running.done():
            took.append(seconds(append, client, others) * 1e3)
        running.result()
    return time.perf_counter() - begin, took


class Merges:
    """Merges, in turns with as long a time without one, and how long every append to another table took."""

    def __init__(self, client: MetaClient, others: str) -> None:
        self.took: list[float] = []
        self._client, self._others = client, others
        self._beside: list[float] = []
        self._alone: list[float] = []

    def play(self, branch: str) -> None:
        lasted, appends = meanwhile(self._client, self._others, lambda: self._client.merge_branch(branch))
        self.took.append(lasted)
        self._beside += appends
        time.sleep(SETTLING_S)  # the records of forks that have ended follow
        until = time.perf_counter() + lasted
        while time.perf_counter() < until:
            self._alone.append(seconds(append, self._client, self._others) * 1e3)

    def tell(self, bench: Benchmark, what: str) -> None:
        with_merge, without = p99(self._beside), p99(self._alone)
        peers = {
            "p99 during one, ms": [with_merge],
            "p99 without, ms": [without],
            "longest during one, ms": [max(self._beside)],
            "longest without, ms": [max(self._alone)],
        }
        work = f"appends to another table during a merge of {what}, p99 over that without"
        note = f"{len(self._beside)} appends, and {len(self._alone)} in turns with them"
        bench.add(work, [with_merge / without], unit="times", at_most=5, peers=peers, note=note)


def p99(took: Sequence[float]) -> float:
    return sorted(took)[max(len(took) * 99 // 100 - 1, 0)]


def making(bench: Benchmark, client: MetaClient) -> None:
    tables, count = scaled(LAKE), scaled(BRANCHES)
    say(f"a lake of {tables:,} tables")
    at_once(lambda name: create(client, name), [f"table_{number}" for number in range(tables)])
    time.sleep(SETTLING_S)
    rates: dict[str, list[float]] = defaultdict(list)
    for run in range(RUNS):
        names = [f"b{run}_{number}" for number in range(count)]
        rates["made"].append(at_once(client.create_branch, names))
        rates["look-ups"].append(at_once(lambda _: client.get_table("table_0"), names))
        rates["dropped"].append(at_once(client.drop_branch, names))
        few = names[: count // 4]
        rates["made alone"].append(at_once(client.create_branch, few, callers=1))
        rates["dropped alone"].append(at_once(client.drop_branch, few, callers=1))
        rates["made in one call"].append(count / seconds(client.create_branches, names))
        rates["dropped in one call"].append(count / seconds(client.drop_branches, names))
    beside = {"look-ups of one table": rates["look-ups"]}
    lake_of = f"in a lake of {tables:,} tables"
    bench.add(f"create a branch {lake_of}, 8 callers", rates["made"], unit="per s", at_least=2_000, peers=beside)
    bench.add(f"drop a branch {lake_of}, 8 callers", rates["dropped"], unit="per s", at_least=2_000, peers=beside)
    bench.add(f"create branches {lake_of}, many in a call", rates["made in one call"], unit="per s", at_least=2_000)
    bench.add(f"drop branches {lake_of}, many in a call", rates["dropped in one call"], unit="per s", at_least=2_000)
    bench.add(f"create a branch {lake_of}, one caller", rates["made alone"], unit="per s")
    bench.add(f"drop a branch {lake_of}, one caller", rates["dropped alone"], unit="per s")


def kept(bench: Benchmark, folder: Path) -> None:
    """What branches cost that are there: memory, and the start."""
    count, starts, sizes = scaled(KEPT), list[float](), list[float]()
    flags = "--branches-each", str(KEPT)
    for branches in (0, count):
        with lake(folder, *flags) as (served, client):
            say(f"{branches:,} branches")
            at_once(client.create_branch, [f"kept_{number}" for number in range(branches)])
        begin = time.perf_counter()
        with lake(folder, *flags) as (served, client):
            client.get_status()
            starts.append(time.perf_counter() - begin)
            sizes.append(memory(served))
    bench.add(f"memory with {count:,} branches", [sizes[1] - sizes[0]], unit="MiB more", at_most=300)
    bench.add(f"a start with {count:,} branches", [starts[1] - starts[0]], unit="s more", at_most=2)


def append_often(client: MetaClient, table_id: str, count: int) -> None:
    for _ in range(count):
        append(client, table_id)


def commits_beside(bench: Benchmark, client: MetaClient) -> None:
    table_id, count = create(client, "busy"), scaled(COMMITS)
    rates: dict[bool, list[float]] = {False: [], True: []}
    for run in range(RUNS):
        for beside in (False, True):
            names = [f"c{run}_{number}" for number in range(1_000)] if beside else []
            for name in names:
                client.create_branch(name)
            rates[beside].append(count / seconds(append_often, client, table_id, count))
            for name in names:
                client.drop_branch(name)
    bench.add("commits beside 1,000 branches", rates[True], unit="per s", peers={"without": rates[False]})


def large_table(bench: Benchmark, client: MetaClient) -> None:
    files = scaled(FILES)
    say(f"a table of {files:,} files")
    table_id = create(client, "large")
    for _ in range(max(files // 5_000, 1)):
        append(client, table_id, min(files, 5_000))
    plain = [seconds(append, client, table_id) * 1e3 for _ in range(WRITES)]
    first = []
    for number in range(WRITES):
        client.create_branch(f"w{number}")

        def write(number: int = number) -> None:
            append(client, client.get_table(f"large@w{number}").table_id)

        first.append(seconds(write) * 1e3)
        client.drop_branch(f"w{number}")
    looks = [seconds(client.get_table, "large") * 1e3 for _ in range(WRITES)]
    beside = {"look and append in the parent": [median(plain) + median(looks)]}
    bench.add(f"first write on a branch, {files:,} files", [median(first)], unit="ms", peers=beside)
    others = create(client, "others_of_one")
    merges = Merges(client, others)
    client.create_branch("plans")
    fork_id = client.get_table("large@plans").table_id
    for _ in range(scaled(OWN)):
        append(client, fork_id)
        append(client, table_id)
    plans: dict[str, list[float]] = {fork_id: [], table_id: []}
    for _ in range(RUNS + 1):
        for one in plans:
            plans[one].append(seconds(list, client.plan_scan(one)) * 1e3)
    bench.add("plan of a fork", plans[fork_id][1:], unit="ms", peers={"of its parent": plans[table_id][1:]})
    merges.play("plans")
    for number in range(1, ROUNDS_OF_ONE):
        name = f"plans_{number}"
        client.create_branch(name)
        fork_id = client.get_table(f"large@{name}").table_id
        for _ in range(scaled(OWN)):
            append(client, fork_id)
            append(client, table_id)
        merges.play(name)
    bench.add(f"merge of {scaled(OWN):,} commits onto as many", merges.took, unit="s", at_most=2)
    merges.tell(bench, f"{scaled(OWN):,} commits")


def many_tables(bench: Benchmark, client: MetaClient) -> None:
    count = scaled(TABLES)
    names = [f"t{number}" for number in range(count)]
    ids = [create(client, name) for name in names]
    merges = Merges(client, create(client, "others_of_many"))
    for run in range(RUNS):
        client.create_branch(f"m{run}")
        for name, table_id in zip(names, ids, strict=True):
            append(client, client.get_table(f"{name}@m{run}").table_id)
            append(client, table_id)
        merges.play(f"m{run}")
    bench.add(f"merge of {count:,} tables with a commit each", merges.took, unit="s", at_most=count / 1_000)
    merges.tell(bench, f"{count:,} tables")


def story(bench: Benchmark, client: MetaClient, folder: Path) -> None:
    """An append on a branch and one in the parent: what a merge keeps of both."""
    table_id = create(client, "story")
    append(client, table_id)
    client.create_branch("story")
    append(client, client.get_table("story@story").table_id)
    append(client, table_id)
    assert client.merge_branch("story").merged
    left = sum(1 for _ in client.list_files(table_id))
    folder.mkdir()
    peer = said([str(ensure_python()), "-W", "ignore", "-m", "benchmarks.peers.branch_appends", str(folder)])
    work = "appends of three that are there after a branch came back"
    bench.add(work, [left], unit="appends", at_least=3, peers={"pyiceberg, main set to the branch": peer["rows"][0]})


def main() -> None:
    parts = chosen(__doc__, PARTS) or PARTS
    bench = Benchmark("branches", "Branches", packages=["grpcio"])
    with scratch() as folder:
        if "stories" in parts:
            print(table_of_stories(folder / "stories"), flush=True)
        if parts == ["stories"]:
            return
        if "making" in parts:
            with lake(folder / "making") as (_, client):
                making(bench, client)
        if "kept" in parts:
            kept(bench, folder / "kept")
        with lake(folder / "data") as (_, client):
            if "beside" in parts:
                commits_beside(bench, client)
            if "many" in parts:
                many_tables(bench, client)
            if "large" in parts:
                large_table(bench, client)
            if "story" in parts:
                story(bench, client, folder / "story")
    raise SystemExit(0 if bench.finish() else 1)


if __name__ == "__main__":
    main()
