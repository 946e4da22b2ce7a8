"""A program that loads the next ten rows by dlt, again and again. Arguments: the folder, and how many runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt

from laketx.dlt import laketx

ROWS = 10


@dlt.resource(name="numbers", write_disposition="append")
def numbers() -> Iterator[dict[str, Any]]:
    """The ten rows behind the last ones that were loaded, by dlt's own state."""
    state = dlt.current.resource_state()
    begin = state.setdefault("next", 0)
    state["next"] = begin + ROWS
    yield from ({"n": n, "parts": [{"part": n}]} for n in range(begin, begin + ROWS))


def main(folder: Path, runs: int) -> None:
    pipeline = dlt.pipeline(
        "follower",
        destination=laketx(str(folder / "lake")),
        dataset_name="shop",
        pipelines_dir=str(folder / "pipelines"),
    )
    print("ready", flush=True)
    for _ in range(runs):
        if pipeline.has_pending_data:
            pipeline.run()  # normalizes and loads what is left of an earlier run
        else:
            pipeline.run(numbers)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
