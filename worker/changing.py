"""The writes of a table, in the words that users say: the same on a table and inside a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from pyspark.sql import Column, DataFrame

from worker.errors import InputError
from worker.merges import Merge, plan_merge
from worker.row_changes import Settings, plan_delete, plan_update
from worker.transaction import OnConflict, Write
from worker.writes import (
    OrderBy,
    Partitions,
    merge_schema,
    plan_insert,
    plan_overwrite,
    plan_restore,
    plan_truncate,
)

if TYPE_CHECKING:
    from worker.table import Table

Answer = TypeVar("Answer")


class Changes(ABC, Generic[Answer]):
    """What both a table and a table in a transaction can do.

    `on_conflict`: "fail" raises ConflictError where a race is lost; "resubmit" (inserts) commits the same files at the
    new head; "rerun" computes again. Not given: the table's property `write.on_conflict`, or "fail".
    """

    @abstractmethod
    def _do(
        self, plan: Callable[[Table], Write], *, is_insert: bool, on_conflict: OnConflict | None, message: str
    ) -> Answer:
        """Runs the plan, or keeps it for the end of the transaction."""

    def insert(
        self,
        df: DataFrame,
        *,
        order_by: OrderBy | None = None,
        merge_schema: bool = False,
        on_conflict: OnConflict | None = None,
        message: str = "",
    ) -> Answer:
        """Appends the rows, or, in a table with a primary key, upserts them.

        Columns go by name; those that are missing are NULL. A key that stands twice in the rows is an error, unless
        `order_by` says which is the newer one: the last wins. In an append table `order_by` sorts the rows.
        `merge_schema` first adds the columns that the table lacks.
        """

        def plan(table: Table) -> Write:
            if merge_schema:
                add_missing(table, df)
            return plan_insert(table, df, order_by)

        return self._do(plan, is_insert=True, on_conflict=on_conflict, message=message)

    def overwrite(
        self,
        df: DataFrame,
        *,
        partition: Partitions = "all",
        order_by: OrderBy | None = None,
        on_conflict: OnConflict | None = None,
        message: str = "",
    ) -> Answer:
        """Replaces everything, the partitions named ({"day": "2026-11-01"}), or those that the rows lie in ("dynamic").

        Rows may come without the columns of a single partition that is named.
        """
        return self._do(
            lambda table: plan_overwrite(table, df, partition, order_by),
            is_insert=False,
            on_conflict=on_conflict,
            message=message,
        )

    def truncate(
        self, *, partition: Partitions = "all", on_conflict: OnConflict | None = None, message: str = ""
    ) -> Answer:
        """Removes every row, or those of the partitions named."""
        return self._do(
            lambda table: plan_truncate(table, partition), is_insert=False, on_conflict=on_conflict, message=message
        )

    def restore(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        commits_ago: int | None = None,
        partition: Partitions = "all",
        on_conflict: OnConflict | None = None,
        message: str = "",
    ) -> Answer:
        """Brings back the rows of a version (not its columns), everywhere or in the partitions named."""
        if sum(one is not None for one in (version, timestamp, commits_ago)) != 1:
            raise InputError("VERSION_INVALID", "say one of version, timestamp and commits_ago")
        return self._do(
            lambda table: plan_restore(table, table.resolve(version, timestamp, commits_ago), partition),
            is_insert=False,
            on_conflict=on_conflict,
            message=message,
        )

    def update(
        self,
        set: Settings,  # noqa: A002 - SQL's word
        where: str | None = None,
        *,
        on_conflict: OnConflict | None = None,
        message: str = "",
    ) -> Answer:
        """Gives columns new values where the condition holds: update({"status": "'paid'"}, where="id = 7").

        Values are SQL expressions over the row as it was, or Columns. Key columns can't be set.
        """
        return self._do(
            lambda table: plan_update(table, set, where), is_insert=False, on_conflict=on_conflict, message=message
        )

    def delete(self, where: str, *, on_conflict: OnConflict | None = None, message: str = "") -> Answer:
        """Removes the rows for which the condition is true."""
        return self._do(
            lambda table: plan_delete(table, where), is_insert=False, on_conflict=on_conflict, message=message
        )

    def merge(self, source: DataFrame, on: str | list[str]) -> MergeBuilder[Answer]:
        """Begins a MERGE: `on` is a column or several that both sides have, or a condition on `target` and `source`."""

        def run(merge: Merge, on_conflict: OnConflict | None, message: str) -> Answer:
            return self._do(
                lambda table: plan_merge(table, merge), is_insert=False, on_conflict=on_conflict, message=message
            )

        return MergeBuilder(Merge(source, on), run)


def add_missing(table: Table, df: DataFrame) -> None:
    merge_schema(table, df)


class MergeBuilder(Generic[Answer]):
    """Clauses are tried in the order given; the first whose condition is true is done.

    Conditions and values are SQL over `target.column` and `source.column`.
    """

    def __init__(self, merge: Merge, run: Callable[[Merge, OnConflict | None, str], Answer]) -> None:
        self._merge = merge
        self._run = run

    def when_matched_update(
        self,
        values: Settings | None = None,
        *,
        condition: str | None = None,
    ) -> MergeBuilder[Answer]:
        """Without values every column that the source has."""
        return self._with("matched", "update", values, condition)

    def when_matched_delete(self, *, condition: str | None = None) -> MergeBuilder[Answer]:
        return self._with("matched", "delete", None, condition)

    def when_not_matched_insert(
        self, values: Settings | None = None, *, condition: str | None = None
    ) -> MergeBuilder[Answer]:
        """Without values every column that the source has; columns not given are NULL."""
        return self._with("not_matched", "insert", values, condition)

    def when_not_matched_by_source_update(
        self,
        values: Mapping[str, str | Column],
        *,
        condition: str | None = None,
    ) -> MergeBuilder[Answer]:
        return self._with("by_source", "update", values, condition)

    def when_not_matched_by_source_delete(self, *, condition: str | None = None) -> MergeBuilder[Answer]:
        return self._with("by_source", "delete", None, condition)

    def execute(self, *, on_conflict: OnConflict | None = None, message: str = "") -> Answer:
        """Where several source rows change one row of the table, that is an error."""
        if not self._merge.clauses:
            raise InputError("MERGE_EMPTY", "a merge needs a clause")
        return self._run(self._merge, on_conflict, message)

    def _with(self, when: str, action: str, settings: Settings | None, condition: str | None) -> MergeBuilder[Answer]:
        return MergeBuilder(self._merge.with_clause(when, action, settings, condition), self._run)
