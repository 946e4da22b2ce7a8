"""The user's Spark session. Everything that the worker changes in it, or stores by it, goes through this module.

    settings      changed for a write; restored when their last user is done
    jobs          tags, groups and progress handlers of a thread's jobs, removed when the block ends
    catalog       a lake's tables under a name in the session's SQL; not removed

Classic Spark and Spark Connect differ in most of this.
"""

# ruff: noqa: SLF001 - Python's Spark has no public way to the session in the JVM

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from worker.base.errors import InputError
from worker.spark.catalog_jar import CATALOG_CLASS, EXTENSIONS, EXTENSIONS_CLASS, NO_EXTENSIONS, NO_JAR
from worker.spark.java import JAVA_MIN, missing_java, prepare_java

OWN_BAR: Final = "spark.ui.showConsoleProgress"

NO_CLASS: Final = "PLUGIN_CLASS_NOT_FOUND"
VERSION_COUNTS: Final = "versionCounts"  # an option of the catalog: the version was the newest, nobody has chosen it

_FOR_PROGRAMMERS: Final = re.compile(r" SQLSTATE: \w{5};?|\n+== SQL.*|;\n'.*|\n+JVM stacktrace:.*", re.DOTALL)
_JAVA_REFUSAL: Final = re.compile(r"LakeException: (.+)")

_OFFSET: Final = re.compile(r"(?:GMT|UTC|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2}))?\Z")


def has_active() -> bool:
    return SparkSession.getActiveSession() is not None


def active_or_new(settings: Mapping[str, str]) -> SparkSession:
    """Return the active session, or a new one with the settings and without Spark's own progress bar."""
    session = SparkSession.getActiveSession()
    if session is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's Python workers run this Python
        with java_explained():
            session = SparkSession.builder.config(map={OWN_BAR: "false", **settings}).getOrCreate()
    return session


@contextmanager
def java_explained() -> Iterator[None]:
    """Explain, around the start of a session, that no suitable Java exists."""
    if not prepare_java() and "SPARK_REMOTE" not in os.environ:
        raise InputError("JAVA_MISSING", f"Spark needs Java {JAVA_MIN} or later, and {missing_java()}")
    try:
        yield
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        message = f"Spark's Java ended while it started: it needs Java {JAVA_MIN} or later; what it said is above"
        raise InputError("JAVA_MISSING", message) from error


def add_catalog(spark: SparkSession, name: str, settings: Mapping[str, str]) -> None:
    """Set up a catalog of tables; refuse a name that another catalog has."""
    current = {key: spark.conf.get(key, None) for key in settings}
    if current == settings:
        return
    if is_classic(spark):
        require_jar(spark)
    if spark.conf.get(f"spark.sql.catalog.{name}", None) is not None:
        raise InputError("CATALOG_NAME_TAKEN", f"the session knows another catalog as {name}: give another name")
    for key, value in settings.items():
        spark.conf.set(key, value)
    if EXTENSIONS_CLASS not in (spark.conf.get(EXTENSIONS, None) or ""):
        warnings.warn(NO_EXTENSIONS, stacklevel=3)


def add_own_catalog(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Sets up a catalog under a name that nobody else gives."""
    if is_classic(spark):
        require_jar(spark)
    for key, value in settings.items():
        spark.conf.set(key, value)


def separate_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session on the same executors, with its own settings, views and current catalog."""
    if not is_classic(spark):
        raise InputError("NOT_OVER_CONNECT", "this needs a classic Spark session, not one of Spark Connect")
    require_jar(spark)
    separate = spark.newSession()
    for key, value in settings.items():
        separate.conf.set(key, value)
    return separate


def require_jar(spark: SparkSession) -> None:
    """Refuses a classic session that was started without the jar of the catalog."""
    if not has_jar(spark):
        raise InputError("JAR_MISSING", NO_JAR)


@contextmanager
def missing_jar_explained() -> Iterator[None]:
    """Around the first use of the catalog over Spark Connect, whose server may lack the jar."""
    try:
        yield
    except PySparkException as error:
        if CATALOG_CLASS in str(error) and NO_CLASS in str(error):
            raise InputError("JAR_MISSING", NO_JAR) from error
        raise


_with_jar: weakref.WeakKeyDictionary[SparkSession, bool] = weakref.WeakKeyDictionary()


def has_jar(spark: SparkSession) -> bool:
    """Return whether this is a classic session with the catalog's jar, which it has from its start or never."""
    with_jar = _with_jar.get(spark)
    if with_jar is None:
        with_jar = _with_jar[spark] = is_classic(spark) and _has_class(spark, CATALOG_CLASS)
    return with_jar


def rows_by_jar(
    spark: SparkSession, address: Mapping[str, str], definition: bytes, version: int, *, is_chosen: bool
) -> DataFrame:
    """The rows of a table at a version, read by the reader of the catalog; the session has the jar.

    A version that somebody chose is a constant; the newest one is a read that counts for writes to the table.
    """
    jvm: Any = spark._jvm
    rows: Any = jvm.io.laketx.spark.TableFrames.of(_jsession(spark), address, bytearray(definition), version, is_chosen)
    return DataFrame(rows, spark)


def changes_by_jar(
    spark: SparkSession,
    address: Mapping[str, str],
    definition: bytes,
    *,
    begin: int,
    end: int,
    mode: str,
    is_chosen: bool,
) -> DataFrame:
    """What changed in a table after the version `begin`, up to `end`, of which the definition is; as `rows_by_jar`."""
    jvm: Any = spark._jvm
    rows: Any = jvm.io.laketx.spark.TableFrames.changes(
        _jsession(spark), address, bytearray(definition), begin, end, mode, is_chosen
    )
    return DataFrame(rows, spark)


def rows_by_catalog(spark: SparkSession, table: str, version: int, *, is_chosen: bool) -> DataFrame:
    """The rows of a table that the session's catalog knows by that name, for sessions of Spark Connect."""
    options = {} if is_chosen else {VERSION_COUNTS: "true"}
    return _read_by_name(spark, f"{table} VERSION AS OF {version}", options)


def changes_by_catalog(
    spark: SparkSession, table: str, *, begin: int, end: int, mode: str, is_chosen: bool
) -> DataFrame:
    """What changed in (begin, end], likewise."""
    options = {"readChangeFeed": "true", "startingVersion": f"{begin + 1}", "endingVersion": f"{end}", "mode": mode}
    return _read_by_name(spark, table, options if is_chosen else options | {VERSION_COUNTS: "true"})


def _read_by_name(spark: SparkSession, table: str, options: Mapping[str, str]) -> DataFrame:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    read = f"{table} WITH ({listed})" if options else table
    with missing_jar_explained():
        return spark.sql(f"SELECT * FROM {read}")  # noqa: S608 - the names and values are ours


def reads_by_jar(rows: DataFrame, table_id: str) -> tuple[list[bytes], int]:
    """Return a DataFrame's reads of a table, as messages of the wire, and the oldest version that it reads."""
    jvm: Any = rows.sparkSession._jvm
    plan_reads = jvm.io.laketx.spark.write.PlanReads.of(_jframe(rows), table_id)
    return [bytes(read) for read in plan_reads.reads()], int(plan_reads.version())


@dataclass(frozen=True)
class ReadElsewhere:
    """What a DataFrame reads of a table: messages of the wire, the oldest version, the schema that they name."""

    table_id: str
    reads: list[bytes]
    version: int
    schema_version: int  # -1: of several schemas


def reads_elsewhere_by_jar(rows: DataFrame, table_id: str, warehouse: str) -> list[ReadElsewhere]:
    """Return a DataFrame's reads of other tables of the lake with this warehouse."""
    jvm: Any = rows.sparkSession._jvm
    tables = jvm.io.laketx.spark.write.PlanReads.elsewhere(_jframe(rows), table_id, warehouse)
    return [
        ReadElsewhere(
            str(table.tableId()),
            [bytes(read) for read in table.reads()],
            int(table.version()),
            int(table.schemaVersion()),
        )
        for table in tables
    ]


@dataclass(frozen=True)
class Outcome:
    """How a write of the catalog ended, in messages of the wire. Those of a write that only staged its files say how to
    commit them; without any, nobody knows whether it committed."""

    txn_id: str
    rows: int
    attempts: int
    answer: bytes
    begin: bytes
    files: bytes
    commit: bytes


def write_outcome(spark: SparkSession, catalog: str, result: str) -> Outcome | None:
    """Return, once, the outcome of the write with this option `result`; None if there was no such write."""
    if is_classic(spark):
        jvm: Any = spark._jvm
        written = jvm.io.laketx.spark.write.WriteResults.take(result)
        if written is None:
            return None
        parts = [bytes(message) for message in (written.answer(), written.begin(), written.files(), written.commit())]
        return Outcome(str(written.txnId()), int(written.rows()), int(written.attempts()), *parts)
    rows = spark.sql(f"CALL {catalog}.system.write_result(id => '{result}')").collect()
    if not rows:
        return None
    txn_id, count, attempts, *messages = rows[0]
    return Outcome(txn_id, count, attempts, *map(bytes, messages))


def plan_text(rows: DataFrame) -> str:
    """The analysed plan of a DataFrame, subqueries and views included; over Spark Connect the server tells it."""
    frame: Any = rows
    if is_classic(rows.sparkSession):
        return str(frame._jdf.queryExecution().analyzed().toString())
    return str(frame._explain_string(extended=True))


def _jframe(rows: DataFrame) -> Any:
    frame: Any = rows
    return frame._jdf


def _jsession(spark: SparkSession) -> Any:
    session: Any = spark
    return session._jsparkSession


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.util.Utils.classForName(name, False, False)
    except Py4JJavaError:
        return False
    return True


def python_hint(spark: SparkSession) -> str:
    """Describes a problem with the Python of Spark's tasks on this machine; empty if there is none.

    Another environment may lack this package, polars or pyarrow; this shows only when a task imports them.
    """
    if not is_classic(spark) or not (spark.sparkContext.master or "").startswith("local"):
        return ""
    program = spark.sparkContext.pythonExec
    path = shutil.which(program)
    advice = f"start Spark with PYSPARK_PYTHON={sys.executable}"
    if path is None:
        return f"Spark's Python workers would run {program}, which can't be found: {advice}"
    if os.path.realpath(Path(path).parent) != os.path.realpath(Path(sys.executable).parent):
        return f"Spark's Python workers run {path}, another environment than this one: {advice}"
    return ""


def is_classic(spark: SparkSession) -> bool:
    """Whether the session is classic: Spark Connect has no `sparkContext`."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def error_text(error: Exception) -> str:
    """What went wrong in Spark, without what is for programmers of Spark."""
    if isinstance(error, Py4JJavaError):
        refusal = _JAVA_REFUSAL.search(str(error.java_exception))
        return refusal[1] if refusal else str(error.java_exception).split("\n", 1)[0]
    return _FOR_PROGRAMMERS.sub("", str(error)).strip()


# -- settings ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Loan:
    """A setting that is changed for a while: its number of users and its old value; None: it was not set."""

    before: str | None
    users: int = 0


_loans: dict[tuple[str, str], _Loan] = {}
_loans_lock = threading.Lock()


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Set the settings for the block. Threads share the session: a setting is restored when its last user is done."""
    connected: Any = spark
    session = _jsession(spark).sessionUUID() if is_classic(spark) else connected.session_id
    taken = []
    try:
        for key, value in settings.items():
            with _loans_lock:
                differs = spark.conf.get(key) != value
                if differs and (session, key) not in _loans:
                    _loans[session, key] = _Loan(spark.conf.get(key, None))
                if (session, key) in _loans:
                    _loans[session, key].users += 1
                    taken.append(key)
                if differs:
                    spark.conf.set(key, value)
        yield
    finally:
        for key in taken:
            with _loans_lock:
                loan = _loans[session, key]
                loan.users -= 1
                if not loan.users:
                    del _loans[session, key]
                    spark.conf.unset(key) if loan.before is None else spark.conf.set(key, loan.before)


@contextmanager
def local_property(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Sets a property of this thread in a classic session."""
    context = spark.sparkContext
    before: Any = context.getLocalProperty(key)
    context.setLocalProperty(key, value)
    try:
        yield
    finally:
        context.setLocalProperty(key, before)


def await_tasks(spark: SparkSession, tag: str, within_ms: int) -> None:
    """Waits until no task of the jobs with the tag runs; a server of Spark Connect doesn't say which tasks it runs."""
    if is_classic(spark):
        jvm: Any = spark._jvm
        jvm.io.laketx.spark.read.SparkInternals.awaitTasks(_jsession(spark).sparkContext(), tag, within_ms)


def job_ids(spark: SparkSession, tag: str) -> Sequence[int]:
    """The jobs with the tag in a classic session: Python's own tracker knows groups alone."""
    return list(_jsession(spark).sparkContext().statusTracker().getJobIdsForTag(tag))


# -- what a session tells ----------------------------------------------------------------------------------------------


def session_zone(spark: SparkSession | None) -> tzinfo | None:
    """The session's time zone; None if Python doesn't know it."""
    return find_zone(spark.conf.get("spark.sql.session.timeZone") or "") if spark is not None else None


def find_zone(name: str) -> tzinfo | None:
    if name in ("Z", "UTC", "GMT"):
        return UTC
    offset = _OFFSET.match(name)
    if offset is not None:
        away = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-away if offset[1] == "-" else away)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
