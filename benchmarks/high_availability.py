"""A store in a bucket: how long commits wait when the leader ends, and their rate near and far. `make bench-ha`."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.commit import check_none_lost, make_table, put_load
from benchmarks.frame import ROOT, Benchmark, scale, scaled, scratch
from benchmarks.words import chosen
from metaservice.client import MetaClient, uuid7
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.high_availability import Load, check_history, create_table, list_committed, pair
from tests.integration.slow_bucket import far_away
from tests.integration.take_over_rounds import KILL, PAUSE, STEP_DOWN, STOP, play_round
from tools.deploy_tools import VERSITYGW, NotCheckedError, go_tool

WRITERS: Final = 16
WRITERS_MANY: Final = 32
NEAR_S: Final = 0.002
FAR_S: Final = 0.030
LEAST_PER_S: Final = 500
LOG_ROUNDS: Final = 5
LOG_MORE_MS: Final = 5
MORE_MS: Final = 40
PROFILE: Final = "delta_write_serializable"
ROUNDS: Final = 10  # of each way to end
ENDS: Final = {  # how the leader ends: what it is called, and how many seconds commits may wait
    KILL: ("killed with -9", 8.0),
    STOP: ("stopped by SIGTERM", 1.0),
    STEP_DOWN: ("told to step down", 1.0),
    PAUSE: ("stood still (SIGSTOP)", 8.0),
}


def take_over(bench: Benchmark, folder: Path) -> None:
    """Every answer is checked, as a test would."""
    rounds = list(ENDS) * scaled(ROUNDS, at_least=2)
    random.Random(1).shuffle(rounds)
    waits: dict[str, list[float]] = {end: [] for end in ENDS}
    with pair(folder) as both:
        load = Load(both.address, create_table(both), between_s=0.0)
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


def throughput(bench: Benchmark, folder: Path) -> None:
    """On a server of S3 beside the service, then with a delay on each request."""
    alone_ms: list[float] = []
    with bucket(folder) as variables:
        upstream = variables["AWS_ENDPOINT_URL"].removeprefix("http://")
        for where, delay_s, least_per_s in (("near", 0.0, 600), ("30 ms away", FAR_S, LEAST_PER_S)):
            with (
                far_away(upstream, delay_s) as there,
                leading(folder, variables | {"AWS_ENDPOINT_URL": there.url}) as at,
            ):
                many = measure_many(bench, at, f"{WRITERS_MANY} writers, bucket {where}", least_per_s)
                puts = [one for one in there.asked(many) if one.method == "PUT" and "/wal/" in one.target]
                work = f"{WRITERS_MANY} writers, bucket {where}: time of a PUT of the log"
                bench.add(work, [1000 * (one.end_s - one.start_s) for one in puts], unit="ms")
                runs = measure_alone(at)
                more = [ms - statistics.median(alone_ms) for ms in runs] if alone_ms else []
                alone_ms = alone_ms or runs
                bench.add(f"one writer, bucket {where} (median)", runs, unit="ms")
                if more:
                    bench.add("one writer: more than near", more, unit="ms", at_most=MORE_MS)


def log_elsewhere(bench: Benchmark, folder: Path) -> None:
    """The log in a near bucket, the rest in a far one, beside both in either; in turns."""
    with bucket(folder) as variables, ExitStack() as stack:
        upstream = variables["AWS_ENDPOINT_URL"].removeprefix("http://")
        near, far = (stack.enter_context(far_away(upstream, delay_s)).url for delay_s in (NEAR_S, FAR_S))
        log_near = {"LAKETX_STORE_LOG": f"s3://{BUCKET}", "LAKETX_STORE_LOG_ENDPOINT": near}
        places: Mapping[str, Mapping[str, str]] = {
            "log and data 2 ms away": {"AWS_ENDPOINT_URL": near},
            "log 2 ms away, data 30 ms": {"AWS_ENDPOINT_URL": far, **log_near},
            "log and data 30 ms away": {"AWS_ENDPOINT_URL": far},
        }
        services = {
            name: stack.enter_context(leading(folder / name, {**variables, **at})) for name, at in places.items()
        }
        rates: dict[str, list[float]] = {name: [] for name in places}
        waits: dict[str, list[float]] = {name: [] for name in places}
        for number in range(1 + LOG_ROUNDS):
            for name, address in services.items():
                with MetaClient(address) as client:
                    table_id = make_table(client, PROFILE)
                    many = put_load(address, "append", WRITERS_MANY, max(2.0, 4.0 * scale()), table_id)
                    check_none_lost(client, table_id, many)
                    alone = put_load(address, "append", 1, max(2.0, 3.0 * scale()), make_table(client, PROFILE), 1)
                if number:  # the first warms up
                    rates[name].append(many.per_s)
                    waits[name].append(alone.p50_ms)
                    print(f"{name}: {many.per_s:.0f}/s, {alone.p50_ms:.1f} ms", file=sys.stderr, flush=True)
        for name in places:
            bench.add(f"{WRITERS_MANY} writers, {name}: one-call append", rates[name], unit="commits/s")
            bench.add(f"one writer, {name} (median)", waits[name], unit="ms")
        both_near, mixed, _ = waits.values()
        more = [ms - other for ms, other in zip(mixed, both_near, strict=True)]
        bench.add("one writer, log 2 ms away: more for data 30 ms away", more, unit="ms", at_most=LOG_MORE_MS)


@contextmanager
def leading(folder: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """The address of a service that is alone on a store of its own."""
    place = f"s3://{BUCKET}/{uuid7()}"
    command = [sys.executable, "-m", "metaservice", "--listen", "127.0.0.1:0", "--store", place]
    command += ["--data", str(folder / "data")]
    folder.mkdir(exist_ok=True)
    with (folder / "service.log").open("ab") as errors:
        running = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, env=known_to(dict(variables))
        )
    assert running.stdout is not None
    try:
        yield running.stdout.readline().removeprefix("listening on ").strip()
    finally:
        running.terminate()
        running.wait(60)


def measure_many(bench: Benchmark, address: str, name: str, least_per_s: float) -> Callable[[], None]:
    """Every acknowledged commit is looked for in the log. Returns what puts the load once more."""

    def rate(kind: str) -> float:
        with MetaClient(address) as client:
            table_id = make_table(client, PROFILE)
            load = put_load(address, kind, WRITERS_MANY, max(2.0, 6.0 * scale()), table_id)
            check_none_lost(client, table_id, load)
        return load.per_s

    for what, kind in (("one-call append", "append"), ("begin, register 1 file and commit in one frame", "pipelined")):
        bench.measure(f"{name}: {what}", partial(rate, kind), unit="commits/s", at_least=least_per_s)
    bench.measure(f"{name}: begin; then register 1 file and commit", partial(rate, "transaction"), unit="commits/s")
    return lambda: print(f"{name}: {rate('append'):.0f}/s", file=sys.stderr)


def measure_alone(address: str) -> list[float]:
    with MetaClient(address) as client:
        table_id = make_table(client, PROFILE)
    return [put_load(address, "append", 1, max(2.0, 4.0 * scale()), table_id, 1).p50_ms for _ in range(4)][1:]


PARTS: Final[Mapping[str, Callable[[Benchmark, Path], None]]] = {
    "take-over": take_over,
    "throughput": throughput,
    "log-elsewhere": log_elsewhere,
}


def main() -> int:
    names = chosen(__doc__, PARTS)
    bench = Benchmark("high_availability", "High availability", packages=["grpcio", "slatedb"])
    try:
        go_tool(VERSITYGW)
    except NotCheckedError as error:
        print(f"this needs a server of S3: {error}", file=sys.stderr)
        return 2
    for name in names or PARTS:
        with scratch() as folder:
            PARTS[name](bench, folder)
    return 0 if bench.finish() else 1


if __name__ == "__main__":
    raise SystemExit(main())
