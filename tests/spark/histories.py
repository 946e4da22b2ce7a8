"""Random histories of a table."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any

from metaservice.client import add_column, drop_column, rename_column, widen_column
from protos.laketx.v1 import common_pb2
from tests.spark.reading import Identity, LabLake, LabTable, Row

COLUMNS = {"id": "bigint", "day": "string", "amount": "double", "status": "string"}
DAYS = ("1", "2", None)
NAN, INF = float("nan"), float("inf")


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
        table.update({one: {**table.rows[one], "amount": chance.choice([1.0, 2.0, NAN, -0.0, None])} for one in some})
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
            "amount": chance.choice([0.0, 1.0, NAN, INF, None]),
            "status": chance.choice(["a", "b", None]),
        }
        rows[(row["id"], row["day"]) if keyed else (len(rows),)] = row
    return list(rows.values())


# -- many at once ------------------------------------------------------------------------------------------------------

FIXED = ("site", "day", "cased", "id")
MANY = {
    "site": "string",
    "day": "string",
    "cased": "int",
    "id": "bigint",
    "n": "int",
    "amount": "double",
    "word": "string",
}
VALUES: dict[str, list[Any]] = {
    "int": [0, 1, -(1 << 31), None],
    "bigint": [0, 1, 1 << 40, None],
    "double": [0.0, -0.0, 1.5, -1e300, NAN, INF, -INF, None],
    "string": ["", "a", "ünï", None],
    "decimal(10,2)": [Decimal("0.00"), Decimal("-1.25"), None],
    "date": [date(1969, 12, 31), date(2026, 11, 1), None],
    "array<int>": [[], [1, None], [-1, 2, 3], None],
    "map<string,bigint>": [[], [("a", 1 << 40), ("ünï", None)], None],
    "struct<x:int,tags:array<string>>": [
        {"x": 1, "tags": ["a", None]},
        {"x": None, "tags": []},
        {"x": 0, "tags": None},
        None,
    ],
}
ADDED = ["int", "string", "double", "decimal(10,2)", "date"]
NESTED = {"many": "array<int>", "counts": "map<string,bigint>", "place": "struct<x:int,tags:array<string>>"}


def grow_many(
    lake: LabLake,
    name: str,
    seed: int,
    *,
    keyed: bool,
    cases: int,
    sites: int,
    steps: int,
    alters: int,
    more: Mapping[str, str] | None = None,
) -> LabTable:
    """A table that holds many histories. Each is one value of `cased`; some of them share the partitions of a site.

    A commit does to each case that it touches something else. So a version of the table is one of every case, and one
    scan shows them all. `more` are columns beside the usual ones.
    """
    chance = random.Random(seed)
    key = ["cased", "id"] if keyed else []
    table = lake.create(name, MANY | dict(more or {}), key=key, buckets=1, partition_by=["site", "day"])
    places = {case: f"s{case % sites}" for case in range(cases)}
    table.insert([row for case in places for row in rows_of_case(table, chance, places, case)])
    altered = set(chance.sample(range(steps), alters))
    for step in range(steps):
        if step in altered:
            alter(table, chance)
        else:
            step_many(table, chance, places)
    return table


def step_many(table: LabTable, chance: random.Random, places: dict[int, str]) -> None:
    sites = {site for site in sorted(set(places.values())) if chance.random() < 0.6}
    cases = [case for case, site in places.items() if site in sites and chance.random() < 0.7]
    kind = chance.choices(["rows", "insert", "compact", "minor", "scope", "restore"], [6, 1, 2, 1, 2, 2])[0]
    if kind == "insert":
        table.insert([row for case in cases for row in rows_of_case(table, chance, places, case)])
    elif kind == "compact":
        table.compact(lambda partition: partition.values[0].value.text in sites)
    elif kind == "minor" and table.meta.primary_key:
        table.minor()
    elif kind == "scope":
        scope = some_partitions(chance, sites)
        rows = [row for case in cases if chance.random() < 0.6 for row in rows_of_case(table, chance, places, case)]
        inside = [(one["site"], one["day"]) for one in scope]
        table.overwrite([row for row in rows if (row["site"], row["day"]) in inside], scope)
    elif kind == "restore":
        table.restore(chance.choice(sorted(table.at)), some_partitions(chance, sites))
    else:
        change_rows(table, chance, places, cases)


def some_partitions(chance: random.Random, sites: set[str]) -> list[Row]:
    """Some of theirs, empty ones too; never none, which would say all."""
    found = [{"site": site, "day": day} for site in sorted(sites) for day in DAYS[1:] if chance.random() < 0.7]
    return found or [{"site": "s0", "day": None}]


def change_rows(table: LabTable, chance: random.Random, places: dict[int, str], cases: list[int]) -> None:
    """One commit: rows of one case are added, those of another change, move or go."""
    by_case: dict[int, list[Identity]] = {}
    for identity, row in table.rows.items():
        by_case.setdefault(row["cased"], []).append(identity)
    upserts: list[Row] = []
    images: dict[Identity, Row] = {}
    gone: list[Identity] = []
    for case in cases:
        known = sorted(by_case.get(case, []), key=repr)
        touched = chance.sample(known, min(len(known), chance.randint(1, 4)))
        match chance.choice(["add", "update", "update", "delete", "move"]):
            case "add":
                upserts += rows_of_case(table, chance, places, case)
            case "update":
                images |= {one: other_values(table, chance, table.rows[one]) for one in touched}
            case "delete":
                gone += touched
            case _:
                taken = {table.identity(table.rows[one]) for one in known}
                for one in touched:
                    moved = {**table.rows[one], "day": chance.choice(DAYS[1:])}
                    if not table.meta.primary_key or table.identity(moved) not in taken:
                        taken.add(table.identity(moved))
                        upserts.append(moved)
                        gone.append(one)
    table.change(common_pb2.OPERATION_MERGE, upserts=upserts, images=images, gone=gone)


def alter(table: LabTable, chance: random.Random) -> None:
    kinds = {column.name: column.type for column in table.meta.columns}
    free = [name for name in kinds if name not in FIXED]
    one = chance.choice(free)
    fresh = f"x{table.head}"
    match chance.choice(["add", "rename", "drop", "swap", "widen"]):
        case "drop" if len(free) > 1:
            steps = [drop_column(one)]
        case "rename":
            steps = [rename_column(one, fresh)]
        case "swap" if len(free) > 1:
            other = next(name for name in free if name != one)
            steps = [rename_column(one, fresh), rename_column(other, one), rename_column(fresh, other)]
        case "widen" if any(kinds[name] == "int" for name in free):
            steps = [widen_column(next(name for name in free if kinds[name] == "int"), "bigint")]
        case _:
            nested = [kind for kind in kinds.values() if "<" in kind]
            steps = [add_column(fresh, chance.choice([*ADDED, *nested]))]
    table.evolve(*steps)


def rows_of_case(table: LabTable, chance: random.Random, places: dict[int, str], case: int) -> list[Row]:
    found: dict[Identity, Row] = {}
    for _ in range(chance.randint(1, 6)):
        fixed = {"site": places[case], "day": chance.choice(DAYS[1:]), "cased": case, "id": chance.randint(0, 12)}
        row = other_values(table, chance, fixed)
        found[table.identity(row) if table.meta.primary_key else (len(found),)] = row
    return list(found.values())


def other_values(table: LabTable, chance: random.Random, row: Row) -> Row:
    """The row with new values where they may change."""
    return {
        column.name: row[column.name] if column.name in FIXED else chance.choice(VALUES[column.type])
        for column in table.meta.columns
    }
