"""The SQL of periodic tasks, and of the statements that they run, from text."""

from __future__ import annotations

import pytest

from worker.base.errors import InputError
from worker.periodic.definitions import (
    AlterTask,
    Condition,
    CreateTask,
    DropTask,
    ExecuteTask,
    NamedTask,
    ShowTasks,
    TaskDefinition,
    parse_condition,
    parse_task_definition,
)
from worker.periodic.spark_text import timed_text
from worker.periodic.statements import expression_text, parse_statement
from worker.views.engine import Engine

INSERT = "INSERT INTO shop.days SELECT day, 'as x' AS note FROM shop.orders"
LONG_FORM = f"""create or replace task if not exists `shop`.`a`
comment = 'it''s mine'
schedule = '5 minutes'
when stream_has_data('shop.orders') as
{INSERT}"""
WITH_CURSOR = f"""CREATE TASK a SCHEDULE = "USING CRON 0 9 * * * UTC"
WHEN SYSTEM$STREAM_HAS_DATA('a.b') AND HAS_DATA('c.d', 'etl') AS {INSERT}"""
DUE_US = 1_793_527_200_000_000  # 2026-11-01 10:00 UTC


@pytest.mark.parametrize(
    ("text", "definition"),
    [
        (f"CREATE TASK shop.a SCHEDULE EVERY 5 MINUTES AS {INSERT};", CreateTask("shop.a", "EVERY 5 MINUTES", INSERT)),
        (
            LONG_FORM,
            CreateTask(
                "shop.a",
                "5 minutes",
                INSERT,
                Condition((("shop.orders", ""),)),
                "it's mine",
                if_not_exists=True,
                or_replace=True,
            ),
        ),
        (
            WITH_CURSOR,
            CreateTask(
                "a", "USING CRON 0 9 * * * UTC", INSERT, Condition((("a.b", ""), ("c.d", "etl")), needs_all=True)
            ),
        ),
        (
            f"CREATE TASK a SCHEDULE EVERY DAY WHEN HAS_DATA('a.b') ENGINE = Spark AS {INSERT}",
            CreateTask("a", "EVERY DAY", INSERT, Condition((("a.b", ""),)), engine="spark"),
        ),
        ("ALTER TASK shop.a SUSPEND", AlterTask("shop.a", "suspend")),
        ("ALTER TASK shop.a RESUME;", AlterTask("shop.a", "resume")),
        ("ALTER TASK a SET SCHEDULE EVERY HOUR", AlterTask("a", schedule="EVERY HOUR")),
        ("ALTER TASK a SET SCHEDULE = 'cron 0 3 * * *'", AlterTask("a", schedule="cron 0 3 * * *")),
        ("ALTER TASK a SET COMMENT = 'x'", AlterTask("a", comment="x")),
        ("EXECUTE TASK shop.a", ExecuteTask("shop.a")),
        ("execute task `shop`.a request id '0193';", ExecuteTask("shop.a", "0193")),
        ("DESC TASK a", NamedTask("describe", "a")),
        ("SHOW HISTORY FOR TASK a", NamedTask("history", "a")),
        ("DROP TASK IF EXISTS a", DropTask("a", if_exists=True)),
        ("SHOW TASKS", ShowTasks()),
        ("SHOW TASKS IN shop", ShowTasks("shop")),
        ("SHOW TABLES", None),
        ("SELECT 'create task'", None),
    ],
)
def test_definitions(text: str, definition: TaskDefinition | None) -> None:
    assert parse_task_definition(text) == definition


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE TASK a AS {INSERT}",
        "CREATE TASK a SCHEDULE EVERY HOUR",
        f"CREATE TASK a SCHEDULE EVERY HOUR SCHEDULE EVERY HOUR AS {INSERT}",
        f"CREATE TASK a SCHEDULE EVERY HOUR WAREHOUSE = x AS {INSERT}",
        "ALTER TASK a RENAME TO b",
        "DROP TASK a CASCADE",
        "DESCRIBE TASK",
        "EXECUTE TASK a REQUEST '0193'",
        f"CREATE TASK a SCHEDULE EVERY HOUR WHEN 1 = 1 AS {INSERT}",
        f"CREATE TASK a SCHEDULE EVERY HOUR WHEN HAS_DATA('a') AND HAS_DATA('b') OR HAS_DATA('c') AS {INSERT}",
    ],
)
def test_wrong_definitions_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"PERIODIC_(DEFINITION|CONDITION)_INVALID"):
        parse_task_definition(text)


def test_no_condition_is_none() -> None:
    assert parse_condition("  ") == Condition()


@pytest.mark.parametrize(
    ("text", "verb", "target", "sources"),
    [
        (INSERT, "insert", "shop.days", ("shop.orders",)),
        ("INSERT INTO lake.shop.days (day) VALUES (DATE '2026-11-01')", "insert", "shop.days", ()),
        ("INSERT OVERWRITE shop.days SELECT * FROM Shop.Days", "overwrite", "shop.days", ("shop.days",)),
        (
            "WITH x AS (SELECT day FROM shop.a) INSERT INTO shop.days SELECT x.day, b.n FROM x JOIN shop.b ON true",
            "insert",
            "shop.days",
            ("shop.b", "shop.a"),
        ),
        ("UPDATE shop.days SET n = n + 1 WHERE day < current_date", "update", "shop.days", ()),
        ("DELETE FROM shop.days WHERE n = 1", "delete", "shop.days", ()),
        (
            "MERGE INTO shop.days AS d USING shop.a AS s ON d.day = s.day WHEN MATCHED THEN DELETE",
            "merge",
            "shop.days",
            ("shop.a",),
        ),
    ],
)
def test_statements(text: str, verb: str, target: str, sources: tuple[str, ...]) -> None:
    statement = parse_statement(text)
    assert (statement.verb, statement.target) == (verb, target)
    assert set(statement.sources) == set(sources)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT * FROM shop.orders", "a SELECT alone changes nothing"),
        (f"{INSERT}; DELETE FROM shop.days WHERE n = 1", "one statement, not 2"),
        ("", "one statement, not 0"),
        ("DROP TABLE shop.days", "can't run this"),
        ("CREATE TABLE a (b int)", "can't run this"),
        ("ALTER TABLE a ADD COLUMN b int", "can't run this"),
        ("TRUNCATE TABLE shop.days", "can't run this"),
        ("INSERT INTO", "can't be parsed"),
        ("DELETE FROM shop.days", "needs a WHERE"),
        ("DELETE FROM shop.days WHERE n IN (SELECT 1)", "use MERGE"),
        ("UPDATE shop.days SET n = (SELECT 1)", "use MERGE"),
        ("UPDATE shop.days SET n = o.n FROM shop.orders o WHERE true", "use MERGE"),
        ("INSERT INTO shop.days SELECT * FROM read_csv('x')", "no table of the lake"),
        ("INSERT INTO shop.days SELECT * FROM other.shop.orders", "another catalog"),
        ('INSERT INTO shop."days@etl" SELECT 1', "on a branch"),
        ("INSERT INTO shop.days SELECT ?", "no parameters"),
        ("INSERT INTO shop.days SELECT * FROM changes('shop.orders')", "write changes('table', 'cursor')"),
        ("INSERT INTO shop.days SELECT * FROM changes('a', 'c', 'log')", "write changes('table', 'cursor')"),
        ("INSERT INTO d SELECT * FROM changes('a', 'c') UNION SELECT * FROM changes('a', 'c', 'changes')", "one mode"),
        ("INSERT INTO shop.days PARTITION (day = n) SELECT 1", "columns and constants"),
        ("INSERT INTO shop.days PARTITION (day < 1) SELECT 1", "columns and constants"),
        ("INSERT INTO shop.days SELECT 1 ON CONFLICT DO NOTHING", "use MERGE"),
        ("MERGE INTO a USING a ON a.x = a.x WHEN MATCHED THEN DELETE", "different names"),
    ],
)
def test_what_a_task_can_not_run_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match="PERIODIC_STATEMENT_INVALID") as refusal:
        parse_statement(text)
    assert why in str(refusal.value)


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("n = 1 AND s LIKE 'a%'", "n = 1 AND s LIKE 'a%'"),
        ("t < now() - INTERVAL 7 DAY", "t < TIMESTAMP '2026-10-25 10:00:00.000000Z'"),
        ("d.day < current_date - 1 OR n IN (1, 2 + 3)", "day < DATE '2026-10-31' OR n IN (1, 5)"),
        ("x = 0.5 AND s = lower('A') || 'b' AND n > -3", "x = 0.5 AND s = 'ab' AND n > -3"),
        ("t < TIMESTAMP '2026-01-02 03:04:05' AND NOT b", "t < TIMESTAMP_NTZ '2026-01-02 03:04:05' AND NOT b"),
    ],
)
def test_constants_are_computed_at_the_due_time(condition: str, text: str) -> None:
    tree = parse_statement(f"DELETE FROM shop.days AS d WHERE {condition}").condition
    assert tree is not None
    with Engine() as engine:
        found = expression_text(tree, DUE_US, lambda each: engine.run(f"SELECT {each} AS v").column("v").to_pylist()[0])
    assert found == text


def test_now_in_a_query_is_the_due_time() -> None:
    statement = parse_statement("INSERT INTO a SELECT now() AS t, current_date AS d, CURRENT_TIMESTAMP AS u")
    with Engine() as engine:
        [row] = engine.run(statement.query_text(DUE_US)).to_pylist()
    assert [f"{row[name]:%Y-%m-%d %H:%M}" for name in "tdu"] == [
        "2026-11-01 10:00",
        "2026-11-01 00:00",
        "2026-11-01 10:00",
    ]


@pytest.mark.parametrize(
    ("text", "timed"),
    [
        ("SELECT now( ), current_timestamp", "SELECT TIMESTAMP_LTZ '{0}Z', TIMESTAMP_LTZ '{0}Z'"),
        ("WHERE day > current_date() - 7", "WHERE day > DATE '2026-11-01' - 7"),
        ("curdate()+localtimestamp", "DATE '2026-11-01'+TIMESTAMP_NTZ '{0}'"),
        ("unix_timestamp(), unix_timestamp(at)", "1793527200L, unix_timestamp(at)"),
        ("x -> x > NOW() -- now()", "x -> x > TIMESTAMP_LTZ '{0}Z' -- now()"),
        ("'now()', t.now, `current_date`, now", "'now()', t.now, `current_date`, now"),
        ("current_date AS current_date, t.current_date", "DATE '2026-11-01' AS current_date, t.current_date"),
        ("/* now() */ r'now()' \"now()\"", "/* now() */ r'now()' \"now()\""),
    ],
)
def test_the_due_time_stands_for_now_in_sparks_sql(text: str, timed: str) -> None:
    assert timed_text(text, DUE_US) == timed.format("2026-11-01 10:00:00.000000")


def test_a_text_without_an_end_is_refused() -> None:
    with pytest.raises(InputError, match="PERIODIC_STATEMENT_INVALID"):
        timed_text("SELECT 'now()", DUE_US)
