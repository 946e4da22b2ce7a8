"""A lake of tables, and Spark if it is used.

from laketx import connect

lake = connect("./warehouse")                      # the folder's own service
lake = connect("laketx://meta:7070", spark, warehouse="s3a://bucket/lake")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from laketx.branch import AT, Branch
from laketx.column_definitions import columns_of_words
from laketx.foreign_calls import OF_LAKES, KnowsForeignCalls, by_name
from laketx.materialized_view import MaterializedView
from laketx.periodic_task import PeriodicTasks
from laketx.schema import Schema
from laketx.table import Table
from laketx.transaction import MultiTableTransaction
from metaservice.client import KEY_SCOPE, BlockedError, KeyScope, MetaServiceError, NotFoundError
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.input_rows import is_constant
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.commit.conflict_policies import OnConflict, check_policy
from worker.commit.transaction import run_writes
from worker.commit.writes import Commit, app_version_of
from worker.files.arrow_types import wire_columns
from worker.files.external_paths import plain_path
from worker.views.definition import QUERY, schedule_properties

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from worker.connection import defaults
    from worker.imports import parquet_files
    from worker.spark import column_types
    from worker.views import creation
else:
    creation = LazyModule("worker.views.creation")
    defaults = LazyModule("worker.connection.defaults")
    column_types = LazyModule("worker.spark.column_types")
    parquet_files = LazyModule("worker.imports.parquet_files")

BUCKETS: Final = int(common_pb2.LIMIT_BUCKETS_UNNAMED)


class Lake(KnowsForeignCalls, PeriodicTasks):
    """The tables of one service, made by `connect`. Threads can share a lake and its Spark session.

    create_table, table, tables, rename_table, drop_table, undrop_table,       tables
    import_parquet
    create_materialized_view, materialized_view, materialized_views            tables that are answers of queries
    create_periodic_task, periodic_task, periodic_tasks                        statements that run by a schedule
    branch, branches, clone_table                                              changes apart, and their merge
    transaction                                                                writes to several tables, all or nothing
    as_catalog                                                                 the tables in the session's SQL
    spark, close                                                               the session; the end, also by `with`

        with connect("./warehouse") as lake:
            lake.table("shop.orders").to_arrow()

    The end of the `with` block closes the connection.
    """

    _foreign = by_name(OF_LAKES)

    # ------------------------------------------------------------------------------------------------------- tables

    def create_table(
        self,
        name: str,
        schema: str | Schema | StructType | pa.Schema,
        *,
        primary_key: Sequence[str] = (),
        buckets: int | None = None,
        partition_by: Sequence[str] = (),
        key_scope: KeyScope | None = None,
        properties: Mapping[str, str] | None = None,
        profile: str = "",
        comment: str = "",
        if_not_exists: bool = False,
    ) -> Table:
        """Creates a table. With a primary key an insert is an upsert. A missing namespace is created, too.

            lake.create_table("shop.orders", "id bigint, amount double, day date", primary_key=["id"])

        The schema is a text, the schema of a table, or a schema of Arrow or Spark. Key columns are NOT NULL. `buckets`
        (default 8) is the number of files over which the upserts of one partition are spread; it never changes.

        A primary key contains the partition columns, or `key_scope` says where it is unique: "table", across
        partitions, or "partition", within each.

        Raises AlreadyExistsError if the name is taken, unless `if_not_exists` is set; InputError or InvalidError for a
        wrong schema, key, partitioning or property.
        """
        keys = list(primary_key)
        if isinstance(primary_key, str) or isinstance(partition_by, str):
            raise InputError("COLUMNS_INVALID", "primary_key and partition_by are lists of column names")
        if buckets is not None and not keys:
            raise InputError("BUCKETS_INVALID", "only a table with a primary key has buckets")
        settings = dict(properties or {})
        if key_scope is not None:
            settings[KEY_SCOPE] = key_scope
        columns = self._columns(schema, keys)
        if computed := [column for column in columns if not is_constant(column)]:
            defaults.check_defaults(self.spark, computed)
        table = catalog_pb2.Table(
            name=name,
            columns=columns,
            partition_columns=partition_by,
            primary_key=keys,
            buckets=(BUCKETS if buckets is None else buckets) if keys else 0,
            properties=settings,
            profile=profile,
            comment=comment,
        )
        self.mark_warehouse()
        namespace, dot, _ = name.partition(".")
        if dot:
            _, at, branch = name.partition(AT)
            self.client.create_namespace(f"{namespace}{at}{branch}", if_not_exists=True)
        return Table(self, self.client.create_table(table, if_not_exists=if_not_exists))

    def _columns(self, schema: str | Schema | StructType | pa.Schema, keys: list[str]) -> list[catalog_pb2.Column]:
        if isinstance(schema, str):
            return columns_of_words(schema, keys)
        if isinstance(schema, pa.Schema):
            return wire_columns(schema, keys)
        return schema.wire_columns(keys) if isinstance(schema, Schema) else column_types.wire_columns(schema, keys)

    def table(self, name: str) -> Table:
        """Returns the table of that name, in its current state.

        Raises NotFoundError if no table has that name.
        """
        return Table(self, self.client.get_table(name))

    def tables(self, namespace: str = "") -> list[str]:
        """Returns the names of all tables, or of the tables of a namespace, in order.

        Raises NotFoundError for an unknown namespace.
        """
        return [table.name for table in self.client.list_tables(namespace=namespace)]

    def rename_table(self, name: str, new_name: str, *, message: str = "") -> Table:
        """Renames a table, also into another namespace; the old name is free at once.

            lake.rename_table("shop.orders", "archive.orders_2026")

        The table keeps its id, files, history, tags and readers, and open writes don't conflict with the rename.

        Raises NotFoundError for an unknown table or namespace, AlreadyExistsError if the new name is taken.
        """
        table_id = self.client.get_table(name).table_id
        return Table(self, self.client.rename_table(table_id, new_name, commit_message=message))

    def drop_table(self, name: str) -> None:
        """Drops a table and ends its open transactions; `undrop_table` can restore it until its retention ends.

        Raises NotFoundError if no table has that name.
        """
        self.client.drop_table(self.client.get_table(name).table_id)

    def undrop_table(self, name: str) -> Table:
        """Restores the table of that name that was dropped last.

        Raises InputError if no dropped table has that name, NotFoundError for an unknown namespace, AlreadyExistsError
        if the name is taken.
        """
        dropped = self.client.find_dropped_tables(name)
        if not dropped:
            raise InputError("TABLE_UNKNOWN", f"no dropped table {name} can be brought back")
        return Table(self, self.client.undrop_table(dropped[0].table_id))

    def import_parquet(
        self, path: str | Path, name: str, *, on_conflict: OnConflict | None = None, message: str = ""
    ) -> Table:
        """Registers the Parquet files below a path in place: nothing is copied, and no purge deletes them.

            lake.import_parquet("/data/clicks", "web.clicks")

        A missing table is created with the columns of the first file; folders like `day=2026-11-01` become partitions
        (bigint, date or string, depending on their values). Later changes of the files are not noticed.

        Raises InputError if the path has no Parquet files, is in the lake, or the files don't fit the table.
        """
        import_files(self, path, name, on_conflict=on_conflict, message=message)
        return self.table(name)

    # -------------------------------------------------------------------------------------------- materialized views

    def create_materialized_view(
        self,
        name: str,
        query: str,
        *,
        strict: bool = False,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        comment: str = "",
        with_data: bool = True,
        schedule: str = "",
        target_lag: str = "",
    ) -> MaterializedView:
        """Creates a table that has the rows of a query over tables of the lake, and can be refreshed by what changed.

            daily = lake.create_materialized_view(
                "shop.daily", "SELECT day, sum(amount) AS total FROM shop.orders GROUP BY day"
            )

        The query is in DuckDB's SQL, without functions like now() or random(). `strict` refuses a query of which every
        refresh would be full. `with_data=False` leaves the view empty until its first refresh.

        `schedule` lets `laketx worker` refresh the view: "ON COMMIT", "EVERY 5 MINUTES", or "DOWNSTREAM", before views
        that read it. `target_lag="1 minute"` is another schedule: the view is at most so far behind. See docs/views.md.

        Raises InputError for a wrong query or schedule, NotFoundError for an unknown table, AlreadyExistsError if the
        name is taken.
        """
        if "@" in name:
            raise InputError("VIEW_ON_BRANCH", f"{name} is on a branch: create the view in the lake itself")
        timing = schedule_properties(schedule, target_lag)
        new = creation.planned_view(self, query, strict=strict)
        table = self.create_table(
            name,
            new.schema,
            partition_by=partition_by,
            properties={**(properties or {}), **new.properties, **timing},
            comment=comment,
        )
        view = MaterializedView(self, table.meta)
        if with_data:
            try:
                view.refresh()
            except (InputError, BlockedError):  # its query can't be computed, or a source has too many views
                view.drop()
                raise
        return view

    def materialized_view(self, name: str) -> MaterializedView:
        """Returns the materialized view of that name.

        Raises NotFoundError for an unknown name, InputError if it is a table.
        """
        return MaterializedView(self, self.client.get_table(name))

    def materialized_views(self, namespace: str = "") -> list[str]:
        """Returns the names of all materialized views, or of those of a namespace, in order.

        Raises NotFoundError for an unknown namespace.
        """
        return [table.name for table in self.client.list_tables(namespace=namespace) if table.properties.get(QUERY)]

    # ----------------------------------------------------------------------------------------------------- branches

    def branch(
        self,
        name: str,
        *,
        parent: str = "",
        keep: timedelta | None = None,
        comment: str = "",
        tables: Sequence[str] = (),
    ) -> Branch:
        """Returns the branch of that name; makes it if there is none: every table as it is now, to change apart.

            branch = lake.branch("etl")
            branch.table("shop.orders").append(rows)
            branch.merge()

        Nothing is copied. A branch of another branch names it as `parent`. A new branch ends by itself after `keep`, by
        default 7 days. `tables` limits it, and what it holds, to tables by name or `NAMESPACE.*`. A branch that is
        there stays as it is, whatever else is given.

        Raises InvalidError for a wrong name, NotFoundError for an unknown parent.
        """
        try:
            return Branch(self, self.client.get_branch(name).branch)
        except NotFoundError:
            keep_ms = 0 if keep is None else int(keep.total_seconds() * 1000)
            made = self.client.create_branch(name, parent=parent, keep_ms=keep_ms, comment=comment, tables=tables)
            return Branch(self, made)

    def create_branches(
        self,
        names: Sequence[str],
        *,
        parent: str = "",
        keep: timedelta | None = None,
        comment: str = "",
        tables: Sequence[str] = (),
    ) -> dict[str, Branch | MetaServiceError]:
        """Makes many branches in few calls, each by itself, and returns each by its name, or why it was refused.

            lake.create_branches([f"agent-{number}" for number in range(1_000)])

        The rest is as in `branch`, but a branch that is there is refused (`BRANCH_EXISTS`).
        """
        keep_ms = 0 if keep is None else int(keep.total_seconds() * 1000)
        made = self.client.create_branches(names, parent=parent, keep_ms=keep_ms, comment=comment, tables=tables)
        return {
            name: each if isinstance(each, MetaServiceError) else Branch(self, each)
            for name, each in zip(names, made, strict=True)
        }

    def drop_branches(self, names: Sequence[str]) -> dict[str, bool | MetaServiceError]:
        """Drops many branches in few calls, each by itself; returns whether there was one, or why it was refused."""
        dropped = self.client.drop_branches(names)
        return {
            name: each if isinstance(each, MetaServiceError) else each.dropped
            for name, each in zip(names, dropped, strict=True)
        }

    def branches(self) -> list[str]:
        """Returns the names of all branches, in order."""
        return [branch.name for branch in self.client.list_branches()]

    def clone_table(self, name: str, new_name: str, *, version: int | None = None) -> Table:
        """Makes a table that begins as another one is, or was at a version; nothing is copied. Each goes its own way.

            lake.clone_table("shop.orders", "test.orders")

        The clone has the table's past, too. It keeps the files that it shows, even if the table is dropped.

        Raises NotFoundError for an unknown table, AlreadyExistsError if the new name is taken.
        """
        return self.table(name).clone(new_name, version=version)

    def transaction(
        self, message: str = "", *, app_id: str | None = None, app_version: int | None = None
    ) -> MultiTableTransaction:
        """Begins writes to several tables, all or nothing; one change per table, committed when the block ends.

            with lake.transaction("sell") as txn:
                txn.table("sales.orders").append(rows)
                txn.table("sales.stock").update({"left": "left - 1"}, where="item = 7")

        `app_id` and `app_version` make it exactly-once, as for the writes of one table.

        The end of the block raises ConflictError after a lost race; then no table changes.
        """
        return MultiTableTransaction(self, self.table, message, app_version_of(app_id, app_version))

    def __iter__(self) -> Iterator[str]:
        return iter(self.tables())


def import_files(
    lake: Lake, path: str | Path, name: str, *, on_conflict: OnConflict | None = None, message: str = ""
) -> Commit:
    """Registers the Parquet files below a path in a table; see `Lake.import_parquet`."""
    check_policy(on_conflict, is_insert=True)
    files = parquet_files.find_files(lake.client, plain_path(str(path)))
    try:
        table = lake.table(name)
    except NotFoundError:
        places = list(files[0].folders)
        table = lake.create_table(name, parquet_files.schema_of_files(files), partition_by=places, if_not_exists=True)
    parquet_files.check_files(table.meta, files)
    [done] = run_writes(
        lake,
        lambda: [parquet_files.plan_import(table.refresh().view, files)],
        on_conflict=on_conflict,
        message=message or f"import of {path}"[:200],
    )
    return done
