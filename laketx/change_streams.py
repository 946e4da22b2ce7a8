"""Changes of rows with an operation and a sequence, as change streams deliver them, applied to a table by key.

applied = orders.apply_changes([{"id": 7, "amount": 3, "op": "u", "ts": 12}, {"id": 8, "op": "d", "ts": 13}])
print(applied.upserted, applied.deleted, applied.late)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from laketx.input_rows import AnyRows, arrow_table, is_spark
from laketx.merge_builder import Answer
from metaservice.client import AlreadyExistsError
from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.merge_sources import columns_of_dicts
from worker.base.lazy_modules import LazyModule
from worker.commit.conflict_policies import OnConflict
from worker.commit.writes import Commit, Write, WriteOptions, app_version_of
from worker.connection.table_view import TableView

if TYPE_CHECKING:
    import pyarrow as pa

    from worker.arrow.write import change_streams
    from worker.formats import debezium
    from worker.formats.json_messages import Message
else:
    change_streams = LazyModule("worker.arrow.write.change_streams")
    debezium = LazyModule("worker.formats.debezium")

PlanChanges: TypeAlias = "Callable[[TableView], change_streams.ChangeWrite]"


@dataclass(frozen=True)
class AppliedChanges:
    """The commit of `table.apply_changes`, and how many of the changes had which outcome; each change has one."""

    commit: Commit
    upserted: int
    deleted: int
    absent: int  # deletes of keys that the table doesn't have
    late: int  # older than the stored sequence of their key
    repeated: int  # older than another change of their key in the same rows


class ChangeStreams(ABC, Generic[Answer]):
    """The door of a table for change streams. What the calls answer depends on who runs them."""

    @property
    @abstractmethod
    def _meta(self) -> catalog_pb2.Table:
        """The table as it was seen last."""

    @abstractmethod
    def add_missing_columns(self, columns: pa.Schema) -> None:
        """Add the columns, unless another writer does it first."""

    @abstractmethod
    def _apply(self, plan: PlanChanges, options: WriteOptions) -> Answer:
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
    ) -> Answer:
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
        source: Any = rows
        held = None if _are_dicts(rows) else arrow_table(source.toArrow() if is_spark(rows) else rows)

        def plan(table: TableView) -> change_streams.ChangeWrite:
            if held is not None:
                return change_streams.plan_changes(table, held, columns)
            rows = columns_of_dicts(change_streams.alike(table.meta, source, columns), table.meta)
            return change_streams.plan_changes(table, rows, columns)

        return self._apply(plan, WriteOptions(on_conflict, message, app_version_of(app_id, app_version)))

    def apply_debezium(
        self,
        messages: Sequence[Message],
        *,
        sequence: str | None = None,
        soft_delete: str | None = None,
        merge_schema: bool = False,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Applies messages of Debezium to a primary-key table, in one commit: bytes or texts of JSON, or dicts.

            customers.apply_debezium(values, app_id="customers-cdc", app_version=41)

        Later messages are newer, unless `sequence` names a field of the messages' `source`, such as "lsn"; if the table
        has a column of that name, changes that are older than the stored row are late. `merge_schema` first adds
        columns that the table lacks, in a separate commit. Tombstones are skipped. See docs/ingest.md.

        Raises InputError with the number of the message that can't be read, ConflictError after a lost race.
        """
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        columns = change_streams.ChangeColumns(debezium.OP, sequence or debezium.ORDER, soft_delete=soft_delete)
        if merge_schema:
            self.add_missing_columns(debezium.read_debezium(messages, self._meta, sequence).new_columns)

        def plan(table: TableView) -> change_streams.ChangeWrite:
            keeps_deleted = soft_delete is not None
            changes = debezium.read_debezium(messages, table.meta, sequence, keeps_deleted=keeps_deleted)
            debezium.check_columns(messages, table.meta, keeps_deleted=keeps_deleted)
            return change_streams.plan_changes(table, changes.rows, columns, replaces_all=changes.follow_truncate)

        return self._apply(plan, options)


class TableChangeStreams(ChangeStreams[AppliedChanges]):
    """The door of a table outside transactions: each call is a commit."""

    @abstractmethod
    def _do(self, plan: Callable[[TableView], Write], options: WriteOptions, *, is_insert: bool = False) -> Commit:
        """Runs the plan."""

    @abstractmethod
    def add_columns(self, columns: Any, *, message: str = "") -> Any:
        """Adds columns in one commit."""

    def add_missing_columns(self, columns: pa.Schema) -> None:
        """Add the columns, unless another writer does it first."""
        if len(columns):
            with suppress(AlreadyExistsError):
                self.add_columns(columns, message="columns of a change stream")

    def _apply(self, plan: PlanChanges, options: WriteOptions) -> AppliedChanges:
        planned: change_streams.ChangeWrite | None = None

        def write(table: TableView) -> Write:
            nonlocal planned
            planned = plan(table)
            return planned.write

        commit = self._do(write, options)
        assert planned is not None
        counts = change_streams.ChangeCounts() if commit.already_applied else planned.counts
        return AppliedChanges(commit, counts.upserted, counts.deleted, counts.absent, counts.late, counts.repeated)


def _are_dicts(rows: Any) -> bool:
    return isinstance(rows, (list, tuple)) and all(isinstance(row, Mapping) for row in rows)
