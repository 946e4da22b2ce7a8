"""A process that changes random keys until it is killed: `python -m tests.arrow.key_writer ADDRESS LAKE TABLE NAME`.

What a change does follows from its name, `NAME-NUMBER`, which is its commit's message. A line on stdout is a change
that was acknowledged.
"""

from __future__ import annotations

import random
import sys
from typing import Any, NamedTuple

from laketx import ConflictError, Table, connect

DAYS = ["a", "b", "c", "d"]
KEYS = 40


class Change(NamedTuple):
    """One change: `rows` to upsert, `keys` to delete, or `moved` to another day."""

    name: str
    rows: list[dict[str, Any]]
    keys: list[int]
    moved: str = ""

    def write(self, table: Table) -> None:
        if self.moved:
            table.update(
                {"day": f"'{self.moved}'"}, where=f"id = {self.keys[0]}", on_conflict="rerun", message=self.name
            )
        elif self.keys:
            table.delete(keys=self.keys, on_conflict="rerun", message=self.name)
        else:
            table.upsert(self.rows, on_conflict="rerun", message=self.name)

    def apply(self, state: dict[int, dict[str, Any]]) -> None:
        state.update({row["id"]: row for row in self.rows})
        for key in self.keys:
            if self.moved and key in state:
                state[key] = {**state[key], "day": self.moved}
            elif not self.moved:
                state.pop(key, None)


def change_of(name: str) -> Change:
    chance = random.Random(name)
    keys = chance.sample(range(KEYS), chance.randint(1, 5))
    match chance.choice(["upsert", "upsert", "upsert", "delete", "move"]):
        case "delete":
            return Change(name, [], keys)
        case "move":
            return Change(name, [], keys[:1], chance.choice(DAYS))
        case _:
            return Change(
                name, [{"id": key, "day": chance.choice(DAYS), "n": chance.randrange(1 << 30)} for key in keys], []
            )


def main() -> None:
    address, warehouse, name, own = sys.argv[1:]
    with connect(address, warehouse=warehouse) as lake:
        table = lake.table(name)
        print("ready", flush=True)
        for number in range(1 << 30):
            change = change_of(f"{own}-{number}")
            try:
                change.write(table)
            except ConflictError:
                continue  # too many others
            print(change.name, flush=True)


if __name__ == "__main__":
    main()
