"""Random histories of a table whose key is unique across partitions, with its branches and clones, against dicts.

Every fork has a dict of its own. A merge does to the parent's dict what the branch's commits did, one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from laketx import ConflictError, InputError, Lake, Table
from laketx.branch import MergeRefusedError
from worker.services.fsck import Fsck
from worker.services.key_indexes import KeyIndexKeeper

DAYS = ["a", "b", "c", None]
KEYS = 14
FORKS_MAX = 4
Row = dict[str, Any]
Rows = dict[int, Row]
Effect = Callable[[Rows], None]


@dataclass
class Fork:
    """A table, what its rows are by the dict, and what its commits did since it was made."""

    table: Table
    rows: Rows
    parent: Fork | None = None  # of a branch
    branch: str = ""
    effects: list[Effect] = field(default_factory=list)
    states: dict[int, Rows] = field(default_factory=dict)

    def did(self, effect: Effect) -> None:
        effect(self.rows)
        self.effects.append(effect)


class Forks:
    """One history, and what each of its tables should be."""

    def __init__(self, lake: Lake, name: str, profile: str, seed: int) -> None:
        self.lake, self.name, self.profile = lake, name, profile
        self.chance = random.Random(f"{profile} {seed}")
        inline = str(self.chance.choice([0, 2, 1_000]))
        table = lake.create_table(
            name,
            "id bigint, day string, n int",
            primary_key=["id"],
            partition_by=["day"],
            key_scope="table",
            buckets=self.chance.choice([1, 3]),
            profile=profile,
            properties={"write.inline.rows": inline},
        )
        self.forks = [Fork(table, {})]
        self.late: list[tuple[Fork, Any, Effect]] = []
        self.made = 0
        self.counts = dict.fromkeys(("merged", "refused", "lost", "passed"), 0)

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        while self.late:
            self.end()
        for fork in list(self.forks):
            self.look(fork)
            if fork.branch:
                self.merge(fork)
        self.check()

    def check(self) -> None:
        """Every version of every fork: the rows, each key once, the index says what the files have."""
        for fork in self.forks:
            for version, rows in fork.states.items():
                assert found(fork.table, version) == rows, version
            meta = fork.table.refresh().meta
            check = Fsck(self.lake.client, self.lake.warehouse, meta, all_versions=True, deep=True)
            assert not [str(one) for one in check.run()]

    def step(self) -> None:
        fork = self.chance.choice(self.forks)
        kinds = ["change"] * 8 + ["begin"] * 4 + ["end"] * 4 + ["branch", "branch", "merge", "merge", "clone"]
        match self.chance.choice([*kinds, "compact", "compact", "index", "index", "restore", "truncate", "overwrite"]):
            case "change":
                change, effect, is_idle = self.change(fork)
                change(fork.table)
                fork.did(self.standing(effect, is_idle=is_idle))
            case "begin" if len(self.late) < 3:
                self.begin(fork)
            case "end" if self.late:
                self.end()
            case "branch" | "clone" as how if len(self.forks) < FORKS_MAX:
                self.fork(fork, how)
            case "merge" if fork.branch and not any(one is fork for one, _, _ in self.late):
                self.merge(fork)
                return
            case "compact":
                fork.table.compact(self.chance.choice(["minor", "major"]))
            case "index":
                KeyIndexKeeper(self.lake, now_s=lambda: 0.0, rows_at_least=1, files_at_least=1).run_once()
            case "restore" if fork.states:
                version = self.chance.choice(sorted(fork.states))
                fork.table.restore(version=version)
                fork.did(replacing(DAYS, list(fork.states[version].values())))
            case "truncate":
                day = self.chance.choice(DAYS)
                fork.table.truncate(partition={"day": day})
                fork.did(replacing([day], []))
            case "overwrite":
                self.overwrite(fork)
            case _:
                pass
        self.look(fork)

    def look(self, fork: Fork) -> None:
        assert found(fork.table) == fork.rows
        keys = self.chance.sample(range(KEYS), 3)
        looked_up = {row["id"]: row for row in fork.table.get(keys).to_pylist()}
        assert looked_up == {key: fork.rows[key] for key in keys if key in fork.rows}
        fork.states[fork.table.refresh().meta.head_version] = dict(fork.rows)

    def some_rows(self) -> list[Row]:
        ids = self.chance.sample(range(KEYS), self.chance.randint(1, 4))
        return [{"id": one, "day": self.chance.choice(DAYS), "n": self.chance.randint(0, 99)} for one in ids]

    def change(self, fork: Fork) -> tuple[Callable[[Any], Any], Effect, bool]:
        """A change by keys, what it does to the rows, and whether it does nothing to those of now."""
        rows = self.some_rows()
        keys = [row["id"] for row in rows]
        day = self.chance.choice(DAYS)
        match self.chance.choice(["upsert", "upsert", "upsert", "delete", "move", "merge"]):
            case "delete":
                return lambda table: table.delete(keys=keys), dropping(keys), fork.rows.keys().isdisjoint(keys)
            case "move":
                moved = {"day": day and f"'{day}'"}
                is_idle = keys[0] not in fork.rows
                return lambda table: table.update(moved, where=f"id = {keys[0]}"), moving(keys[0], day), is_idle
            case "merge":
                return (
                    lambda table: table.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute(),
                    putting(rows),
                    False,
                )
            case _:
                return lambda table: table.upsert(rows), putting(rows), False

    def begin(self, fork: Fork) -> None:
        txn = self.lake.transaction()
        txn.__enter__()
        change, effect, is_idle = self.change(fork)
        change(txn.table(fork.table.name))
        self.late.append((fork, txn, self.standing(effect, is_idle=is_idle)))

    def standing(self, effect: Effect, *, is_idle: bool) -> Effect:
        """What a change does to rows that it has not seen: if it writes nothing it may stand at its read version."""
        return dropping([]) if is_idle and self.profile == "delta_serializable" else effect

    def end(self) -> None:
        fork, txn, effect = self.late.pop(self.chance.randrange(len(self.late)))
        try:
            txn.__exit__(None, None, None)
        except ConflictError:
            self.counts["lost"] += 1
        else:
            self.counts["passed"] += 1
            fork.did(effect)
        self.look(fork)

    def fork(self, fork: Fork, how: str) -> None:
        self.made += 1
        if how == "clone":
            name = f"{self.name}_{self.made}"
            self.forks.append(Fork(self.lake.clone_table(fork.table.name, name), dict(fork.rows)))
        elif not fork.branch:
            branch = self.lake.branch(f"{self.name.replace('.', '-')}-{self.made}", tables=[fork.table.name])
            table = branch.table(fork.table.name)
            self.forks.append(Fork(table, dict(fork.rows), fork, branch.name))

    def merge(self, fork: Fork) -> None:
        """What the branch changed comes to the parent, or the merge is refused and the branch given up."""
        assert fork.parent is not None
        branch = self.lake.branch(fork.branch)
        try:
            branch.merge()
        except MergeRefusedError:
            self.counts["refused"] += 1
            self.lake.drop_branches([fork.branch])
        else:
            self.counts["merged"] += 1
            for effect in fork.effects:
                fork.parent.did(effect)
        self.forks = [one for one in self.forks if one is not fork]
        self.look(fork.parent)

    def overwrite(self, fork: Fork) -> None:
        rows = self.some_rows()
        days = {row["day"] for row in rows}
        if any(fork.rows.get(row["id"], row)["day"] not in days for row in rows):
            with pytest.raises(InputError, match="KEY_EXISTS"):
                fork.table.overwrite(rows, partition="dynamic")
            return
        fork.table.overwrite(rows, partition="dynamic")
        fork.did(replacing(list(days), rows))


def putting(rows: list[Row]) -> Effect:
    return lambda state: state.update({row["id"]: row for row in rows})


def replacing(days: list[str | None], rows: list[Row]) -> Effect:
    def replace(state: Rows) -> None:
        for key in [key for key, row in state.items() if row["day"] in days]:
            del state[key]
        putting(rows)(state)

    return replace


def dropping(keys: list[int]) -> Effect:
    def drop(state: Rows) -> None:
        for key in keys:
            state.pop(key, None)

    return drop


def moving(key: int, day: str | None) -> Effect:
    def move(state: Rows) -> None:
        if key in state:
            state[key] = {**state[key], "day": day}

    return move


def found(table: Table, version: int | None = None) -> Rows:
    """The rows by their keys; each key is there once."""
    rows = table.to_arrow(version=version).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), rows
    return {row["id"]: row for row in rows}
