"""Statements of periodic tasks in Spark's SQL: checked when a task is made, and run in one commit.

They run in a session of their own, so that nothing in the program's session changes what they mean, in a transaction
that sees all tables at one instant. A statement reaches nothing but rows of the lake's tables.
"""

# ruff: noqa: SLF001 - Python's Spark has no public way to the catalog in the JVM

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from metaservice.client import CommitOutcomeUnknownError, ConflictError, LakeTXError
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.base.errors import InputError
from worker.commit.rows_read import each_table_once
from worker.commit.transaction import run_writes
from worker.connection.lake_connection import Connection
from worker.dataframes.sql_statements import PROPERTY, SqlStatements
from worker.periodic.runs import (
    ATTEMPTS_MAX,
    OPERATIONS,
    TASK_SOURCES,
    CheckedStatement,
    Done,
    commit_message,
    commit_properties,
    is_applied,
    replaced,
    rows_changed,
)
from worker.periodic.spark_text import timed_text
from worker.periodic.statements import refused
from worker.spark import session
from worker.spark.catalog_jar import CATALOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final = {  # what a statement means
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.variable.substitute": "false",  # ${env:…} would show the worker's environment
}
INVALID: Final = "PERIODIC_STATEMENT_INVALID: "

_sessions: weakref.WeakKeyDictionary[Connection, SparkSession] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def check_spark_statement(lake: Connection, text: str) -> CheckedStatement:
    """Have Spark analyse a statement over its tables as they are now. Raises InputError."""
    verb, target_id, table_ids = _analysed(lake, timed_text(text, 0), {})
    tables = {each: lake.client.get_table(table_id=each) for each in (target_id, *table_ids)}
    sources = [tables[each] for each in table_ids if each != target_id]
    return CheckedStatement(pb.PERIODIC_ENGINE_SPARK, OPERATIONS[verb], tables[target_id], sources)


def check_session(lake: Connection) -> None:
    """Raise InputError unless the lake has, or can start, a session that runs statements."""
    _session(lake)


def run_spark_statement(lake: Connection, task: pb.PeriodicTask, app_id: str, due_us: int) -> Done:
    """Run the statement of a task once under an application id and its due time, whoever else runs it, too."""
    app = common_pb2.AppVersion(app_id=app_id, version=due_us)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        if is_applied(lake, task.table_id, app):
            return Done()
        pin, versions = lake.pins.own_many(dict.fromkeys([task.table_id, *task.source_ids]))
        try:
            return _run(lake, task, versions, app)
        except ConflictError:
            if attempt == ATTEMPTS_MAX:
                raise
        finally:
            pin.release()
    raise AssertionError("the last attempt raises")


def _run(lake: Connection, task: pb.PeriodicTask, versions: Mapping[str, int], app: common_pb2.AppVersion) -> Done:
    text = timed_text(task.statement, app.version)
    _, target_id, table_ids = _analysed(lake, text, versions)
    if strange := next((each for each in (target_id, *table_ids) if each not in versions), None):
        raise replaced(lake.client.get_table(table_id=strange).name)
    txn_id = uuid7()
    statements = _statements(lake, txn_id, versions)
    try:
        statements.run(text)
        [change] = [each for each in statements.end() if each.table.table_id == target_id]
        rows = rows_changed(statements.staged[target_id])
        if change.operation == common_pb2.OPERATION_INSERT and not rows:
            statements.undo()
            return Done()
        sources = {each: version for each, version in versions.items() if each in task.source_ids}
        noted = {TASK_SOURCES: json.dumps(sources, sort_keys=True)}
        [commit] = run_writes(
            lake,
            lambda: each_table_once([change.named(app)]),
            on_conflict="fail",
            message=commit_message(task.name),
            txn_id=txn_id,
            properties=commit_properties(task.name, task.statement) | noted,
        )
    except CommitOutcomeUnknownError:
        raise  # it may have committed: its files stay
    except BaseException as error:
        statements.undo()
        if isinstance(error, LakeTXError) or not isinstance(error, Exception):
            raise
        raise InputError("PERIODIC_RUN_FAILED", session.error_text(error)) from error
    return Done() if commit.already_applied else Done(commit.version, rows)


def _analysed(lake: Connection, text: str, versions: Mapping[str, int]) -> tuple[str, str, list[str]]:
    """What a statement does, and the ids of the table that it changes and of all that it names."""
    spark = _session(lake)
    statements = _statements(lake, uuid7(), versions)
    jvm: Any = spark._jvm
    try:
        with session.local_property(spark, PROPERTY, statements.open()):
            parts = jvm.io.laketx.spark.write.TaskStatement.analyse(spark._jsparkSession, CATALOG, text)
    except (PySparkException, Py4JError) as error:
        raise refused(session.error_text(error).removeprefix(INVALID)) from error
    finally:
        statements.undo()
    verb, target_id, *table_ids = map(str, parts)
    return verb, target_id, table_ids


def _statements(lake: Connection, txn_id: str, versions: Mapping[str, int]) -> SqlStatements:
    """A transaction that sees the tables at these versions."""
    statements = SqlStatements(lake, txn_id, _session(lake))
    for table_id, version in versions.items():
        statements.fix(table_id, version)
    return statements


def _session(lake: Connection) -> SparkSession:
    with _lock:
        spark = _sessions.get(lake)
        if spark is None:
            spark = _sessions[lake] = lake.separate_session(SETTINGS)
        return spark
