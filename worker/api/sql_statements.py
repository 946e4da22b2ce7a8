"""The SQL statements of a transaction. Until it commits, the Spark catalog keeps what they read and staged."""

# ruff: noqa: SLF001 - Python's Spark has no public way to the catalog in the JVM

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from metaservice.client import uuid7
from protos.laketx.v1 import common_pb2, transaction_pb2
from worker.base.connection import Connection
from worker.base.errors import InputError
from worker.base.lazily import LazyModule
from worker.base.storage import remove_folder
from worker.base.table_view import TableView
from worker.write.stages import Stage, Staged
from worker.write.transaction import Write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from worker.base import session
else:
    session = LazyModule("worker.base.session")

PROPERTY = "laketx.transaction"


class SqlStatements:
    """Those of one transaction."""

    def __init__(self, lake: Connection) -> None:
        self._lake = lake
        self.txn_id: str | None = None  # chosen by the first statement, whose files lie under it
        self._written: list[str] = []  # tables, once it has ended

    def run(self, statement: str, args: dict[str, Any] | list[Any] | None) -> DataFrame:
        with session.local_property(self._lake.spark, PROPERTY, self.open()):
            return self._lake.spark.sql(statement, args)

    def open(self) -> str:
        """The transaction's id."""
        if self.txn_id is None:
            if not session.is_classic(self._lake.spark):
                raise InputError(
                    "NOT_OVER_CONNECT",
                    "txn.sql needs a classic Spark session: with Spark Connect write through txn.table(…)",
                )
            session.require_jar(self._lake.spark)
            txn_id = uuid7()
            self._jvm().open(txn_id, self._lake.warehouse)
            self.txn_id = txn_id
        return self.txn_id

    def fix(self, table_id: str, version: int) -> None:
        """Statements see the table at that version."""
        self._jvm().fix(self.open(), table_id, version)

    def version_of(self, table_id: str) -> int | None:
        """The version at which statements see the table; None if none has named it."""
        found = -1 if self.txn_id is None else self._jvm().versionOf(self.txn_id, table_id)
        return None if found < 0 else int(found)

    def changes(self, table_id: str) -> bool:
        return self.txn_id is not None and bool(self._jvm().changes(self.txn_id, table_id))

    def end(self) -> list[Write]:
        """A change or a read for each table, to be committed."""
        if self.txn_id is None:
            return []
        self._written = list(self._jvm().written(self.txn_id))
        parts = [bytes(part) for part in self._jvm().close(self.txn_id)]
        return [self._write(*parts[at : at + 3]) for at in range(0, len(parts), 3)]

    def undo(self) -> None:
        """Removes what the statements wrote."""
        if self.txn_id is None:
            return
        written = self._written or self._jvm().written(self.txn_id)
        self._jvm().forget(self.txn_id)
        for table_id in written:
            with suppress(OSError):
                remove_folder(f"{self._lake.warehouse}/{table_id}/{self.txn_id}")

    def _write(self, intended: bytes, staged: bytes, changed: bytes) -> Write:
        intent = transaction_pb2.TableIntent.FromString(intended)
        change = common_pb2.Change.FromString(changed)
        at = self._lake.client.get_table(table_id=intent.table_id, version=intent.read_version)
        return Write(
            TableView(self._lake, at),
            intent.operation,
            stage=_staged(staged, change) if staged else None,
            reads=list(change.reads),
            also_read=list(intent.reads),
            scope=change.scope if change.HasField("scope") else None,
            read_version=intent.read_version,
        )

    def _jvm(self) -> Any:
        jvm: Any = self._lake.spark._jvm
        return jvm.io.laketx.spark.read.SqlTransaction


def _staged(staged: bytes, change: common_pb2.Change) -> Callable[[Stage], Staged]:
    """The files are there: a statement has written them."""
    found = transaction_pb2.RegisterFilesRequest.FromString(staged)
    files = Staged(list(found.files), list(found.delete_sets), list(change.key_sets))
    return lambda _: files
