"""`python -m tests.simulation --seeds N --branches N --take-overs N`: runs N histories of each kind.

They are of a service that crashes, of one with branches, and of several servers on one bucket. One that fails names its
seed.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial

from metaservice.server.process import end_process
from tests.simulation.history import HistoryError, run_history
from tests.simulation.take_overs import run_take_overs


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories (default 200)")
    parser.add_argument("--branches", type=int, default=0, help="how many with branches (default 0)")
    parser.add_argument("--take-overs", type=int, default=0, help="how many of several servers (default 0)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--stop", action="store_true", help="end with the first history that fails")
    chosen = parser.parse_args()
    failed = play("histories", run_history, range(chosen.first, chosen.first + chosen.seeds), stop=chosen.stop)
    if not (failed and chosen.stop):
        seeds = range(chosen.first, chosen.first + chosen.branches)
        failed += play("histories with branches", partial(run_history, branches=2), seeds, stop=chosen.stop)
    if not (failed and chosen.stop):
        seeds = range(chosen.first, chosen.first + chosen.take_overs)
        failed += play("histories of several servers", run_take_overs, seeds, stop=chosen.stop)
    return 1 if failed else 0


def play(what: str, run: Callable[[int], Counter[str]], seeds: range, *, stop: bool) -> int:
    """How many failed."""
    counts: Counter[str] = Counter()
    failed = 0
    started = time.monotonic()
    for seed in seeds:
        try:
            counts += run(seed)
        except HistoryError as error:
            failed += 1
            print(f"FAILED {error}", flush=True)
            if stop:
                return failed
    if seeds:
        facts = ", ".join(f"{count} {fact}" for fact, count in sorted(counts.items()))
        print(f"{len(seeds)} {what} in {time.monotonic() - started:.1f} s: {facts}")
        print(f"{len(seeds) - failed} held, {failed} failed")
    return failed


if __name__ == "__main__":
    end_process(main())  # SlateDB has threads that a normal exit would wait for
