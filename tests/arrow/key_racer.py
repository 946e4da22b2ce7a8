"""A process that writes keys when it is told to: `python -m tests.arrow.key_racer LAKE`.

A line on stdin is a step, and a line on stdout its end: `stage TABLE KEY DAY` upserts a row in a transaction, `commit`
commits it, `upsert TABLE KEY DAY` does both, again after a lost race.
"""

from __future__ import annotations

import sys
from typing import Any

from laketx import ConflictError, connect


def main() -> None:
    with connect(sys.argv[1]) as lake:
        staged: Any = None
        print("ready", flush=True)
        for line in sys.stdin:
            step, *words = line.split()
            answer = "committed"
            try:
                if step == "commit":
                    staged.__exit__(None, None, None)
                elif step == "stage":
                    staged, answer = lake.transaction(), "staged"
                    staged.__enter__()
                    staged.table(words[0]).upsert([row_of(*words[1:])])
                else:
                    lake.table(words[0]).upsert([row_of(*words[1:])], on_conflict="rerun")
            except ConflictError:
                answer = "lost"
            print(answer, flush=True)


def row_of(key: str, day: str) -> dict[str, Any]:
    return {"id": int(key), "day": day, "n": 0}


if __name__ == "__main__":
    main()
