"""Bugs of periodic tasks."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

RULES: Final = ("tests/unit/test_periodic_tasks.py",)
HISTORIES: Final = ("tests/periodic/test_runs.py", "-k", "random_histories")
SPARK_WAITS: Final = ("tests/periodic/test_runs.py", "-k", "waits_for_a_worker")

BUGS: Final = (
    Bug(
        "a task that replaces the partitions of its rows replaces the table",
        "worker/periodic/runs.py",
        (('"dynamic" if statement.partition else "all"', '"all"'),),
        ("tests/periodic/test_runs.py", "-k", "replaces_the_partitions"),
    ),
    Bug(
        "the commit of a run does not say when it was due",
        "worker/periodic/runs.py",
        (("version=due_us)", "version=lake.client.get_table(statement.target).head_version)"),),
        HISTORIES,
    ),
    Bug(
        "a repeated request for a run that has ended asks for another one",
        "metaservice/service/table/periodic_tasks.py",
        (("(run.due_us for run in self._runs(task, 0) if request_id in run.request_ids)", "iter(())"),),
        ("tests/periodic/test_runs.py", "-k", "repeated_request"),
    ),
    Bug(
        "a periodic task runs whatever its condition says",
        "metaservice/core/periodic_tasks.py",
        (("        if not self.conditions or self.is_requested:", "        if True:"),),
        RULES,
    ),
    Bug(
        "a suspended periodic task runs",
        "metaservice/core/periodic_tasks.py",
        (("        if self.is_suspended and not self.is_requested:", "        if False:"),),
        RULES,
    ),
    Bug(
        "a run whose worker vanished after the commit is run again under a later due time",
        "metaservice/service/table/periodic_tasks.py",
        (("        if not task.run_us or task.table_id not in", "        if task.run_us or task.table_id not in"),),
        HISTORIES,
    ),
    Bug(
        "a worker without Spark is handed a run in Spark's SQL",
        "metaservice/service/table/periodic_tasks.py",
        (("        if task.engine not in engines:", "        if False:"),),
        SPARK_WAITS,
    ),
    Bug(
        "a task that has nothing to run for is said to wait for a worker with Spark",
        "metaservice/service/table/periodic_tasks.py",
        (("return bool(task.run_us) or task.holds(self._data_versions(task), self._cursors(task))", "return True"),),
        SPARK_WAITS,
    ),
    Bug(
        "a column that is named like a function of the time is the due time in Spark's SQL",
        "worker/periodic/spark_text.py",
        (("(TokenType.DOT, TokenType.ALIAS)", "(TokenType.ALIAS,)"),),
        ("tests/periodic/test_statements.py", "-k", "sparks_sql"),
    ),
    Bug(
        "a failed run of a periodic task is told by each process anew",
        "metaservice/cli/event_feed.py",
        (("                self._state.runs[task.task_id] = run.end_time_us\n", ""),),
        ("tests/periodic/test_failure_events.py",),
    ),
    Bug(
        "OpenLineage is told that a failed refresh has succeeded",
        "metaservice/cli/event_feed.py",
        (("            elif error:\n", "            elif False:\n"),),
        ("tests/periodic/test_failure_events.py",),
    ),
)
