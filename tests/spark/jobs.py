"""Jobs that run on Spark and, as plain Python, on a dict of rows; and which order of them explains a table.

A job is a dict that survives JSON, so that another process can run it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from laketx import Commit, ConflictError, Table
from laketx.table_writes import Verbs

SCHEMA = "id bigint, amount bigint, day string"
Answer = TypeVar("Answer")
Job = dict[str, Any]
State = dict[int, tuple[int, str]]  # id: amount, day


@dataclass(frozen=True)
class Done:
    """A job that committed: at `version`, having seen what was there at `seen`."""

    job: Job
    seen: int
    version: int

    @property
    def is_blind(self) -> bool:
        return bool(self.job["do"] == "insert")


def random_jobs(chance: random.Random, first_id: int, many: int) -> list[Job]:
    """Most of them don't commute with others; new ids are this list's own."""
    found: list[Job] = []
    for number in range(many):
        day, factor, rest = chance.choice("ab"), chance.choice([2, 3]), chance.randrange(3)
        new = [[first_id + 10 * number + one, one, chance.choice("ab")] for one in range(3)]
        found.append(
            chance.choice(
                [
                    {"do": "insert", "rows": new},
                    {"do": "update", "day": day, "factor": factor, "plus": number + 1},
                    {"do": "update", "day": "", "factor": factor, "plus": number + 1},
                    {"do": "move", "from": day, "to": "b" if day == "a" else "a", "rest": rest},
                    {"do": "delete", "day": day, "rest": rest},
                    {"do": "merge", "rows": [*new[:2], [rest, 100, day]]},
                    {"do": "overwrite", "day": day, "rows": [[one, amount, day] for one, amount, _ in new]},
                ]
            )
        )
    return found


def run(table: Table, job: Job, *, on_conflict: Any = None) -> Commit:
    """By the front door."""
    return run_by(table.lake.spark, table, job, on_conflict=on_conflict)


def run_by(spark: SparkSession, table: Verbs[Answer], job: Job, *, on_conflict: Any = None) -> Answer:
    """The same for a table in a transaction."""
    how: dict[str, Any] = {"on_conflict": on_conflict}
    match job["do"]:
        case "insert":
            return table.insert(spark.createDataFrame([tuple(one) for one in job["rows"]], SCHEMA), **how)
        case "update":
            where = f"day = '{job['day']}'" if job["day"] else None
            return table.update({"amount": f"amount * {job['factor']} + {job['plus']}"}, where, **how)
        case "move":
            where = f"day = '{job['from']}' and id % 3 = {job['rest']}"
            return table.update({"day": f"'{job['to']}'", "amount": "amount + 1"}, where, **how)
        case "delete":
            return table.delete(f"day = '{job['day']}' and id % 3 = {job['rest']}", **how)
        case "merge":
            source = spark.createDataFrame([tuple(one) for one in job["rows"]], SCHEMA)
            merge = table.merge(source, on="id").when_matched_update({"amount": "target.amount * 2 + source.amount"})
            return merge.when_not_matched_insert().execute(**how)
        case "overwrite":
            rows = spark.createDataFrame([tuple(one) for one in job["rows"]], SCHEMA)
            return table.overwrite(rows, partition={"day": job["day"]}, **how)
        case "pay":
            sums = " ".join(f"when id = {one} then {amount}" for one, amount in job["sums"])
            ids = ", ".join(str(one) for one, _ in job["sums"])
            return table.update({"amount": f"amount + case {sums} end"}, f"id in ({ids})", **how)
        case other:
            raise ValueError(other)


def replay(state: State, job: Job) -> State:
    match job["do"]:
        case "insert":
            return state | {one: (amount, day) for one, amount, day in job["rows"]}
        case "update":
            return {
                one: (amount * job["factor"] + job["plus"], day) if job["day"] in ("", day) else (amount, day)
                for one, (amount, day) in state.items()
            }
        case "move":
            hit = {one for one, (_, day) in state.items() if day == job["from"] and one % 3 == job["rest"]}
            return state | {one: (state[one][0] + 1, job["to"]) for one in hit}
        case "delete":
            return {k: v for k, v in state.items() if not (v[1] == job["day"] and k % 3 == job["rest"])}
        case "merge":
            found = dict(state)
            for one, amount, day in job["rows"]:
                found[one] = (state[one][0] * 2 + amount, state[one][1]) if one in state else (amount, day)
            return found
        case "overwrite":
            kept = {k: v for k, v in state.items() if v[1] != job["day"]}
            return kept | {one: (amount, day) for one, amount, day in job["rows"]}
        case "pay":
            return state | {one: (state[one][0] + amount, state[one][1]) for one, amount in job["sums"]}
        case other:
            raise ValueError(other)


def attempt(table: Table, jobs: Sequence[Job], *, on_conflict: Any = None) -> list[Done]:
    """Those that committed, in order; a race that is lost is no failure."""
    found = []
    for job in jobs:
        try:
            commit = run(table, job, on_conflict=on_conflict)
        except ConflictError:
            continue
        found.append(Done(job, commit.version - 1 - commit.rebased_over, commit.version))
    return found


def serial_orders(done: Sequence[Done], profile: str) -> Iterator[list[Done]]:
    """The orders that a profile allows: that of the commits; and where blind inserts may count as having come later,
    those in which they come after jobs that did not see them."""
    in_order = sorted(done, key=lambda one: one.version)
    yield in_order
    if profile not in ("delta_write_serializable", "row_level"):
        return
    for order in permutations(in_order):
        fixed = [one for one in order if not one.is_blind]
        if fixed == sorted(fixed, key=lambda one: one.version) and all(
            first.version < second.version or (second.is_blind and first.seen < second.version)
            for at, first in enumerate(order)
            for second in order[at + 1 :]
        ):
            yield list(order)


def explained(begin: State, done: Sequence[Done], end: State, profile: str) -> bool:
    for order in serial_orders(done, profile):
        state = begin
        for one in order:
            state = replay(state, one.job)
        if state == end:
            return True
    return False
