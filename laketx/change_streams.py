"""Changes of rows with an operation and a sequence, as change streams deliver them, applied to a table by key.

applied = orders.apply_changes([{"id": 7, "amount": 3, "op": "u", "ts": 12}, {"id": 8, "op": "d", "ts": 13}])
print(applied.upserted, applied.deleted, applied.late)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from laketx.input_rows import AnyRows, arrow_table, is_spark
from worker.arrow.write.merge_sources import columns_of_dicts
from worker.base.lazy_modules import LazyModule
from worker.commit.conflict_policies import OnConflict
from worker.commit.writes import Commit, Write, WriteOptions, app_version_of
from worker.connection.table_view import TableView

if TYPE_CHECKING:
    from worker.arrow.write import change_streams
else:
    change_streams = LazyModule("worker.arrow.write.change_streams")


@dataclass(frozen=True)
class AppliedChanges:
    """The commit of `table.apply_changes`, and how many of the changes had which outcome; each change has one."""

    commit: Commit
    upserted: int
    deleted: int
    absent: int  # deletes of keys that the table doesn't have
    late: int  # older than the stored sequence of their key
    repeated: int  # older than another change of their key in the same rows


class ChangeStreams(ABC):
    """The door of a table for change streams."""

    @abstractmethod
    def _do(self, plan: Callable[[TableView], Write], options: WriteOptions, *, is_insert: bool = False) -> Commit:
        """Runs the plan."""

    def apply_changes(
        self,
        rows: AnyRows,
        *,
        op: str = "op",
        sequence: str = "ts",
        upserts: Collection[Any] | None = None,
        deletes: Collection[Any] | None = None,
        soft_delete: str | None = None,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> AppliedChanges:
        """Upserts and deletes rows of a primary-key table, as an operation column says, in one commit.

            orders.apply_changes(batch, op="op", sequence="lsn", app_id="orders-cdc", app_version=41)

        Of several changes of a key the one with the highest sequence counts. If the table has a column with the name of
        the sequence, it stores the sequence, and changes that are older than the stored row are late: they change
        nothing. `upserts` and `deletes` are the values of the operation column, by default the letters of Debezium and
        SQL's words. With `soft_delete`, a boolean column, deleted rows stay and have true there, so that the table
        also knows which changes of them are late. A DataFrame of Spark is collected first. See docs/ingest.md.

        Raises InputError for an unknown operation, a NULL sequence or key (with the number of the row), ConflictError
        after a lost race.
        """
        columns = change_streams.ChangeColumns(
            op,
            sequence,
            change_streams.UPSERTS if upserts is None else upserts,
            change_streams.DELETES if deletes is None else deletes,
            soft_delete,
        )
        counts = change_streams.ChangeCounts
        planned: change_streams.ChangeWrite | None = None
        source: Any = rows
        held = None if _are_dicts(rows) else arrow_table(source.toArrow() if is_spark(rows) else rows)

        def plan(table: TableView) -> Write:
            nonlocal planned
            given = columns_of_dicts(source, table.meta) if held is None else held
            planned = change_streams.plan_changes(table, given, columns)
            return planned.write

        commit = self._do(plan, WriteOptions(on_conflict, message, app_version_of(app_id, app_version)))
        assert planned is not None
        done = counts() if commit.already_applied else planned.counts
        return AppliedChanges(commit, done.upserted, done.deleted, done.absent, done.late, done.repeated)


def _are_dicts(rows: Any) -> bool:
    return isinstance(rows, (list, tuple)) and all(isinstance(row, Mapping) for row in rows)
