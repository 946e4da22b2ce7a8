"""Random histories of a table."""

from __future__ import annotations

import random
from typing import Any

from tests.spark.reading import LabLake, LabTable

COLUMNS = {"id": "bigint", "day": "string", "amount": "double", "status": "string"}
DAYS = ("1", "2", None)


def grow(lake: LabLake, name: str, seed: int, *, keyed: bool, steps: int = 12) -> LabTable:
    """A partitioned table after some commits of every kind."""
    chance = random.Random(seed)
    table = lake.create(name, COLUMNS, key=["id"] if keyed else [], partition_by=["day"])
    table.insert(new_rows(chance, keyed))
    for _ in range(steps):
        step(table, chance, keyed=keyed)
    return table


def step(table: LabTable, chance: random.Random, *, keyed: bool) -> None:
    some = chance.sample(sorted(table.rows, key=repr), min(len(table.rows), chance.randint(1, 4)))
    kind = chance.choices(
        ["insert", "update", "delete", "compact", "minor", "overwrite", "truncate", "restore"], [6, 5, 5, 2, 2, 1, 1, 2]
    )[0]
    if kind == "insert" or (not some and kind in ("update", "delete")):
        table.insert(new_rows(chance, keyed))
    elif kind == "update":
        table.update({one: {**table.rows[one], "amount": chance.choice([1.0, 2.0, None])} for one in some})
    elif kind == "delete":
        table.delete(some)
    elif kind == "compact":
        if table.rows:
            table.compact()
    elif kind == "minor":
        if keyed:
            table.minor()
    elif kind == "overwrite":
        rows = new_rows(chance, keyed)
        day = chance.choice(DAYS)
        partitions: list[dict[str, Any]] = [] if chance.random() < 0.5 else [{"day": day}]
        table.overwrite([row for row in rows if not partitions or row["day"] == day], partitions)
    elif kind == "truncate":
        table.truncate()
    else:
        back = chance.choice(sorted(table.at))
        table.restore(back, [] if chance.random() < 0.5 else [{"day": chance.choice(DAYS)}])


def new_rows(chance: random.Random, keyed: bool) -> list[dict[str, Any]]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for _ in range(chance.randint(1, 8)):
        row = {
            "id": chance.randint(0, 15),
            "day": chance.choice(DAYS),
            "amount": chance.choice([0.0, 1.0, 2.0, None]),
            "status": chance.choice(["a", "b", None]),
        }
        rows[(row["id"], row["day"]) if keyed else (len(rows),)] = row
    return list(rows.values())
