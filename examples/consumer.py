"""A consumer that writes each event of a log once, however often it is stopped, killed and started again.

    python -m examples.consumer events.jsonl --folder ./warehouse

The log is a file with a JSON document on each line, and an event's offset is the number of its line; with Kafka it
would be the offset in a partition, and the application's name would end with the partition's number. Rows and the
highest offset are committed together, so the table itself knows where to go on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import laketx

APP_ID = "examples.consumer"
COLUMNS = "id bigint, page string, took_ms int"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="a file with a JSON document on each line")
    parser.add_argument("--folder", default="./warehouse", help="the lake (default: %(default)s)")
    parser.add_argument("--table", default="shop.visits", help="the table (default: %(default)s)")
    parser.add_argument("--flush-rows", type=int, default=1_000, help="rows of a commit (default: %(default)s)")
    options = parser.parse_args()

    with laketx.connect(options.folder) as lake:
        table = lake.create_table(options.table, COLUMNS, if_not_exists=True)
        with table.writer(app_id=APP_ID, flush_rows=options.flush_rows) as writer:
            begin = 0 if writer.resume_after is None else writer.resume_after + 1
            print(f"goes on at offset {begin}", flush=True)
            for offset, event in events(options.log, begin):
                writer.write(event, sequence=offset)
        print(f"{table.refresh().count()} events are in {table.name}")


def events(log: Path, begin: int) -> Iterator[tuple[int, dict[str, Any]]]:
    with log.open(encoding="utf-8") as lines:
        for offset, line in enumerate(islice(lines, begin, None), begin):
            yield offset, json.loads(line)


if __name__ == "__main__":
    main()
