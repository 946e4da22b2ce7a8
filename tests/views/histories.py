"""Random histories of three tables, and views over them that are refreshed after each step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from laketx import Lake, MaterializedView, Table
from tests.views.bags import bag, by_oracle
from tests.views.pairs import random_query
from tests.views.queries import SCHEMA, Queries, random_row

COLUMNS = "id bigint, k bigint, g string, x bigint, f double, d decimal(6,2)"
Rows = list[dict[str, object]]


class History:
    """Tables of a namespace of their own: an append table, a primary-key table and a partitioned one."""

    def __init__(self, lake: Lake, seed: int, views: int) -> None:
        self.lake = lake
        self.rng = random.Random(seed)
        self.space = f"h{seed}"
        self._ids = 0
        self.kinds: Counter[str] = Counter()
        self.tables = [
            lake.create_table(f"{self.space}.a", COLUMNS),
            lake.create_table(f"{self.space}.b", COLUMNS, primary_key=["id"], buckets=2),
            lake.create_table(f"{self.space}.c", COLUMNS, partition_by=["g"]),
        ]
        for table in self.tables:
            self._write(table, self._rows(5))
        self.queries: dict[str, str] = {}
        self.views: list[MaterializedView] = []
        queries = Queries(self.rng)
        for at in range(views):
            text = random_query(queries)
            self.queries[f"{self.space}.v{at}"] = text
            self.views.append(
                lake.create_materialized_view(f"{self.space}.v{at}", text.replace("s.", f"{self.space}."))
            )

    def _rows(self, count: int) -> Rows:
        found = []
        for _ in range(count):
            self._ids += 1
            found.append({"id": self._ids, **random_row(self.rng)})
        return found

    def _write(self, table: Table, rows: Rows) -> None:
        (table.upsert if table.meta.primary_key else table.append)(rows)

    def step(self) -> None:
        """One change of one table, or of two at once."""
        table = self.rng.choice(self.tables)
        self.rng.choice(self._steps())(table)

    def _steps(self) -> list[Callable[[Table], Any]]:
        rng = self.rng
        return [
            lambda table: self._write(table, self._rows(3)),
            lambda table: self._write(table, self._again(table)),
            lambda table: table.delete(rng.choice(["x = 1", "k IS NULL", "g = 'v'", "f > 0"])),
            lambda table: table.update(
                {"x": rng.choice(["x + 1", "NULL", "2"])}, where=rng.choice(["k = 1", "g = 'u'"])
            ),
            lambda table: table.overwrite(self._rows(4)),
            lambda table: table.truncate(),
            lambda table: table.restore(commits_ago=min(rng.randint(1, 3), len(table.history()) - 2)),
            lambda table: table.compact(rng.choice(["minor", "major"])),
            lambda _: self._two_at_once(),
        ]

    def _again(self, table: Table) -> Rows:
        """Rows with keys that may be there; without a key they are duplicates."""
        known = table.to_arrow().to_pylist()
        return [{**random_row(self.rng), "id": row["id"]} for row in known[:2]] if table.meta.primary_key else known[:2]

    def _two_at_once(self) -> None:
        with self.lake.transaction() as txn:
            txn.table(self.tables[0].name).append(self._rows(1))
            txn.table(self.tables[1].name).upsert(self._rows(1))

    def refresh(self) -> None:
        """Refresh every view, and compare it with the query over its sources at its vector."""
        for view in self.views:
            done = view.refresh()
            self.kinds[done.kind] += 1
            self.check(view, done.version)

    def check(self, view: MaterializedView, version: int) -> None:
        """Compare a version of a view with an oracle that knows the query as it was written."""
        proof = view.verify(version)
        sources = {f"s.{name.rpartition('.')[2]}": at for name, at in proof.vector.items()}
        rows = {
            f"s.{table.name.rpartition('.')[2]}": table.to_arrow(
                columns=SCHEMA.names, version=sources.get(f"s.{table.name.rpartition('.')[2]}", 0)
            )
            for table in self.tables
        }
        query = self.queries[view.name]
        assert bag(view.to_arrow(version=version)) == bag(by_oracle(query, rows)), (query, version, proof)
        assert proof.holds, (query, proof)

    def check_all_versions(self) -> None:
        """Compare every version of every view."""
        for view in self.views:
            for version in range(1, view.table.meta.head_version + 1):
                self.check(view, version)


def played(lake: Lake, seed: int, *, views: int = 3, steps: int = 7) -> Counter[str]:
    """Play a history; return the kinds of its refreshes."""
    history = History(lake, seed, views)
    for _ in range(steps):
        for _ in range(history.rng.choice([1, 1, 2])):
            history.step()
        history.refresh()
    history.check_all_versions()
    return history.kinds
