"""Two processes on one bucket: how long commits wait when the leader ends. `make bench-ha`."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.frame import Benchmark, scaled, scratch
from tests.integration.high_availability import Load, check_history, create_table, list_committed, pair, play_round
from tools.deploy_tools import VERSITYGW, NotCheckedError, go_tool

WRITERS: Final = 16
ROUNDS: Final = 10  # of each way to end
ENDS: Final = {  # how the leader ends: what it is called, and how many seconds commits may wait
    "kill": ("killed with -9", 8.0),
    "stop": ("stopped by SIGTERM", 1.0),
    "step down": ("told to step down", 1.0),
    "pause": ("stood still (SIGSTOP)", 8.0),
}


def take_over(bench: Benchmark, folder: Path) -> None:
    """Every answer is checked, as a test would."""
    rounds = list(ENDS) * scaled(ROUNDS, at_least=2)
    random.Random(1).shuffle(rounds)
    waits: dict[str, list[float]] = {end: [] for end in ENDS}
    with pair(folder) as both:
        load = Load(both.address, create_table(both))
        load.start(WRITERS, readers=1)
        try:
            for end in rounds:
                waits[end].append(play_round(both, load, end))
                print(f"{end}: {waits[end][-1]:.2f} s", file=sys.stderr, flush=True)
        finally:
            load.stop()
        check_history(load, list_committed(both.leader().address, load.table_id))
    for end, (name, most_s) in ENDS.items():
        bench.add(f"leader {name}: until commits go on", waits[end], unit="s", at_most=most_s)
        bench.add(f"leader {name}: the longest", [max(waits[end])], unit="s", at_most=most_s)


PARTS: Final[Mapping[str, Callable[[Benchmark, Path], None]]] = {"take-over": take_over}


def main() -> int:
    bench = Benchmark("high_availability", "High availability", packages=["grpcio", "slatedb"])
    try:
        go_tool(VERSITYGW)
    except NotCheckedError as error:
        print(f"this needs a server of S3: {error}", file=sys.stderr)
        return 2
    for name in sys.argv[1:] or PARTS:
        with scratch() as folder:
            PARTS[name](bench, folder)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
