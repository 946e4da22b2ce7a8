"""The SQL statements of a transaction. Until it commits, the Spark catalog keeps what they read and staged."""

# ruff: noqa: SLF001 - Python's Spark has no public way to the catalog in the JVM

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from metaservice.client import features
from protos.laketx.v1 import common_pb2, transaction_pb2
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.commit.stages import Staged
from worker.commit.writes import Write
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files.storage import remove_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from worker.spark import session
else:
    session = LazyModule("worker.spark.session")

PROPERTY = "laketx.transaction"


class SqlStatements:
    """The SQL statements of one transaction."""

    def __init__(self, lake: Connection, txn_id: str, spark: SparkSession | None = None) -> None:
        """They run in a session; None: in the lake's."""
        self._lake = lake
        self._session = spark
        self._txn_id = txn_id  # their files are stored under it
        self.is_open = False  # once there is a statement
        self._written: list[str] = []  # tables, once it has ended
        self.staged: dict[str, Staged] = {}  # by tables, once it has ended

    @property
    def spark(self) -> SparkSession:
        """The session in which the statements run."""
        return self._lake.spark if self._session is None else self._session

    def run(self, statement: str, args: dict[str, Any] | list[Any] | None = None) -> DataFrame:
        with session.local_property(self.spark, PROPERTY, self.open()):
            return self.spark.sql(statement, args)

    def open(self) -> str:
        """Return the transaction's id."""
        if not self.is_open:
            if not session.is_classic(self.spark):
                raise InputError(
                    "NOT_OVER_CONNECT",
                    "txn.sql needs a classic Spark session: with Spark Connect write through txn.table(…)",
                )
            session.require_jar(self.spark)
            self._jvm().open(self._txn_id, self._lake.warehouse)
            self.is_open = True
        return self._txn_id

    def fix(self, table_id: str, version: int) -> None:
        """Let statements see the table at a version."""
        self._jvm().fix(self.open(), table_id, version)

    def version_of(self, table_id: str) -> int | None:
        """Return the version at which statements see the table; None if no statement has named it."""
        version = self._jvm().versionOf(self._txn_id, table_id) if self.is_open else -1
        return None if version < 0 else int(version)

    def changes(self, table_id: str) -> bool:
        return self.is_open and bool(self._jvm().changes(self._txn_id, table_id))

    def end(self) -> list[Write]:
        """Return a change or a read for each table, to be committed."""
        if not self.is_open:
            return []
        self._written = list(self._jvm().written(self._txn_id))
        parts = [bytes(part) for part in self._jvm().close(self._txn_id)]
        return [self._write(*parts[at : at + 3]) for at in range(0, len(parts), 3)]

    def undo(self) -> None:
        """Remove what the statements wrote."""
        if not self.is_open:
            return
        written = self._written or self._jvm().written(self._txn_id)
        self._jvm().forget(self._txn_id)
        for table_id in written:
            with suppress(OSError):
                remove_folder(f"{self._lake.warehouse}/{table_id}/{self._txn_id}")

    def _write(self, begun: bytes, staged: bytes, changed: bytes) -> Write:
        begin = transaction_pb2.BeginTransactionRequest.FromString(begun)
        [intent] = begin.tables
        change = common_pb2.Change.FromString(changed)
        at = self._lake.client.get_table(table_id=intent.table_id, version=intent.read_version)
        files = self.staged[intent.table_id] = _staged(staged, change)
        return Write(
            TableView(self._lake, at),
            intent.operation,
            stage=(lambda _: files) if staged else None,
            reads=list(change.reads),
            also_read=list(intent.reads),
            scope=change.scope if change.HasField("scope") else None,
            read_version=intent.read_version,
            looks_keys_up=features.KEY_LOOKUPS in begin.client_features,
        )

    def _jvm(self) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.io.laketx.spark.read.SqlTransaction


def _staged(staged: bytes, change: common_pb2.Change) -> Staged:
    """The files are there: a statement has written them."""
    files = transaction_pb2.RegisterFilesRequest.FromString(staged)
    return Staged(list(files.files), list(files.delete_sets), list(change.key_sets))
