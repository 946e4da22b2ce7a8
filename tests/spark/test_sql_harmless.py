"""What is hidden in names, values, properties and comments: refused with a sentence, or kept as it is and harmless.

Characters that a statement file can't show are tried here; the others in tests/sql/harmless.test.
"""

from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from laketx import Lake
from tests.spark.sql import SqlReads

Names = Callable[[], str]
CONTROL = ["\x00", "\x01", "\x1b", "\x7f", "\x85", "\u2028", "\n", "\t"]
DIRECTION = ["\u200e", "\u200f", "\u202a", "\u202e", "\u2066", "\u2069", "\u061c"]
VALUES = [
    "'; DROP TABLE t; --",
    '"; DROP TABLE t; --',
    "`; DROP TABLE t; --",
    "\\'; DROP TABLE t; --",
    "../../../../etc/passwd",
    "/etc/passwd",
    "a/../b",
    "file:///etc/passwd",
    "a=b/c=d",
    "%2F%2e%2e%00%25",
    "two\nlines\r\nand\ttabs",
    "\x01\x1b[31m\x7f",
    "\u202egnirts\u2066",
    "\ufeff\u200b",
    " ",
    "",
    ".",
    "..",
    "*",
    "?",
    "{a,b}",
    "[a-z]",
    "$HOME $(id)",
    "__HIVE_DEFAULT_PARTITION__",
    "null",
    "-0",
    "x" * 300,
    "日本" * 60,
]


@pytest.fixture(scope="module")
def sql(lake: Lake) -> SqlReads:
    return SqlReads(lake)


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
def test_any_text_is_a_value_and_a_partition(
    lake: Lake, sql: SqlReads, new_name: Names, lake_folder: Path, keyed: bool
) -> None:
    table = lake.create_table(
        new_name(),
        "id int, part string not null, v string",
        primary_key=["id"] if keyed else [],
        partition_by=["part"],
        key_scope="partition" if keyed else None,
        buckets=1 if keyed else None,
        properties={"write.inline.rows": "0"},
    )
    name = f"{{lake}}.{table.name}"
    around = {one.name for one in lake_folder.iterdir()} | {Path(table.folder).name}
    rows = ", ".join(f"({at}, {literal(one)}, {literal(one)})" for at, one in enumerate(VALUES))
    sql(f"INSERT INTO {name} VALUES {rows}")
    wanted = {(at, one, one) for at, one in enumerate(VALUES)}
    assert set(sql.rows(f"SELECT id, part, v FROM {name}")) == wanted
    assert set(map(tuple, table.refresh().read().collect())) == wanted
    files = [Path(one[0]) for one in sql.rows(f"SELECT DISTINCT _file FROM {name}")]
    assert all(not one.is_absolute() and ".." not in one.parts for one in files)
    assert {one.name for one in lake_folder.iterdir()} == around
    asked = " UNION ALL ".join(
        f"SELECT {at}, id, part = v FROM {name} WHERE part = {literal(one)} AND v = {literal(one)}"
        for at, one in enumerate(VALUES)
    )
    assert set(sql.rows(asked)) == {(at, at, True) for at in range(len(VALUES))}
    sql(f"DELETE FROM {name} WHERE part IN ({', '.join(literal(one) for one in VALUES[:14])})")
    sql(f"UPDATE {name} SET v = concat(v, {literal(VALUES[3])}) WHERE part = {literal(VALUES[-1])}")
    last = len(VALUES) - 1
    left = {(at, VALUES[at] + (VALUES[3] if at == last else "")) for at in range(14, last + 1)}
    assert set(sql.rows(f"SELECT id, v FROM {name}")) == left


def names_with(odd: str, name: str) -> list[str]:
    """A statement for each place where a name has this character."""
    return [
        f"CREATE TABLE {{lake}}.tests.`x{odd}` (id int)",
        f"CREATE TABLE {{lake}}.{name}_c (`x{odd}` int)",
        f"CREATE TABLE {{lake}}.{name}_c (s struct<`x{odd}`: int>)",
        f"CREATE NAMESPACE {{lake}}.`x{odd}`",
        f"ALTER TABLE {{lake}}.{name} ADD COLUMN `x{odd}` int",
        f"ALTER TABLE {{lake}}.{name} RENAME COLUMN id TO `x{odd}`",
        f"ALTER TABLE {{lake}}.{name} RENAME TO tests.`x{odd}`",
        f"ALTER TABLE {{lake}}.{name} SET TBLPROPERTIES ('user.x{odd}' = '1')",
        f"CALL {{lake}}.system.create_tag('{name}', 'x{odd}')",
        f"CALL {{lake}}.system.create_cursor('{name}', 'x{odd}')",
    ]


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["each once", "all"])
def test_no_name_has_a_character_that_nobody_sees(lake: Lake, sql: SqlReads, new_name: Names, whole: bool) -> None:
    """Each character in one place, and each place with one character; in the long run, all with all."""
    name = new_name()
    lake.create_table(name, "id int")
    each = [names_with(odd, name) for odd in (*CONTROL, *DIRECTION)]
    statements = (
        list(chain.from_iterable(each)) if whole else [listed[at % len(listed)] for at, listed in enumerate(each)]
    )
    for statement in statements:
        with pytest.raises(PySparkException, match=r"NAME_|_INVALID|_NAME|PROPERTY_UNKNOWN"):
            sql(statement).collect()
    assert sql.rows(f"SELECT version, operation FROM {{lake}}.{name}.history") == [(0, "create")]


@pytest.mark.parametrize("odd", ["\x00", "\x1b[31m", "\u202e", "\n"], ids=ascii)
def test_comments_and_properties_with_characters_that_nobody_sees(
    lake: Lake, sql: SqlReads, new_name: Names, odd: str
) -> None:
    name = f"{{lake}}.{new_name()}"
    text = literal(odd)
    sql(f"CREATE TABLE {name} (id int COMMENT {text}) COMMENT {text} TBLPROPERTIES ('user.a' = {text})")
    assert sql.rows(f"DESCRIBE {name}")[0] == ("id", "int", odd)
    assert sql.rows(f"SHOW TBLPROPERTIES {name} ('user.a')") == [("user.a", odd)]
