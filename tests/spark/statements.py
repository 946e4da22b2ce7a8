"""Statement tests as text, tests/sql/*.test, in the style of sqllogictest: statements, and what they answer.

    # A comment. Records are parted by empty lines.

    statement ok
    CREATE TABLE t (id BIGINT, name STRING{key})

    statement error TABLE_OR_VIEW_ALREADY_EXISTS
    CREATE TABLE t (id BIGINT)

    query
    SELECT id, name FROM t ORDER BY id
    ----
    1 | a
    2 | NULL

A file is played in a session and a namespace of its own, `lake.<the file's name>_<kind>`, which is the current one. An
error is a regular expression that the message contains. Rows are compared in their order; `query sorted` sorts both
sides. A cell is shown as Python shows it; NULL is NULL, an empty text is (empty), and a line break is \\n.

A file with `{key}` in it is played for two kinds of table: once with nothing in its place (append), once with a primary
key on `id` (keyed). A record for one kind alone has a line `only append` or `only keyed` before it. `{kind}` is the
kind's word, and `{space}` the namespace; `{scope}` among properties lets the key lack the partition columns. A record
that `make test-long` alone plays has a line `long` before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

FOLDER: Final = Path(__file__).resolve().parent.parent / "sql"
KEYS: Final = {"append": "", "keyed": ", PRIMARY KEY (id)"}
SCOPES: Final = {"append": "", "keyed": ", 'key.scope' = 'partition'"}
ARROW: Final = "----"
EMPTY: Final = "(empty)"


class Answer(Protocol):
    """Rows, when they are asked for."""

    def collect(self) -> Sequence[tuple[Any, ...]]: ...


class Door(Protocol):
    """What takes statements: a session of Spark, or a connection. A refusal is a PySparkException."""

    def sql(self, statement: str, /) -> Answer: ...


@dataclass(frozen=True)
class Record:
    """One statement. `expected` is None for `statement ok`, a regular expression, or the rows."""

    line: int
    sql: str
    expected: str | list[str] | None
    sorted: bool = False
    kind: str = ""
    is_long: bool = False


def files() -> list[tuple[Path, str]]:
    """Each with the kind of table to play it for."""
    found = []
    for path in sorted(FOLDER.glob("*.test")):
        kinds = list(KEYS) if "{key}" in path.read_text(encoding="utf-8") else ["append"]
        found += [(path, kind) for kind in kinds]
    return found


def records(text: str) -> Iterator[Record]:
    at = 1
    for block in re.split(r"\n[ \t]*\n", text):
        lines = block.splitlines()
        first, at = at, at + len(lines) + 1
        while lines and (lines[0].startswith("#") or not lines[0].strip()):
            del lines[0]
            first += 1
        if lines:
            yield _record(first, lines)


def _record(line: int, lines: list[str]) -> Record:
    kind, is_long = "", lines[0] == "long"
    if is_long:
        del lines[0]
        line += 1
    if lines[0].startswith("only "):
        kind = lines.pop(0).split()[1]
        line += 1
    head, *rest = lines
    words = head.split(maxsplit=2)
    match words[:2]:
        case ["statement", "ok"]:
            return Record(line, "\n".join(rest), None, kind=kind, is_long=is_long)
        case ["statement", "error"]:
            return Record(line, "\n".join(rest), words[2], kind=kind, is_long=is_long)
        case ["query"] | ["query", "sorted"]:
            cut = rest.index(ARROW)
            rows, is_sorted = rest[cut + 1 :], len(words) == 2
            return Record(line, "\n".join(rest[:cut]), rows, sorted=is_sorted, kind=kind, is_long=is_long)
        case _:
            raise ValueError(f"line {line}: {head!r} begins no record")


def play(session: Door, path: Path, kind: str, *, whole: bool = True) -> list[str]:
    """What went otherwise than expected; not `whole`: long records are left out."""
    space = f"{path.stem}_{kind}"
    for statement in (f"CREATE NAMESPACE IF NOT EXISTS lake.{space}", f"USE lake.{space}"):
        session.sql(statement)
    text = path.read_text(encoding="utf-8")
    for name, value in {"key": KEYS[kind], "scope": SCOPES[kind], "kind": kind, "space": space}.items():
        text = text.replace(f"{{{name}}}", value)
    return [
        f"{path.name}:{record.line} ({kind})\n{record.sql}\n{failure}"
        for record in records(text)
        if record.kind in ("", kind) and (whole or not record.is_long) and (failure := _difference(session, record))
    ]


def _difference(session: Door, record: Record) -> str:
    try:
        found = [_shown(row) for row in session.sql(record.sql).collect()]
    except PySparkException as error:
        said = str(error)
        if isinstance(record.expected, str):
            return "" if re.search(record.expected, said) else f"expected an error with {record.expected}, not:\n{said}"
        return f"failed: {said}"
    except Py4JJavaError as error:
        return f"failed with a page of Java: {error.java_exception.toString()}"
    match record.expected:
        case None:
            return ""
        case str(wanted):
            return f"expected an error with {wanted}, and got\n" + "\n".join(found)
        case wanted:
            is_same = sorted(found) == sorted(wanted) if record.sorted else found == wanted
            return "" if is_same else "expected\n" + "\n".join(wanted) + "\nand got\n" + "\n".join(found)


def _shown(row: tuple[Any, ...]) -> str:
    return " | ".join(map(_cell, row))


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value).replace("\n", "\\n") or EMPTY
