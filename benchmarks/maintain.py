"""How long table services take to find out what is worth compacting. `make bench-maintain`.

The planner runs in this process, over the service's own store; `laketx compaction plan` is a process of its own and
asks a server. Three tables, each of 100,000 partitions of three files: in one of them everything is due.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.frame import ROOT, Benchmark, scaled, scratch
from benchmarks.plan_tables import Loader, data_file, loader
from benchmarks.serving import server
from benchmarks.words import chosen
from metaservice.server.process import tune_interpreter
from metaservice.server.wiring import CHECK_PAUSE_S
from metaservice.service.compaction.layouts import Layouts
from protos.laketx.v1 import common_pb2

PARTITIONS = 100_000
PARTITIONS_FEW = 100
FILES_A_PARTITION = 3
FILES_A_COMMIT = 10_000
DUE_EVERY = 1_000
TASKS = 50
FIRST_S = 2.0
CHANGED_MS = 50.0


class Tables(NamedTuple):
    """Loaded tables, by id."""

    append: str
    keyed: str
    due: str


def load(loaded: Loader, name: str, minor_files: int, *, keyed: bool = False) -> str:
    """Every partition gets as many files; one in a thousand gets more than its policy likes."""
    table_id = loaded.create(name, {"compaction.minor.files": str(minor_files)}, keyed=keyed)
    partitions, kind = scaled(PARTITIONS), kind_of(keyed=keyed)
    for number in range(FILES_A_PARTITION):
        for start in range(0, partitions, FILES_A_COMMIT):
            days = range(start, min(start + FILES_A_COMMIT, partitions))
            loaded.append(table_id, [[data_file(day, number, kind) for day in days]])
    due = [data_file(day, number, kind) for day in range(0, partitions, DUE_EVERY) for number in range(minor_files)]
    loaded.append(table_id, [due])
    return table_id


def kind_of(*, keyed: bool) -> common_pb2.FileKind.ValueType:
    return common_pb2.FILE_KIND_DELTA if keyed else common_pb2.FILE_KIND_UNSPECIFIED


class Planner:
    """Plans a table as the scheduler does."""

    def __init__(self, loaded: Loader, table_id: str, kind: common_pb2.FileKind.ValueType) -> None:
        self._loaded = loaded
        self._table_id = table_id
        self._kind = kind
        self._decider = loaded.service.decider
        self._layouts = Layouts(self._decider, lambda: time.sleep(CHECK_PAUSE_S))
        self._day = 0

    def again(self) -> float:
        """Seconds until the best tasks are known."""
        table = self._decider.state.get_table(self._table_id).view()
        start = time.perf_counter()
        found, _ = self._layouts.best(table, time.time_ns() // 1_000, TASKS, frozenset())
        taken_s = time.perf_counter() - start
        assert found, "nothing is due"
        return taken_s

    def first(self) -> float:
        self._layouts.drop([self._table_id])
        return self.again()

    def again_ms(self) -> float:
        return 1_000 * self.again()

    def changed_ms(self) -> float:
        """Milliseconds after a commit to some of the partitions."""
        days = [(self._day + number) % scaled(PARTITIONS) for number in range(PARTITIONS_FEW)]
        self._day += PARTITIONS_FEW
        self._loaded.append(self._table_id, [[data_file(day, FILES_A_PARTITION, self._kind) for day in days]])
        return self.again_ms()


def add_planner_rows(bench: Benchmark, loaded: Loader, tables: Tables) -> None:
    partitions = scaled(PARTITIONS)
    for kind, table_id in zip(("without key", "keyed", "everything due"), tables, strict=True):
        planner = Planner(loaded, table_id, kind_of(keyed=table_id == tables.keyed))
        name = f"{partitions} partitions, {kind}"
        bench.measure(f"{name}: first time", planner.first, unit="s", at_most=FIRST_S, warm_ups=0)
        bench.measure(f"{name}: nothing changed", planner.again_ms, unit="ms", at_most=CHANGED_MS, runs=5)
        what = f"{name}: {PARTITIONS_FEW} of them changed"
        bench.measure(what, planner.changed_ms, unit="ms", at_most=CHANGED_MS, runs=5)


def dry_run(address: str, table_id: str) -> Callable[[], float]:
    """Seconds of a command, its start included."""
    command = [sys.executable, "-m", "metaservice.cli", "--server", address, "-o", "json", "--timeout", "60"]

    def once() -> float:
        start = time.perf_counter()
        said = subprocess.run(
            [*command, "compaction", "plan", table_id, "--dry-run"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        taken_s = time.perf_counter() - start
        assert json.loads(said.stdout)["tasks"], "nothing is due"
        return taken_s

    return once


def add_command_rows(bench: Benchmark, folder: Path, tables: Tables) -> None:
    with server(folder, "--schedule-ms=0") as (address, _):
        for kind, table_id in (("little due", tables.append), ("everything due", tables.due)):
            once = dry_run(address, table_id)
            bench.add(f"laketx compaction plan --dry-run, {kind}: first time", [once()], unit="s")
            bench.measure(f"laketx compaction plan --dry-run, {kind}: again", once, unit="s", warm_ups=0)


def main() -> int:
    chosen(__doc__)
    tune_interpreter()  # the planner runs here as it does in the service
    bench = Benchmark("maintain", "Planning of table services", ["grpcio", "rocksdict", "protobuf"])
    with scratch() as folder:
        data = folder / "db"
        with loader(data) as loaded:
            tables = Tables(load(loaded, "append", 10), load(loaded, "keyed", 10, keyed=True), load(loaded, "due", 2))
            add_planner_rows(bench, loaded, tables)
        add_command_rows(bench, data, tables)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    sys.exit(main())
