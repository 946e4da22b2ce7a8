"""`laketx sql`: where statements come from, what becomes of each, and how the command ends."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from laketx.commands import result_rows, sql_session
from laketx.commands.prompt import CatalogNames, new_prompt, read_statements
from laketx.commands.sql_text import UnendedError, split
from laketx.connection import connect
from laketx.lake import Lake
from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.output import Session
from metaservice.cli.settings import SERVER
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.periodic.definitions import parse_task_definition
from worker.services.commands import command_errors, lake_of, warehouse_of
from worker.spark.catalog_jar import BRANCH_SETTING, CATALOG
from worker.views.statements import parse_view_statement

if TYPE_CHECKING:
    from laketx.commands import periodic_tasks, view_statements
else:
    periodic_tasks = LazyModule("laketx.commands.periodic_tasks")
    view_statements = LazyModule("laketx.commands.view_statements")

MAIN: Final = "main"
REASON: Final = re.compile(r"\[?(?P<reason>[A-Z][A-Z0-9_.]+)(?:\]|:) ?(?P<message>.*)", re.DOTALL)
FOR_PROGRAMMERS: Final = re.compile(r" SQLSTATE: \w{5};?|\n+== SQL.*|;\n'.*|\n+JVM stacktrace:.*", re.DOTALL)
FACT: Final = re.compile(r"\n  (\w+): +(.*)")
EXITS: Final[Mapping[str, Exit]] = {
    "LOST_RACE": Exit.CONFLICT,
    "COMMIT_OUTCOME_UNKNOWN": Exit.UNKNOWN,
    "TABLE_OR_VIEW_NOT_FOUND": Exit.NOT_FOUND,
    "SCHEMA_NOT_FOUND": Exit.NOT_FOUND,
}
NEXT_STEPS: Final = {
    "CANNOT_LOAD_CATALOG.PLUGIN_CLASS_NOT_FOUND": "start the server with the jar: `laketx spark-jar` prints how",
}


def run_sql(
    session: Session,
    execute: tuple[str, ...],
    file: str | None,
    remote: str,
    warehouse: str | None,
    limit: int | None,
    csv: bool,
    keep_going: bool,
) -> Exit:
    if csv and session.as_json:
        raise usage_failure("--csv or -o json, not both")
    form: result_rows.Form = "csv" if csv else "json" if session.as_json else "table"
    statements = given(execute, file)
    lake = lake_of(session)
    files = warehouse if remote else warehouse_for(session, warehouse)  # refused before a Spark starts
    state = state_folder(session.environment)
    with (
        refusals(),
        sql_session.started(remote, state / "spark.log", session.settings.timeout_s) as running,
        current_catalog(session, running, lake, files) as connected,
    ):
        if session.settings.branch:
            running.conf.set(BRANCH_SETTING, session.settings.branch)
        shell = Shell(session, running, form, limit, connected)
        if statements is not None:
            return shell.run_all(statements, keep_going=keep_going)
        logs = "" if remote else f"; Spark logs to {state / 'spark.log'}"
        session.note(f"{remote or session.settings.place}: `help` shows how, `exit` leaves{logs}")
        return shell.talk(state / "sql_history")


def warehouse_for(session: Session, given: str | None) -> str | None:
    """None: the folder's own."""
    return None if session.settings.folder and not given else warehouse_of(session, given)


@contextmanager
def current_catalog(session: Session, running: SparkSession, lake: str, warehouse: str | None) -> Iterator[Lake | None]:
    """Make the lake's catalog current. A server's session may have one already; otherwise connect to the lake of the
    command line, and yield it.
    """
    uri = running.conf.get(f"spark.sql.catalog.{CATALOG}.uri", None)
    if uri is not None:
        check_same(lake, uri.rstrip("/"), is_named=session.settings.place != SERVER)
        running.catalog.setCurrentCatalog(CATALOG)
        yield None
        return
    files = warehouse_for(session, warehouse)
    with connect(lake, running, user=session.settings.user, warehouse=files) as connected:
        running.catalog.setCurrentCatalog(connected.as_catalog(CATALOG))
        yield connected


def check_same(lake: str, running: str, *, is_named: bool) -> None:
    """Refuse a named lake that is not the session's."""
    if is_named and running != lake:
        raise CommandError(
            Exit.REFUSED,
            "CATALOG_NAME_TAKEN",
            f"the Spark session's catalog {CATALOG} is the lake at {running}, not the one at {lake}",
            next_step="leave --server and --folder out to use the session's",
        )


def given(execute: tuple[str, ...], file: str | None) -> list[str] | None:
    """The statements of the command line, of a file (`-`: standard input) or of a pipe; None: there is a terminal."""
    if file is None and not execute and not sys.stdin.isatty():
        file = "-"
    texts = list(execute)
    if file is not None:
        try:
            texts.append(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(Exit.REFUSED, "FILE_UNREADABLE", str(error), {"file": file}) from error
    if not texts:
        return None
    try:
        return [statement for text in texts for statement in split(text)]
    except UnendedError as error:
        raise CommandError(Exit.REFUSED, "STATEMENT_UNENDED", str(error), next_step="close it") from error


def state_folder(environment: Mapping[str, str]) -> Path:
    """For the history and Spark's log: nobody else may read them."""
    folder = Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "laketx"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in ("sql_history", "spark.log"):
        os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY, 0o600))
    return folder


class Shell:
    """Runs statements in a session, and prints what they answer."""

    def __init__(
        self,
        session: Session,
        running: SparkSession,
        form: result_rows.Form,
        limit: int | None,
        lake: Lake | None = None,
    ) -> None:
        """`lake` carries out the statements of views and tasks; None: the session's catalog is of a server."""
        self._session = session
        self._lake = lake
        self._spark = running
        self._form = form
        self._limit = limit

    def run(self, statement: str) -> None:
        started = time.perf_counter()
        with refusals():
            frame = self._frame(statement)
            done = (
                result_rows.show(self._session, frame, self._form, self._limit)
                if frame is not None and frame.columns
                else "done"
            )
        self._session.note(f"{done} in {time.perf_counter() - started:.2f} s")

    def _frame(self, statement: str) -> DataFrame | None:
        """The answer of Spark, or of Python to a statement of views or periodic tasks; None: it has no rows."""
        definition = parse_task_definition(statement)
        parsed = parse_view_statement(statement) if definition is None else None
        if definition is None and parsed is None:
            return self._spark.sql(statement)
        if self._lake is None:
            raise InputError(
                "VIEW_STATEMENT_INVALID", "the server's Spark has no views' engine: use laketx view or laketx periodic"
            )
        if self._spark.conf.get(BRANCH_SETTING, "") not in ("", MAIN):
            raise InputError(
                "VIEW_ON_BRANCH",
                f"materialized views and periodic tasks belong to the lake itself: SET {BRANCH_SETTING} = {MAIN} first",
            )
        if definition is not None:
            answer = periodic_tasks.carry_out(self._lake, definition, self._whole_name)
        else:
            assert parsed is not None
            answer = view_statements.carry_out(self._lake, parsed, self._whole_name)
        return self._spark.createDataFrame(list(answer.rows), answer.columns) if answer.columns else None

    def _whole_name(self, name: str) -> str:
        """A name as the lake has it: without the catalog, with the current namespace."""
        parts = name.split(".")
        if parts[0] == CATALOG and len(parts) > 1:
            return ".".join(parts[1:])
        space = self._spark.catalog.currentDatabase()
        return f"{space}.{name}" if space and len(parts) == 1 else name

    def run_all(self, statements: Iterable[str], *, keep_going: bool) -> Exit:
        """Ends with the first failure, or goes on and ends as the first failure would have."""
        ended = Exit.DONE
        for statement in statements:
            try:
                self.run(statement)
            except CommandError as failure:
                if not keep_going:
                    raise
                self._session.show_failure(failure)
                ended = ended or failure.code
        return ended

    def talk(self, history: Path) -> Exit:
        prompt = new_prompt(CatalogNames(self._spark), history)
        for text in read_statements(prompt, self._where, self._session.note):
            for statement in split(text):
                try:
                    self.run(statement)
                except KeyboardInterrupt:
                    sql_session.cancel(self._spark)
                    self._session.note("cancelled")
                    break
                except CommandError as failure:
                    self._session.show_failure(failure)
                    break
        return Exit.DONE

    def _where(self) -> str:
        """The current namespace."""
        with suppress(PySparkException):
            space = self._spark.catalog.currentDatabase()
            return f"{CATALOG}.{space}" if space else CATALOG
        return CATALOG


@contextmanager
def refusals() -> Iterator[None]:
    """Convert refusals of Spark or the service to errors of the command line."""
    try:
        with command_errors():
            yield
    except PySparkException as error:
        raise failure_of(str(error)) from error


def failure_of(text: str) -> CommandError:
    """Convert an error of Spark to its reason and message, without the lines that follow for programmers."""
    match = REASON.match(text.lstrip())
    reason, message = (match["reason"], match["message"]) if match else ("SPARK_FAILED", text)
    message = FOR_PROGRAMMERS.sub("", message)
    facts = dict(FACT.findall(message))
    next_step = facts.pop("advice", "") or NEXT_STEPS.get(reason, "")
    message = " ".join(FACT.sub("", message).split())
    return CommandError(EXITS.get(reason, Exit.REFUSED), reason, message, facts, next_step)
