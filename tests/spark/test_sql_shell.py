"""`laketx sql`: rows in every form, and the prompt on a real terminal."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from laketx import Lake
from laketx.commands import result_rows
from laketx.commands.sql import Shell
from metaservice.cli import command_line
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.output import Session
from tests.spark.processes import ROOT
from tests.spark.terminal import PROMPT, WAIT_S, on_a_terminal
from worker.periodic.scheduler import TaskScheduler
from worker.periodic.spark_runs import run_spark_statement
from worker.spark.catalog_jar import BRANCH_SETTING, CATALOG

ROWS = """
    SELECT * FROM VALUES (1, NULL, '', X'00FF', array(1, NULL), named_struct('p', 1)),
    (2, 2.50, 'a,"b"', X'', NULL, NULL) AS t (id, n, id, b, l, s)"""


def session(form: str = "table") -> Session:
    found = Session(lambda: 0, {})
    found.settings.output = form
    return found


def test_rows_as_a_table(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert result_rows.show(session(), spark.sql(ROWS), "table", None) == "2 rows"
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["ID", "N", "ID", "B", "L", "S"]
    assert lines[1] == ["1", "NULL", "X'00FF'", "[1,", "null]", "{1}"]
    assert lines[2] == ["2", "2.50", 'a,"b"', "X''", "NULL", "NULL"]


def test_rows_as_json(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert result_rows.show(session("json"), spark.sql(ROWS), "json", None) == "2 rows"
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {"id": 1, "n": None, "id_2": "", "b": "AP8=", "l": [1, None], "s": {"p": 1}}
    assert second["id_2"] == 'a,"b"'


def test_rows_as_csv(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert result_rows.show(session(), spark.sql(ROWS), "csv", None) == "2 rows"
    assert capsys.readouterr().out.splitlines() == [
        "id,n,id,b,l,s",
        '1,,"",X\'00FF\',"[1, null]",{1}',
        '2,2.50,"a,""b""",X\'\',,',
    ]


def test_a_limit_says_that_there_is_more(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    frame = spark.range(5).orderBy("id")
    assert result_rows.show(session(), frame, "table", 3) == "the first 3 rows; --limit 0 shows all"
    assert result_rows.show(session(), frame, "table", 5) == "5 rows"
    assert result_rows.show(session(), frame, "csv", 1) == "1 row"
    assert capsys.readouterr().out.split() == ["ID", *"012", "ID", *"01234", "id", "0"]


@pytest.mark.long
def test_the_prompt(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    command = [sys.executable, "-m", "metaservice.cli", "--folder", str(folder), "sql"]
    with on_a_terminal(*command, state=tmp_path / "state") as terminal:
        terminal.answers("CREATE NAMESPACE shop; CREATE TABLE shop.orders (id BIGINT);", "done in", "done in")
        terminal.answers("INSERT INTO shop.orders\rVALUES (41 + 1);", "done in")
        terminal.answers("SELECT * FROM shop.nope;", "TABLE_OR_VIEW_NOT_FOUND", "shop`.`nope`")
        terminal.wait_for(PROMPT)
        terminal.type("SELECT * FROM shop.ord\t")
        terminal.wait_for("ers")  # completed
        terminal.type(";\r")
        terminal.wait_for("42")
        terminal.wait_for("1 row in")
        terminal.wait_for(PROMPT)
        terminal.type("SELECT count(*) FROM range(100000000000) WHERE id % 7 = rand();\r")
        time.sleep(3)
        terminal.type("\x03")
        terminal.wait_for("cancelled")
        terminal.answers("exit")
        assert terminal.process.wait(WAIT_S) == 0
    assert "INSERT INTO shop.orders" in (tmp_path / "state" / "laketx" / "sql_history").read_text(encoding="utf-8")


@pytest.mark.long
def test_statements_of_a_file_in_a_pipe(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    script = tmp_path / "script.sql"
    script.write_text("SELECT 1 AS a; SELECT * FORM t; -- goes on\nSELECT 'x' AS b;", encoding="utf-8")
    command = [sys.executable, "-m", "metaservice.cli", "--folder", str(folder), "sql", "-f", str(script), "--csv"]
    command += ["--keep-going"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [*command, "--keep-going"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.stdout.splitlines() == ["a", "1", "b", "x"]
    assert "laketx: PARSE_SYNTAX_ERROR: Syntax error at or near" in done.stderr
    assert len(done.stderr.splitlines()) == 3  # and two times
    assert done.returncode == 1


def test_statements_of_materialized_views(
    lake: Lake, spark: SparkSession, new_name: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Python carries them out in the shell. Elsewhere Spark says what to write, and knows the schedules."""
    space = new_name().replace(".", "_")
    orders = lake.create_table(f"{space}.orders", "id bigint, day bigint")
    orders.append([{"id": 1, "day": 1}, {"id": 2, "day": 1}])
    catalog = lake.as_catalog()
    spark.catalog.setCurrentCatalog(catalog)
    spark.sql(f"USE {space}")
    shell = Shell(session("json"), spark, "json", None, lake)

    def answers(statement: str) -> list[dict[str, object]]:
        capsys.readouterr()
        shell.run(statement)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    query = f"SELECT day, count(*) AS n FROM {space}.orders GROUP BY day"
    assert answers(f"CREATE MATERIALIZED VIEW daily COMMENT 'of days' SCHEDULE EVERY 5 MINUTES AS {query}") == []
    assert answers(f"CREATE MATERIALIZED VIEW IF NOT EXISTS lake.{space}.daily AS {query}") == []
    assert answers("SELECT * FROM daily") == [{"day": 1, "n": 2}]
    orders.append([{"id": 3, "day": 1}])
    [done] = answers("REFRESH MATERIALIZED VIEW daily")
    assert (done["kind"], done["rows_added"]) == ("incremental", 1)
    assert "invertible" in str(answers("EXPLAIN MATERIALIZED VIEW daily"))
    spark.sql("ALTER MATERIALIZED VIEW daily SET SCHEDULE ON COMMIT")
    spark.sql("ALTER MATERIALIZED VIEW daily SUSPEND")
    [shown] = answers(f"SHOW MATERIALIZED VIEWS IN {space}")
    assert (shown["name"], shown["schedule"], shown["suspended"]) == (f"{space}.daily", "on commit", True)
    answers("ALTER MATERIALIZED VIEW daily RESUME")
    spark.sql(f"ALTER MATERIALIZED VIEW lake.{space}.daily SET TARGET LAG '1 minute'")
    [shown] = answers("SHOW MATERIALIZED VIEWS IN " + space)
    assert (shown["schedule"], shown["suspended"]) == ("target lag 1 minute", False)
    for statement, here in (
        (f"CREATE MATERIALIZED VIEW more AS {query}", "the same statement in laketx sql"),
        ("REFRESH MATERIALIZED VIEW daily", f"materialized_view('{space}.daily').refresh"),
        ("DROP MATERIALIZED VIEW daily", "the same statement in laketx sql"),
    ):
        with pytest.raises(PySparkException, match=f"(?s)STATEMENT_FOREIGN.*{re.escape(here)}"):
            spark.sql(statement).collect()
    assert answers("DROP MATERIALIZED VIEW daily") == []
    assert lake.materialized_views(space) == []
    spark.conf.set(BRANCH_SETTING, "etl")
    try:
        with pytest.raises(CommandError, match="VIEW_ON_BRANCH"):
            shell.run(f"CREATE MATERIALIZED VIEW more AS {query}")
    finally:
        spark.conf.unset(BRANCH_SETTING)
        spark.catalog.setCurrentCatalog("spark_catalog")
    with pytest.raises(CommandError, match="VIEW_STATEMENT_INVALID"):
        Shell(session("json"), spark, "json", None).run("SHOW MATERIALIZED VIEWS")


def test_the_shell_carries_out_statements_of_periodic_tasks(
    lake: Lake, spark: SparkSession, new_name: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    space = new_name().replace(".", "_")
    lake.create_table(f"{space}.orders", "id bigint, day bigint").append([{"id": 1, "day": 1}, {"id": 2, "day": 1}])
    lake.create_table(f"{space}.days", "day bigint, n bigint", primary_key=["day"])
    spark.catalog.setCurrentCatalog(lake.as_catalog())
    spark.sql(f"USE {space}")
    shell = Shell(session("json"), spark, "json", None, lake)

    def answers(statement: str) -> list[dict[str, object]]:
        capsys.readouterr()
        shell.run(statement)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    insert = f"INSERT INTO lake.{space}.days SELECT day, count(*) FROM {space}.orders GROUP BY day"
    try:
        when = f"WHEN HAS_DATA('{space}.orders')"
        assert answers(f"CREATE TASK totals SCHEDULE = '5 MINUTES' COMMENT = 'c' {when} AS {insert}") == []
        [run] = answers("EXECUTE TASK totals REQUEST ID '019f0000-0000-7000-8000-000000000000'")
        assert answers("EXECUTE TASK totals REQUEST ID '019f0000-0000-7000-8000-000000000000'") == [run]
        assert (run["outcome"], run["rows"], run["version"]) == ("done", 1, 1)
        assert answers("SELECT * FROM days") == [{"day": 1, "n": 2}]
        assert answers("ALTER TASK totals SUSPEND") == []
        [shown] = answers(f"SHOW TASKS IN {space}")
        assert (shown["name"], shown["schedule"], shown["suspended"]) == (f"{space}.totals", "every 5 minutes", True)
        assert answers("ALTER TASK totals SET SCHEDULE 'cron 0 9 * * *'") == answers("ALTER TASK totals RESUME") == []
        [shown] = answers("DESC TASK totals")
        assert (shown["schedule"], shown["statement"], shown["outcome"]) == ("cron 0 9 * * *", insert, "done")
        assert [run["outcome"] for run in answers("SHOW HISTORY FOR TASK totals")] == ["done"]
        with pytest.raises(CommandError, match="PERIODIC_STATEMENT_INVALID"):
            shell.run("CREATE OR REPLACE TASK totals SCHEDULE EVERY HOUR AS SELECT 1")
        assert answers(f"DROP TASK lake.{space}.totals") == answers("DROP TASK IF EXISTS totals") == []

        only_spark = f"FROM {space}.orders |> AGGREGATE count(*) AS n GROUP BY day"
        changed = (
            f"MERGE INTO {space}.days AS d USING ({only_spark}) AS s ON d.day = s.day WHEN MATCHED THEN UPDATE SET n ="
        )
        merge = f"{changed} s.n + 10 + year(now()) - year(current_date)"
        spark.conf.set("spark.sql.ansi.enabled", "false")  # the statement runs in another session
        assert answers(f"CREATE TASK more SCHEDULE EVERY HOUR ENGINE SPARK AS {merge}") == []
        [run] = answers("EXECUTE TASK more")
        assert (run["outcome"], run["engine"], run["rows"], run["version"]) == ("done", "spark", 1, 2)
        assert answers("SELECT * FROM days") == [{"day": 1, "n": 12}]
        table = lake.table(f"{space}.days")
        assert table.history()[0].message == f"periodic task {space}.more"
        task = lake.periodic_task(f"{space}.more")
        lake.client.ask_periodic_run(task.name)
        waits_for = [task.refresh().waits_for, *(shown["waits_for"] for shown in answers("SHOW TASKS"))]
        assert waits_for == ["a worker with Spark: laketx worker --spark"] * 2
        assert TaskScheduler(lake).run_once() == [], "a worker without Spark leaves it alone"
        begun = lake.client.begin_periodic_run(task.message.task_id, "w", [task.message.engine])
        runs = [run_spark_statement(lake, begun.task, begun.app_id, begun.due_time_us) for _ in range(2)]
        assert [(run.version, run.rows) for run in runs] == [(3, 1), (0, 0)], "two workers that have one run"
        total = "aggregate(sequence(1L, id), 0L, (sum, x) -> sum + x)"
        insert = f"INSERT OVERWRITE {space}.days SELECT day, {total} FROM {space}.orders WHERE FALSE"
        assert answers(f"CREATE OR REPLACE TASK more SCHEDULE EVERY HOUR AS {insert}") == []
        assert [task.run().rows, task.engine, answers("SELECT * FROM days")] == [0, "spark", []]
        for why, reached in {
            "code of its own": "SELECT 1, length(java_method('java.lang.System', 'getProperty', 'user.home'))",
            "runs a program": f"SELECT TRANSFORM (day, id) USING 'cat' AS (a BIGINT, b BIGINT) FROM {space}.orders",
            "it reads": "SELECT 1, length(value) FROM text.`/etc/hostname`",
            "it names": f"SELECT 1, version FROM {space}.orders.history",
            "UNRESOLVED_COLUMN": "SELECT 1, nothing",
        }.items():
            statement = f"INSERT INTO {space}.days {reached}"
            with pytest.raises(CommandError, match=f"(?s)PERIODIC_STATEMENT_INVALID.*{why}"):
                shell.run(f"CREATE OR REPLACE TASK more SCHEDULE EVERY HOUR ENGINE SPARK AS {statement}")
        task.drop()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
        spark.catalog.setCurrentCatalog("spark_catalog")


def test_periodic_tasks_of_spark_are_made_on_the_command_line(
    lake: Lake,
    lake_folder: Path,
    new_name: Callable[[], str],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = new_name()
    lake.create_table(name, "id bigint")

    def ended(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = command_line.run(["periodic", *words, "--folder", str(lake_folder)], dict(os.environ))
        return code, *capsys.readouterr()

    made = ("--schedule", "every hour", "--engine", "spark")
    code, _, refused = ended("create", f"{name}_task", f"INSERT INTO {name} SELECT nothing", *made)
    assert code == Exit.REFUSED
    assert refused.startswith("laketx: PERIODIC_STATEMENT_INVALID: [UNRESOLVED_COLUMN")
    assert [record for record in caplog.records if record.name == "SQLQueryContextLogger"] == []
    statement = f"INSERT INTO {name} SELECT count(*) FROM {name} |> SELECT *"
    code, said, _ = ended("create", f"{name}_task", statement, *made)
    assert (code, said.partition(", next run")[0]) == (0, f"created {name}_task: every 1 hour, by workers with Spark")
    code, said, _ = ended("run", f"{name}_task", "-o", "json")
    run = json.loads(said)
    assert (code, run["outcome"], run["engine"], run["rows"]) == (0, "done", "spark", 1)
    assert lake.table(name).to_arrow().to_pylist() == [{"id": 0}]


def test_a_thread_without_a_session_gets_a_separate_one(lake: Lake) -> None:
    """As the thread of a worker that runs periodic tasks."""
    with ThreadPoolExecutor(1) as pool:
        separate = pool.submit(lake.separate_session, {}).result()
    assert separate.catalog.currentCatalog() == CATALOG
    lake.create_table("separate.rows", "id bigint")
    assert [row.tableName for row in separate.sql("SHOW TABLES IN separate").collect()] == ["rows"]
