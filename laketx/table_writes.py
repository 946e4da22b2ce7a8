"""The writes of a table: the same methods on a table and inside a transaction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic

from laketx.input_rows import AnyRows, Given, Rows, is_spark, key_rows, may_need_defaults
from laketx.merge_builder import Answer, MergeBuilder
from metaservice.client import is_partial, key_spans_partitions
from protos.laketx.v1 import catalog_pb2
from worker.arrow.expressions.conditions import is_plain
from worker.arrow.write.merge_clauses import Clause, Settings
from worker.base.errors import InputError, NotPlainError
from worker.base.lazy_modules import LazyModule
from worker.commit import scopes
from worker.commit.conflict_policies import OnConflict
from worker.commit.scopes import Partitions
from worker.commit.writes import Write, WriteOptions, app_version_of
from worker.connection.table_view import TableView
from worker.connection.versions import version_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from laketx import spark_rows
    from worker.arrow.write import merge, updates, writes
    from worker.dataframes import catalog_changes, frame_writes
    from worker.dataframes.catalog_writes import CatalogWrite
    from worker.dataframes.frame_writes import OrderBy
else:
    spark_rows = LazyModule("laketx.spark_rows")
    updates = LazyModule("worker.arrow.write.updates")
    merge = LazyModule("worker.arrow.write.merge")
    writes = LazyModule("worker.arrow.write.writes")
    catalog_changes = LazyModule("worker.dataframes.catalog_changes")
    frame_writes = LazyModule("worker.dataframes.frame_writes")


class Verbs(ABC, Generic[Answer]):
    """The writes of a table, and of a table in a transaction.

    `on_conflict`: "fail" raises ConflictError after a lost race; "resubmit" commits the same files at the new head, for
    inserts that read nothing from their table; "rerun" repeats everything. Default: the table's property
    `write.on_conflict`, or else "resubmit" for these inserts, and "fail" for everything else.

    `app_id` and `app_version`: exactly-once writes for pipelines that repeat. The table stores the highest version of
    each application; a write whose version is not higher changes nothing, and its result has `already_applied`.

    All methods raise ConflictError after a lost race, and InputError, before anything is visible, for rows, columns or
    conditions that don't fit the table.
    """

    @property
    @abstractmethod
    def _spark(self) -> SparkSession:
        """The session in which rows from elsewhere become DataFrames."""

    @property
    @abstractmethod
    def _uses_spark(self) -> bool:
        """Whether a Spark session runs anyway."""

    @property
    def _prefers_spark(self) -> bool:
        """Whether Spark writes where both can: it looks up no keys that span partitions, and sets no single columns."""
        return self._uses_spark and not key_spans_partitions(self._meta) and not is_partial(self._meta)

    @property
    @abstractmethod
    def _meta(self) -> catalog_pb2.Table:
        """The table as it was seen last."""

    @abstractmethod
    def _do(
        self,
        plan: Callable[[TableView], Write],
        options: WriteOptions,
        *,
        is_insert: bool = False,
        may_be_recent: bool = False,
    ) -> Answer:
        """Runs the plan, or keeps it until the transaction ends.

        `may_be_recent`: it can be made for the table as it was a moment ago, since its commit tells whether that fits.
        """

    @abstractmethod
    def _by_catalog(
        self, plan: Callable[[TableView], CatalogWrite], options: WriteOptions, *, is_insert: bool = False
    ) -> Answer:
        """Runs a statement of Spark's catalog, or has it stage what the transaction commits."""

    def insert(
        self,
        rows: Rows,
        *,
        order_by: OrderBy | None = None,
        merge_schema: bool = False,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Appends the rows, or upserts them into a primary-key table.

            orders.insert(df, order_by="updated")

        Rows are a DataFrame of Spark, pandas or polars, or an Arrow table. Columns are matched by name; missing columns
        become their default, or NULL. A duplicate key in the rows is an error, unless `order_by` orders the rows: the
        last row wins. In an append table `order_by` sorts the rows. `merge_schema` first adds columns that the table
        lacks. Without `order_by` and `merge_schema`, rows other than a DataFrame of Spark are written without Spark;
        see `append`.

        Raises ConflictError after a lost race, InputError for rows that don't fit (KEY_TWICE, CAST_LOSSY, …).
        """

        if not is_spark(rows) and order_by is None and not merge_schema:
            write = self.upsert if self._meta.primary_key else self.append
            return write(rows, on_conflict=on_conflict, message=message, app_id=app_id, app_version=app_version)
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        given = Given(rows)
        df = spark_rows.of_rows(self._spark, given.held)

        def plan(table: TableView) -> CatalogWrite:
            if merge_schema:
                table = frame_writes.with_missing_columns(table, df)
            return given.declared(frame_writes.plan_insert(table, df, order_by))

        return self._by_catalog(plan, options, is_insert=True)

    def append(
        self,
        rows: AnyRows,
        *,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Appends rows without Spark: rows of pandas, polars or Arrow, a list of dicts, or a stream of record batches.

            events.append([{"id": 1, "day": date(2026, 11, 1)}])

        Columns are matched by name. A stream is read once, in parts of about 256 MB.

        Raises InputError for a value that would change in its column's type (CAST_LOSSY) and for rows that don't fit,
        ConflictError after a lost race.
        """
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        given = Given(rows, is_streamed=True)
        return self._do(
            lambda table: _begun_first(given, writes.plan_append(table, given.arrow(table.meta))),
            options,
            is_insert=True,
            may_be_recent=not given.is_lazy and not may_need_defaults(rows),
        )

    def upsert(
        self,
        rows: AnyRows,
        *,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Inserts rows into a primary-key table without Spark, and replaces rows with the same keys; see `append`.

            orders.upsert([{"id": 4, "amount": 12.5}])

        Raises InputError if a key appears twice in the rows, and the errors of `append`.
        """
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        given = Given(rows)
        return self._do(
            lambda table: _begun_first(given, _upsert_of(table, given)),
            options,
            is_insert=True,
            may_be_recent=not given.is_lazy and not may_need_defaults(rows),
        )

    def overwrite(
        self,
        rows: AnyRows,
        *,
        partition: Partitions = "all",
        order_by: OrderBy | None = None,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Replaces **every row of the table**, also of a partitioned table, unless `partition` limits it.

            events.overwrite(rows, partition={"day": "2026-11-01"})

        A partition, or a list of partitions, replaces these; for a single partition the rows can omit its columns.
        `partition="dynamic"` replaces the partitions of the given rows. Without `order_by`, rows other than a DataFrame
        of Spark are written without Spark; see `append`.

        Raises ConflictError after a lost race, InputError for rows or partitions that don't fit.
        """
        app = app_version_of(app_id, app_version)
        if not is_spark(rows) and order_by is None:
            given = Given(rows, is_streamed=not self._meta.primary_key)
            return self._do(
                lambda table: given.noted(writes.plan_overwrite(table, given.arrow(table.meta), partition)),
                WriteOptions(on_conflict, message, app),
            )
        options = WriteOptions(on_conflict, message, app)
        given = Given(rows)
        df = spark_rows.of_rows(self._spark, given.held)
        return self._by_catalog(
            lambda table: given.declared(frame_writes.plan_overwrite(table, df, partition, order_by)), options
        )

    def truncate(
        self,
        *,
        partition: Partitions = "all",
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Removes every row, or the rows of the named partitions.

            events.truncate(partition={"day": "2026-11-01"})

        Raises ConflictError after a lost race.
        """
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        return self._do(lambda table: scopes.plan_truncate(table, partition), options)

    def restore(
        self,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        commits_ago: int | None = None,
        partition: Partitions = "all",
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Restores the rows of a version (not its columns), in the whole table or in the named partitions.

            orders.restore(commits_ago=1)

        Raises InputError unless exactly one version is named, GoneError if it is no longer kept, ConflictError after a
        lost race.
        """
        if sum(given is not None for given in (version, timestamp, commits_ago)) != 1:
            raise InputError("VERSION_INVALID", "say one of version, timestamp and commits_ago")
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        return self._do(
            lambda table: scopes.plan_restore(table, version_of(table, version, timestamp, commits_ago), partition),
            options,
        )

    def update(
        self,
        set: Settings,  # noqa: A002 - SQL's word
        where: str | Column | None = None,
        *,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Sets columns of the rows for which the condition is true.

            orders.update({"status": "'paid'", "left": 5}, where="id = 7")

        A text or a Column is an expression over the old row. Any other value is stored itself: 5, None, a date. Key
        columns can't be set. Without a Spark session, plain expressions and conditions (docs/arrow.md) need no Spark.

        Raises ConflictError after a lost race, InputError for a wrong expression or a value that doesn't fit.
        """
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))

        def by_spark() -> Answer:
            return self._by_catalog(lambda table: catalog_changes.plan_update(table, set, where), options)

        if self._prefers_spark or not (where is None or isinstance(where, str)):
            return by_spark()
        try:
            return self._do(lambda table: updates.plan_update(table, set, where), options)
        except NotPlainError as error:
            return _by_spark(by_spark, error)

    def delete(
        self,
        where: str | Column | None = None,
        *,
        keys: AnyRows | Sequence[Any] | None = None,
        on_conflict: OnConflict | None = None,
        message: str = "",
        app_id: str | None = None,
        app_version: int | None = None,
    ) -> Answer:
        """Deletes the rows for which the condition is true, or the rows with the keys.

            orders.delete("amount < 0")
            orders.delete(keys=[7, 8])

        `keys` is a list of values or of dicts, or a table with the key columns; it needs no Spark. Without a Spark
        session, a plain condition (docs/arrow.md) needs none, either.

        Raises ConflictError after a lost race, InputError for a wrong condition, or unless exactly one of both is
        given.
        """
        options = WriteOptions(on_conflict, message, app_version_of(app_id, app_version))
        if keys is not None and where is None:
            given = Given(keys)
            return self._do(
                lambda table: given.noted(writes.plan_delete_keys(table, key_rows(given.held, table.meta))),
                options,
            )
        if where is None or keys is not None:
            raise InputError(
                "CONDITION_INVALID", "a delete takes a condition, delete('id = 7'), or keys, delete(keys=[7])"
            )
        if isinstance(where, str) and not self._prefers_spark and is_plain(where, self._meta):
            return self._do(lambda table: writes.plan_delete(table, where), options)
        return self._by_catalog(lambda table: catalog_changes.plan_delete(table, where), options)

    def merge(self, source: AnyRows, on: str | list[str]) -> MergeBuilder[Answer]:
        """Begins a MERGE. `on` is one or more columns of both sides, or a condition on `target` and `source`.

            orders.merge(rows, on="id").when_matched_update().when_not_matched_insert().execute()

        Rows other than a DataFrame of Spark are merged without Spark if all expressions are plain (docs/arrow.md).
        """
        given = Given(source)

        def run(clauses: tuple[Clause, ...], options: WriteOptions) -> Answer:
            def by_spark() -> Answer:
                rows = spark_rows.of_rows(self._spark, given.held)
                merge = catalog_changes.Merge(rows, on, clauses)
                return self._by_catalog(lambda table: given.declared(catalog_changes.plan_merge(table, merge)), options)

            if is_spark(source):
                return by_spark()
            try:
                return self._do(
                    lambda table: given.noted(merge.plan_merge(table, given.merge_source(table.meta), on, clauses)),
                    options,
                )
            except NotPlainError as error:
                if given.are_dicts:
                    raise
                return _by_spark(by_spark, error)

        return MergeBuilder(run)


def _upsert_of(table: TableView, given: Given) -> Write:
    return writes.plan_upsert(table, given.arrow(table.meta), given.columns_given(table.meta))


def _begun_first(given: Given, write: Write) -> Write:
    """The write; it begins before its rows are read if that may take long, and so not in the call that commits it."""
    return given.noted(replace(write, is_one_call=False) if write.is_one_call and given.is_lazy else write)


def _by_spark(work: Callable[[], Answer], why: NotPlainError) -> Answer:
    """Run the work by Spark; without Spark the error says which part of the call needs it."""
    try:
        return work()
    except InputError as error:
        if error.reason != "SPARK_MISSING":
            raise
        need = str(why).partition(": ")[2]
        raise InputError(error.reason, f"{str(error).partition(': ')[2]}; what needs it: {need}") from why
