"""Writes that Spark's catalog does: one statement of the session, from its options to how it ended.

    table.insert(df)    df.writeTo("laketx_5f1c….`$id`.`<table id>`").option("result", …).append()

The catalog is one of the worker's own, so that a session needs no name for the lake, and tables are named by their ids,
so that a rename in between does no harm. Spark returns nothing from a write: the catalog keeps its outcome under an id
that the statement brings with it.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import random
from typing import Final

from google.rpc import error_details_pb2, status_pb2
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from metaservice.client import CommitOutcomeUnknownError, LakeTXError, MetaServiceError, features, uuid7
from metaservice.client.errors import decode_status
from protos.laketx.v1 import catalog_pb2, transaction_pb2
from worker.base.errors import InputError, lost_race
from worker.base.logs import tell
from worker.base.schema import exact_names, quoted
from worker.base.values import moment_of
from worker.commit import spans
from worker.commit.conflict_policies import named_policy
from worker.commit.rows_read import RowsRead
from worker.commit.stages import Stage, Staged
from worker.commit.transaction import ATTEMPTS_MAX, BACKOFF, PLANNED_AGAIN
from worker.commit.writes import Commit, Write, WriteOptions
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.spark import session
from worker.spark.jobs import explain, progress
from worker.spark.session import Outcome

OWN_DOMAIN: Final = "laketx.spark"  # of refusals by the catalog itself
OWN_SETTINGS: Final = {  # what a write means must not depend on the session
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.defaultColumn.useNullsForMissingDefaultValues": "true",
}
_REFUSAL: Final = re.compile(r"(?:^|\) |: )([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+): (.+)", re.DOTALL)
_MANY_MATCHES: Final = "MERGE_CARDINALITY_VIOLATION"
IF_TWICE: Final = "two source rows have it: keep one of them, for example with source.dropDuplicates([…])"
_NO_NULL: Final = "NOT_NULL_ASSERT_VIOLATION"
_OVERFLOW: Final = "CAST_OVERFLOW_IN_TABLE_INSERT"
_NO_FIT: Final = ("INCOMPATIBLE_DATA_FOR_TABLE", "DATATYPE_MISMATCH")

INSERT, OVERWRITE, DELETE, UPDATE, MERGE = "insert", "overwrite", "delete", "update", "merge"
VERSION: Final = "version"  # an option: a change of rows sees the table at this one
NOTHING: Final = RowsRead()

Run = Callable[[str, Mapping[str, str]], None]


@dataclass(frozen=True)
class CatalogWrite:
    """A statement that changes one table. `run` executes it on the named table of the session, with options.

    `read` is what its rows read of the table and Spark can't see.
    """

    table: TableView
    operation: str
    run: Run
    options: Mapping[str, str] = field(default_factory=dict)
    read: RowsRead = NOTHING
    elsewhere: Sequence[Write] = ()

    @property
    def meta(self) -> catalog_pb2.Table:
        return self.table.meta

    def reading(self, read: RowsRead, elsewhere: Sequence[Write]) -> CatalogWrite:
        """Return the same write with more reads of its rows."""
        versions = [version for version in (self.read.version, read.version) if version is not None]
        whole = RowsRead((*self.read.reads, *read.reads), min(versions, default=None))
        return replace(self, read=whole, elsewhere=(*self.elsewhere, *elsewhere))


def run_catalog_write(plan: Callable[[], CatalogWrite], options: WriteOptions) -> Commit:
    """Run the statement as one transaction.

    Where the columns changed while it ran, it is planned and run again, unless the caller or the table wants the bare
    outcome.
    """
    with spans.write() as span:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            write = plan()
            spans.note_plan([(write.operation, write.meta.name)])
            try:
                done = _commit(write, _run(write, _options_of(options)))
            except MetaServiceError as error:
                is_bare = named_policy(options.on_conflict, write.meta) == "fail"
                if error.reason not in PLANNED_AGAIN or is_bare or attempt == ATTEMPTS_MAX:
                    raise
                why = f"{PLANNED_AGAIN[error.reason]}; the write is planned again"
                tell(why, table=write.meta.name, version=write.meta.head_version)
                time.sleep(BACKOFF.delay_s(attempt - 1, random()))
                continue
            spans.note_commits(span, [done])
            return done
    raise AssertionError("the last attempt returns or raises")


def stage_catalog_write(write: CatalogWrite, txn_id: str, version: int | None = None) -> Write:
    """Let the statement stage its files under the transaction that commits them; return the change to commit.

    `version`: the version of the table that a change of its rows sees.
    """
    options = {"stage": txn_id}
    if version is not None and write.operation not in (INSERT, OVERWRITE):
        options[VERSION] = str(min(version, int(write.options.get(VERSION, version))))
    outcome = _run(write, options)
    begin = transaction_pb2.BeginTransactionRequest.FromString(outcome.begin)
    intent, *others = begin.tables
    files = transaction_pb2.RegisterFilesRequest.FromString(outcome.files)
    change = transaction_pb2.CommitTransactionRequest.FromString(outcome.commit).changes[0]

    def stage(_: Stage) -> Staged:
        return Staged(list(files.files), list(files.delete_sets), list(change.key_sets))

    staged_write = Write(
        write.table,
        intent.operation,
        stage,
        scope=change.scope if change.HasField("scope") else None,
        elsewhere=[_only_read(write.table.lake, other) for other in others],
        looks_keys_up=features.KEY_LOOKUPS in begin.client_features,
    )
    if write.operation not in (INSERT, OVERWRITE) and VERSION not in write.options:
        return replace(staged_write, reads=list(change.reads))
    return replace(staged_write, rows_read=list(change.reads), rows_version=intent.read_version)


def _only_read(lake: Connection, intent: transaction_pb2.TableIntent) -> Write:
    """Return the reads of a table that a statement reads and doesn't change."""
    table = TableView(lake, lake.client.get_table(table_id=intent.table_id, version=intent.read_version))
    return Write(table, intent.operation, rows_read=list(intent.reads), rows_version=intent.read_version)


def _options_of(options: WriteOptions) -> dict[str, str]:
    texts = {"message": options.message, "on_conflict": options.on_conflict or ""}
    if options.app is not None:
        texts |= {"app_id": options.app.app_id, "app_version": str(options.app.version)}
    return {name: value for name, value in texts.items() if value}


def _run(write: CatalogWrite, options: Mapping[str, str]) -> Outcome:
    lake, meta = write.table.lake, write.meta
    spark, catalog, result = lake.spark, lake.own_catalog(), uuid7()
    given = {**write.options, **options, **_reads_of(write), "result": result}
    try:
        with (
            session.with_settings(spark, OWN_SETTINGS),
            progress(spark, f"{write.operation} {meta.name}"),
        ):
            write.run(f"{catalog}.`$id`.{quoted(write.table.table_id)}", given)
    except (PySparkException, Py4JError) as error:
        outcome = session.write_outcome(spark, catalog, result)
        raise _error(error, outcome, write) or error from error
    outcome = session.write_outcome(spark, catalog, result)
    if outcome is None:
        raise CommitOutcomeUnknownError(result)
    return outcome


def _reads_of(write: CatalogWrite) -> dict[str, str]:
    """Return the option that declares what the rows of a write have read."""
    own_read = transaction_pb2.TableIntent(
        table_id=write.table.table_id,
        reads=write.read.reads,
        read_version=write.meta.head_version if write.read.version is None else write.read.version,
    )
    tables = [
        *([own_read] if write.read.reads else []),
        *[write_elsewhere.intent() for write_elsewhere in write.elsewhere],
    ]
    if not tables:
        return {}
    declared = transaction_pb2.BeginTransactionRequest(tables=tables)
    return {"reads": b64encode(declared.SerializeToString()).decode()}


def _commit(write: CatalogWrite, outcome: Outcome) -> Commit:
    committed = transaction_pb2.SessionReply.FromString(outcome.answer).commit.committed
    committed_table = next(table for table in committed.tables if table.table_id == write.table.table_id)
    event = "applied before" if committed_table.already_applied else "committed"
    name = write.meta.name
    tell(f"{write.operation} {event}", table=name, version=committed_table.version, txn_id=outcome.txn_id)
    return Commit(
        table=name,
        version=committed_table.version,
        time=moment_of(committed.commit_time_us),
        txn_id=outcome.txn_id,
        rebased_over=committed_table.rebased_over,
        rows_staged=outcome.rows,
        attempts=outcome.attempts,
        already_applied=committed_table.already_applied,
    )


# -- what went wrong ---------------------------------------------------------------------------------------------------


def _error(error: Exception, outcome: Outcome | None, write: CatalogWrite) -> Exception | None:
    """Return our error for an error of Spark; None if Spark's is clear enough."""
    if outcome is not None:
        return _refusal(outcome, write)
    if isinstance(error, PySparkException) and error.getCondition():
        return _of_spark(error, write)
    match = _REFUSAL.search(_message_of(error))
    if match is None:
        return None
    refusal = error_details_pb2.ErrorInfo(reason=match[1])
    return InputError(refusal.reason, match[2].strip())


def _refusal(outcome: Outcome, write: CatalogWrite) -> Exception:
    table = write.table
    if not outcome.answer:
        return CommitOutcomeUnknownError(outcome.txn_id)
    reply = transaction_pb2.SessionReply.FromString(outcome.answer)
    if reply.HasField("commit"):
        conflict = reply.commit.conflict  # in a table that it read elsewhere, perhaps
        is_own = conflict.table_id in ("", table.table_id)
        name = table.name if is_own else table.client.get_table(table_id=conflict.table_id).name
        return lost_race(conflict, name, outcome.attempts)
    error = _decoded(reply.error)
    if write.operation == MERGE and isinstance(error, InputError) and error.reason == "KEY_TWICE":
        message = str(error).partition(": ")[2].partition(";")[0]
        return InputError(error.reason, f"{message}; {IF_TWICE}")
    return error


def _decoded(status: status_pb2.Status) -> LakeTXError:
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.domain == OWN_DOMAIN:
            return InputError(info.reason, status.message)
    return decode_status(status)


def _of_spark(error: PySparkException, write: CatalogWrite) -> Exception | None:
    condition, text, meta = error.getCondition() or "", _message_of(error), write.meta
    if condition == _MANY_MATCHES:
        return InputError("MERGE_AMBIGUOUS", f"several source rows match one row of {meta.name}")
    if isinstance(error, AnalysisException) and write.operation not in (INSERT, OVERWRITE):
        return InputError("VALUE_INVALID", f"a value doesn't fit {meta.name}: {text}")
    if condition.startswith(_NO_FIT):
        return InputError("SCHEMA_MISMATCH", f"the rows don't fit {meta.name}: {text}")
    if condition == _NO_NULL:
        path = (error.getMessageParameters() or {}).get("walkedTypePath", "").strip()
        name = next(
            (column.name for column in meta.columns if re.search(rf"(^|\W){re.escape(column.name)}(\W|$)", path)), path
        )
        return InputError("NULL_NOT_ALLOWED", f"a row has NULL in {name}, which is NOT NULL in {meta.name}")
    if condition == _OVERFLOW:
        parameters = error.getMessageParameters() or {}
        name = parameters.get("columnName", "").strip("`")
        if name in exact_names(meta):
            given, target = (
                parameters.get("sourceType", "").strip('"').lower(),
                parameters.get("targetType", "").strip('"').lower(),
            )
            why = "in key columns" if name in meta.primary_key else "under write.strict_casts"
            return InputError(
                "CAST_LOSSY",
                f"a value of {given} doesn't fit {name} of {meta.name}, which is {target}: cast it yourself before the "
                f"write ({why} casts must keep every value)",
            )
    return explain(error, meta)


def _message_of(error: Exception) -> str:
    message = error.getMessage() if isinstance(error, PySparkException) else None
    return message or str(error)
