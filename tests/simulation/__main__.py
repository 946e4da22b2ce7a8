"""`python -m tests.simulation --seeds N`: runs N histories; one that fails names its seed."""

import argparse
import time
from collections import Counter

from tests.simulation.history import HistoryError, run_history


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--stop", action="store_true", help="end with the first history that fails")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    failed = 0
    started = time.monotonic()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        try:
            counts += run_history(seed)
        except HistoryError as error:
            failed += 1
            print(f"FAILED {error}", flush=True)
            if chosen.stop:
                return 1
    took = time.monotonic() - started
    facts = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
    print(f"{chosen.seeds} histories in {took:.1f} s: {facts}")
    print(f"{chosen.seeds - failed} held, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
