"""A write: the change of one table, how it is committed, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from worker.base.errors import InputError
from worker.commit.conflict_policies import OnConflict
from worker.commit.stages import Stage, Staged
from worker.connection.table_view import TableView

APP_ID_CHARS_MAX: Final = common_pb2.LIMIT_APP_ID_CHARS


@dataclass(frozen=True)
class Commit:
    """The result of a committed write for one table."""

    table: str
    version: int
    time: datetime
    txn_id: str
    rebased_over: int = 0
    rows_staged: int = 0
    attempts: int = 1
    already_applied: bool = False  # the table has this application version: nothing was written


@dataclass(frozen=True)
class WriteOptions:
    """How a write is committed: its conflict policy, its message, its application version."""

    on_conflict: OnConflict | None = None
    message: str = ""
    app: common_pb2.AppVersion | None = None


@dataclass(frozen=True)
class Write:
    """The change of one table. `stage` writes files and returns them.

    `reads` are the reads of the change itself, if `stage` doesn't return more exact ones; `rows_read` are those of the
    rows that it was given, the oldest of which saw `rows_version`; `also_read` are earlier reads of its transaction.

    It begins at the version that it was planned from, however much later the service hears of it, so that nothing that
    committed in between is overlooked; or at an older one that its rows saw. `read_version` fixes another one.
    """

    table: TableView
    operation: common_pb2.Operation.ValueType
    stage: Callable[[Stage], Staged] | None = None
    reads: Sequence[common_pb2.Read] = ()
    also_read: Sequence[common_pb2.Read] = ()
    rows_read: Sequence[common_pb2.Read] = ()
    rows_version: int | None = None
    rows_anew: Callable[[], None] | None = None  # has the rows read again, at the newest version
    are_rows_once: bool = False  # a stream, which nobody can read again
    scope: common_pb2.Scope | None = None
    restore_version: int = 0
    read_version: int | None = None
    app: common_pb2.AppVersion | None = None
    other_apps: Sequence[common_pb2.AppVersion] = ()  # committed with it; the write is applied if all of them are
    app_ids_read: Sequence[str] = ()  # a later commit with one of these application ids wins against it
    is_one_call: bool = False  # a blind INSERT of few rows, which are sent with the commit
    elsewhere: Sequence[Write] = ()  # of tables that it read besides, each an UPDATE that changes nothing
    unchanged_since: int | None = None  # the version whose rows the table must still have
    looks_keys_up: bool = False  # in all partitions, at its read version: the table's key is unique across them
    has_all_columns: bool = False  # its rows need no defaults, which may have changed since the table was looked at

    @property
    def meta(self) -> catalog_pb2.Table:
        return self.table.meta

    def at(self, version: int) -> Write:
        """The same write, judged against the commits after this version."""
        return replace(self, read_version=version)

    def named(self, app: common_pb2.AppVersion | None) -> Write:
        """The same write, as an application's version."""
        return self if app is None else replace(self, app=app)

    @property
    def begins_at(self) -> int:
        """The version after which all commits count."""
        planned = self.meta.head_version if self.read_version is None else self.read_version
        return planned if self.rows_version is None else min(planned, self.rows_version)

    @property
    def is_blind_insert(self) -> bool:
        has_read = self.reads or self.rows_read or self.also_read or self.looks_keys_up
        return self.operation == common_pb2.OPERATION_INSERT and not has_read

    @property
    def is_repeatable_insert(self) -> bool:
        """Whether it is an INSERT that has read nothing but where its keys live: a blind one, done again."""
        has_read = self.reads or self.rows_read or self.also_read
        return self.operation == common_pb2.OPERATION_INSERT and self.looks_keys_up and not has_read

    def intent(self) -> transaction_pb2.TableIntent:
        return transaction_pb2.TableIntent(
            table_id=self.meta.table_id,
            operation=self.operation,
            schema_version=self.meta.schema_version,
            read_version=self.begins_at,
            reads=[*self.reads, *self.rows_read, *self.also_read],
        )

    def change(self, staged: Staged) -> common_pb2.Change:
        own = self.reads if staged.reads is None else staged.reads
        return common_pb2.Change(
            table_id=self.meta.table_id,
            reads=[*own, *staged.looked_at, *self.rows_read, *self.also_read],
            scope=self.scope,
            restore_version=self.restore_version,
            key_sets=staged.key_sets,
            app_versions=[*([] if self.app is None else [self.app]), *self.other_apps],
            app_ids_read=self.app_ids_read,
            unchanged_since=self.unchanged_since,
        )


def app_version_of(app_id: str | None, app_version: int | None) -> common_pb2.AppVersion | None:
    """The application version of a write; id and version come together or not at all."""
    if app_id is None and app_version is None:
        return None
    if not isinstance(app_id, str) or not 0 < len(app_id) <= APP_ID_CHARS_MAX:
        raise InputError("APP_VERSION_INVALID", f"app_id is a text of 1 to {APP_ID_CHARS_MAX} characters")
    if isinstance(app_version, bool) or not isinstance(app_version, int) or not 0 <= app_version < 1 << 63:
        raise InputError("APP_VERSION_INVALID", "app_version is a whole number from 0 that grows with each write")
    return common_pb2.AppVersion(app_id=app_id, version=app_version)
