"""A table with a plain dict beside it, and commits that cross: begun at an older version than they commit at."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from pyspark.sql import DataFrame

from laketx import Lake, Table
from metaservice.client import ConflictError, uuid7
from protos.laketx.v1 import common_pb2
from tests.spark.stored import stored_rows
from worker.commit.transaction import run_writes
from worker.commit.writes import Write
from worker.dataframes.catalog_changes import plan_delete, plan_update
from worker.dataframes.catalog_writes import CatalogWrite, stage_catalog_write
from worker.dataframes.frame_writes import plan_insert, plan_overwrite
from worker.services.compaction.compaction import Options, run, staged
from worker.services.compaction.orders import Order

MINOR, MAJOR, CLUSTER = (
    common_pb2.OPERATION_MINOR_COMPACT,
    common_pb2.OPERATION_MAJOR_COMPACT,
    common_pb2.OPERATION_CLUSTER,
)
Rows = dict[int, str]


class Crossed:
    """A table, what it must hold at each version, and changes that begin at an older version than they commit at."""

    def __init__(self, lake: Lake, name: str, *, keyed: bool, profile: str = "") -> None:
        self.lake = lake
        key = ["id"] if keyed else []
        self.table: Table = lake.create_table(
            name, "id bigint, v string", primary_key=key, buckets=1 if keyed else None, profile=profile
        )
        self.rows: Rows = {}
        self.at: dict[int, Rows] = {}
        self._numbers = itertools.count()

    def frame(self, rows: Rows) -> DataFrame:
        return self.lake.spark.createDataFrame(list(rows.items()), "id bigint, v string").coalesce(1)

    def head(self) -> int:
        return int(self.table.refresh().meta.head_version)

    def insert(self, version: int | None = None) -> None:
        number = next(self._numbers)
        new = {10 * number: "new", 10 * number + 1: "new"}
        self._stage(lambda: plan_insert(self.table.refresh().view, self.frame(new)), version, {**self.rows, **new})

    def update(self, version: int | None = None) -> None:
        key, value = min(self.rows), f"u{next(self._numbers)}"
        after = {**self.rows, key: value}
        self._stage(lambda: plan_update(self.table.refresh().view, {"v": f"'{value}'"}, f"id = {key}"), version, after)

    def delete(self, version: int | None = None) -> None:
        key = max(self.rows)
        after = {one: value for one, value in self.rows.items() if one != key}
        self._stage(lambda: plan_delete(self.table.refresh().view, f"id = {key}"), version, after)

    def overwrite(self, version: int | None = None) -> None:
        new = {next(self._numbers): "all", next(self._numbers): "all"}
        self._stage(lambda: plan_overwrite(self.table.refresh().view, self.frame(new), "all"), version, new)

    def _stage(self, plan: Callable[[], CatalogWrite], version: int | None, after: Rows) -> None:
        txn_id = uuid7()

        def planned() -> list[Write]:
            found = stage_catalog_write(plan(), txn_id, version)
            return [found if version is None else found.at(version)]

        commit = run_writes(self.lake, planned, txn_id=txn_id)[0]
        self.rows = after
        self.at[commit.version] = after

    def compact(self, operation: common_pb2.Operation.ValueType) -> None:
        options = Options(order=Order("sort", ("v",))) if operation == CLUSTER else None
        commit = run(self.table.view, operation, options=options)
        assert commit is not None
        self.at[commit.version] = self.rows

    def make_work(self) -> None:
        """Something that every compaction gains by."""
        self.insert()
        self.insert()
        self.delete()

    def compact_across(self, operation: common_pb2.Operation.ValueType, winner: Callable[[], None]) -> bool:
        """Whether the compaction commits over the winner, which commits between its reads and its own commit."""
        options = Options(order=Order("sort", ("v",))) if operation == CLUSTER else Options()
        with staged(self.table.view, operation, options=options) as job:
            assert job.groups
            winner()
            try:
                commit = job.commit()
            except ConflictError:
                return False
        self.at[commit.version] = self.rows
        return True

    def check(self) -> None:
        """Every version that a commit made, by the files' own rules; the newest by Spark too."""
        for version, want in self.at.items():
            found = stored_rows(self.table, version)
            assert sorted((row["id"], row["v"]) for row in found) == sorted(want.items()), version
        assert sorted(map(tuple, self.table.read().collect())) == sorted(self.rows.items())
