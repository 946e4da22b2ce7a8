"""`python -m tests.histories --minutes N`: records histories of concurrent clients, and checks them."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.histories.checker import violations
from tests.histories.recorder import record


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.histories", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5); one round at least")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (default 1)")
    parser.add_argument("--transactions", type=int, default=60, help="of each client in a round (default 60)")
    parser.add_argument("--kills", type=int, default=3, help="of the service in a round (default 3)")
    chosen = parser.parse_args()
    ended: Counter[str] = Counter()
    deadline, seed = time.monotonic() + chosen.minutes * 60, chosen.seed
    while True:
        with tempfile.TemporaryDirectory(prefix="laketx-histories-") as folder:
            world = record(Path(folder), seed=seed, transactions=chosen.transactions, kills=chosen.kills)
        broken = [f"{profile}: {one}" for profile, history in world.histories.items() for one in violations(history)]
        ended += world.ended
        for one in broken:
            print(f"seed {seed}: {one}", flush=True)
        if broken:
            return 1
        if time.monotonic() >= deadline:
            break
        seed += 1
    facts = ", ".join(f"{count} {what}" for what, count in sorted(ended.items()))
    print(f"{seed - chosen.seed + 1} rounds held: {facts}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
