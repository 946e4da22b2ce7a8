"""Periodic tasks: statements that workers run by a schedule, each due run once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from metaservice.client import NotFoundError
from metaservice.client.periodic_tasks import ENGINES, engine_name, waiting_text
from protos.laketx.v1 import catalog_pb2
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.connection.lake_connection import Connection

if TYPE_CHECKING:
    from worker.periodic import attempts, definitions, runs, spark_runs
    from worker.periodic.definitions import Engine
    from worker.periodic.runs import CheckedStatement
else:
    attempts = LazyModule("worker.periodic.attempts")
    definitions = LazyModule("worker.periodic.definitions")
    runs = LazyModule("worker.periodic.runs")
    spark_runs = LazyModule("worker.periodic.spark_runs")

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
WAIT_S: Final = 600.0  # for a run that another worker has
LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class PeriodicRun:
    """A run of a periodic task that ended: its outcome is "done", "skipped" or "failed".

    `skips` counts the runs in succession that were skipped, of which this is the last.
    """

    due: datetime
    outcome: str
    begin: datetime
    seconds: float
    rows: int
    version: int
    attempts: int
    worker: str
    error: str
    skips: int
    requested: bool
    engine: str  # "duckdb", "spark", or empty if nothing ran


class PeriodicTask:
    """A periodic task, made by `lake.periodic_task` and `lake.create_periodic_task`.

    run, suspend, resume, alter, drop         what becomes of it
    history                                   its runs
    statement, engine, schedule, next_run, …  what it is, as of the last `refresh`

        task = lake.create_periodic_task(
            "shop.nightly", "INSERT INTO shop.days SELECT day, sum(amount) FROM shop.orders GROUP BY day",
            schedule="every 5 minutes",
        )
        task.run()
        print(task.history()[0].rows)
    """

    def __init__(self, lake: Connection, message: pb.PeriodicTask) -> None:
        self.lake = lake
        self.message = message

    def __repr__(self) -> str:
        return f"PeriodicTask({self.name!r}, {self.schedule!r})"

    @property
    def name(self) -> str:
        """The task's name with its namespace."""
        return self.message.name

    @property
    def statement(self) -> str:
        """The statement that it runs, as it was written."""
        return self.message.statement

    @property
    def engine(self) -> str:
        """What runs the statement, in whose SQL it is: "duckdb" or "spark"."""
        return engine_name(self.message.engine)

    @property
    def waits_for(self) -> str:
        """What a run that is due lacks: "a worker with Spark: laketx worker --spark"; empty if it lacks nothing."""
        return waiting_text(self.message)

    @property
    def schedule(self) -> str:
        """When it runs: `every 5 minutes`, `cron 30 3 * * *`."""
        return self.message.schedule

    @property
    def owner(self) -> str:
        """Who made it: its runs need this user's rights."""
        return self.message.owner.name

    @property
    def comment(self) -> str:
        """The comment."""
        return self.message.comment

    @property
    def is_suspended(self) -> bool:
        """Whether it is not run."""
        return self.message.suspended

    @property
    def next_run(self) -> datetime | None:
        """When the next run or attempt is due; None: never."""
        return _time(self.message.next_time_us)

    @property
    def error(self) -> str:
        """Why the last attempt failed; empty after a run that was done."""
        return self.message.error

    def refresh(self) -> PeriodicTask:
        """Looks at the task again.

        Raises NotFoundError if it was dropped.
        """
        self.message = self.lake.client.get_periodic_task(self.name)
        return self

    def run(self, *, request_id: str | None = None) -> PeriodicRun:
        """Runs the statement now, whatever the schedule and the condition say, also if the task is suspended.

            lake.periodic_task("shop.nightly").run()

        It runs in this process, unless a worker was faster; either way it returns when the run has ended. With a
        `request_id`, a UUID of yours, the same call again returns the same run, as long as the history has it.

        Raises InputError if the run fails, which workers try again as any other run; also if the statement is in
        Spark's SQL, and this process has no Spark.
        """
        engines = [pb.PERIODIC_ENGINE_DUCKDB]
        if self.refresh().message.engine == pb.PERIODIC_ENGINE_SPARK:
            spark_runs.check_session(self.lake)
            engines.append(pb.PERIODIC_ENGINE_SPARK)
        request = self.lake.client.ask_periodic_run(self.name, request_id=request_id)
        self.message, due_us, worker = request.task, request.due_time_us, attempts.worker_name()
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self.message.run_time_us != due_us:
                return next(run for run in self._runs() if run.due == _time(due_us))
            begun = self.lake.client.begin_periodic_run(self.message.task_id, worker, engines)
            if begun.due_time_us == due_us:
                attempts.run_attempt(self.lake, begun, worker)
            self.refresh()
            if self.message.run_time_us == due_us and self.message.error and not self.message.worker:
                raise InputError("PERIODIC_RUN_FAILED", f"{self.message.error}: workers try it again")
            time.sleep(LOOK_S)
        raise InputError("PERIODIC_RUN_FAILED", f"another worker still runs {self.name}: its history says how it ends")

    def history(self, limit: int | None = 100) -> list[PeriodicRun]:
        """Returns the runs that ended, newest first; the service keeps the last 100."""
        return list(islice(self._runs(), limit))

    def _runs(self) -> Iterator[PeriodicRun]:
        return map(_run, self.lake.client.list_periodic_runs(self.name))

    def suspend(self) -> None:
        """Ends the runs until `resume`; a run that is under way ends by itself."""
        self.message = self.lake.client.alter_periodic_task(self.name, suspended=True)

    def resume(self) -> None:
        """Lets it run again: once at once if runs were missed, then by its schedule."""
        self.message = self.lake.client.alter_periodic_task(self.name, suspended=False)

    def alter(self, *, schedule: str = "", comment: str | None = None) -> None:
        """Gives the task another schedule, which counts from now, or another comment.

        Raises InvalidError for a wrong schedule.
        """
        self.message = self.lake.client.alter_periodic_task(self.name, schedule=schedule, comment=comment)

    def drop(self) -> None:
        """Drops the task and its history; the rows that it wrote stay."""
        self.lake.client.drop_periodic_task(self.name)


class PeriodicTasks(Connection):
    """The periodic tasks of a lake."""

    def create_periodic_task(
        self,
        name: str,
        statement: str,
        *,
        schedule: str,
        when: str = "",
        engine: Engine = "",
        comment: str = "",
        if_not_exists: bool = False,
        or_replace: bool = False,
    ) -> PeriodicTask:
        """Creates a task: a statement that `laketx worker` runs by a schedule. Each due run commits once.

            lake.create_periodic_task(
                "shop.nightly", "DELETE FROM shop.carts WHERE day < current_date - 7", schedule="cron 30 3 * * *"
            )

        The statement is an INSERT, INSERT OVERWRITE, UPDATE, DELETE or MERGE in DuckDB's SQL over tables of the lake.
        The schedule is `every 5 minutes` or `cron` with five fields, in UTC. `when` skips runs without new data:
        `HAS_DATA('shop.orders')`. See docs/periodic-tasks.md.

        `engine="spark"`: the statement is in Spark's SQL, and workers with Spark run it. Without an engine, a statement
        that DuckDB refuses is in Spark's SQL if this program has a session and Spark accepts it.

        Raises InputError or InvalidError for a wrong statement, schedule or condition, NotFoundError for an unknown
        table, AlreadyExistsError if the name is taken.
        """
        if if_not_exists:
            try:
                return self.periodic_task(name)
            except NotFoundError:
                pass
        checked = self.check_periodic_statement(statement, engine)
        condition = definitions.parse_condition(when)
        conditions = [
            pb.HasData(table_id=self.client.get_table(table).table_id, cursor=cursor)
            for table, cursor in condition.tables
        ]
        task = pb.PeriodicTask(
            name=name,
            statement=statement,
            engine=checked.engine,
            operation=checked.operation,
            table_id=checked.target.table_id,
            source_ids=[each.table_id for each in checked.sources],
            schedule=schedule,
            conditions=conditions,
            all_conditions=condition.needs_all,
            comment=comment,
        )
        mode = catalog_pb2.CREATE_MODE_IF_NOT_EXISTS if if_not_exists else catalog_pb2.CREATE_MODE_UNSPECIFIED
        if or_replace:
            mode = catalog_pb2.CREATE_MODE_OR_REPLACE
        return PeriodicTask(self, self.client.put_periodic_task(task, mode=mode))

    def check_periodic_statement(self, statement: str, engine: Engine = "") -> CheckedStatement:
        """Returns which engine runs a statement, which table it changes, and which ones it reads.

        Raises InputError for a wrong statement or engine, NotFoundError for an unknown table.
        """
        if engine not in ("", *ENGINES):
            raise InputError("PERIODIC_ENGINE_INVALID", f"the engine is duckdb or spark, not {engine}")
        if engine == "spark":
            return spark_runs.check_spark_statement(self, statement)
        try:
            return runs.check_statement(self, statement)
        except InputError as refusal:
            if engine or not self.uses_spark:
                raise
            try:
                return spark_runs.check_spark_statement(self, statement)
            except InputError as other:
                why, also = (str(error).partition(": ")[2] for error in (refusal, other))
                raise InputError(refusal.reason, f"{why}; and in Spark's SQL: {also}") from other

    def periodic_task(self, name: str) -> PeriodicTask:
        """Returns the periodic task of that name.

        Raises NotFoundError for an unknown name.
        """
        return PeriodicTask(self, self.client.get_periodic_task(name))

    def periodic_tasks(self, namespace: str = "") -> list[str]:
        """Returns the names of all periodic tasks, or of those of a namespace, in order."""
        return [task.name for task in self.client.list_periodic_tasks(namespace)]


def _run(run: pb.PeriodicRun) -> PeriodicRun:
    due, begin = _time(run.due_time_us), _time(run.begin_time_us)
    assert due is not None
    assert begin is not None
    return PeriodicRun(
        due=due,
        outcome=pb.PeriodicOutcome.Name(run.outcome).removeprefix("PERIODIC_OUTCOME_").lower(),
        begin=begin,
        seconds=(run.end_time_us - run.begin_time_us) / 1_000_000,
        rows=run.rows,
        version=run.version,
        attempts=run.attempts,
        worker=run.worker,
        error=run.error,
        skips=run.skips,
        requested=run.requested,
        engine=engine_name(run.engine),
    )


def _time(time_us: int) -> datetime | None:
    return EPOCH + timedelta(microseconds=time_us) if time_us else None
