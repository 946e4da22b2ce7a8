"""The SQL of periodic tasks, parsed from text. The statement behind AS stays as it is.

CREATE [OR REPLACE] TASK [IF NOT EXISTS] shop.nightly [COMMENT '…'] [ENGINE DUCKDB | ENGINE SPARK]
  SCHEDULE '5 minutes' | SCHEDULE EVERY 5 MINUTES | SCHEDULE 'cron 30 3 * * *'
  [WHEN HAS_DATA('shop.orders') [AND | OR HAS_DATA('shop.items', 'cursor')]] AS INSERT …
ALTER TASK shop.nightly SUSPEND | RESUME | SET SCHEDULE … | SET COMMENT '…'
EXECUTE TASK shop.nightly [REQUEST ID '0193…']
DESCRIBE TASK shop.nightly
SHOW TASKS [IN shop]
SHOW HISTORY FOR TASK shop.nightly
DROP TASK [IF EXISTS] shop.nightly
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from worker.base.errors import InputError

_NAME: Final = r"(?P<name>(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
_TEXT: Final = r"(?:'(?:[^']|'')*'|\"[^\"]*\")"
_SCHEDULE: Final = rf"schedule\s*(?:=\s*)?(?P<schedule>{_TEXT}|every\s+(?:\d+\s+)?\w+)"
_ENGINE: Final = r"engine\s*(?:=\s*)?(?P<engine>duckdb|spark|'duckdb'|'spark')"
_COMMENT: Final = rf"comment\s*(?:=\s*)?(?P<comment>{_TEXT})"


Engine = Literal["", "duckdb", "spark"]
_ENGINES: Final[dict[str, Engine]] = {"": "", "duckdb": "duckdb", "spark": "spark"}


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.DOTALL)


_KINDS: Final = _pattern(
    r"(?:create(?:\s+or\s+replace)?|alter|drop|execute|describe|desc)\s+task\b|show\s+(?:tasks|history\s+for\s+task)\b"
)
_CREATE: Final = _pattern(rf"create\s+(?P<replaces>or\s+replace\s+)?task\s+(?P<keeps>if\s+not\s+exists\s+)?{_NAME}")
_CLAUSES: Final = tuple(
    _pattern(rf"\s*{clause}(?=\s|$)")
    for clause in (
        *(_SCHEDULE, _ENGINE, _COMMENT),
        r"when\s+(?P<condition>.+?)(?=\s+(?:as|schedule|comment|engine)\b)",
    )
)
_AS: Final = _pattern(r"\s*as\s+(?P<statement>.+)\Z")
_ALTER: Final = _pattern(
    rf"alter\s+task\s+{_NAME}\s+(?:(?P<action>suspend|resume)|set\s+{_SCHEDULE}|set\s+{_COMMENT})\s*\Z"
)
_DROP: Final = _pattern(rf"drop\s+task\s+(?P<gone>if\s+exists\s+)?{_NAME}\s*\Z")
_NAMED: Final = _pattern(rf"(?P<verb>describe\s+task|desc\s+task|show\s+history\s+for\s+task)\s+{_NAME}\s*\Z")
_EXECUTE: Final = _pattern(rf"execute\s+task\s+{_NAME}(?:\s+request\s+id\s+(?P<request>{_TEXT}))?\s*\Z")
_SHOW: Final = _pattern(r"show\s+tasks(?:\s+(?:in|from)\s+`?(?P<namespace>[\w.]+)`?)?\s*\Z")
_HAS_DATA: Final = _pattern(
    r"(?:system\$)?(?:stream_)?has_data\s*\(\s*'(?P<table>[^']+)'\s*(?:,\s*'(?P<cursor>[^']+)'\s*)?\)\Z"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """WHEN: pairs of a table and a cursor, of which one or all must have data."""

    tables: tuple[tuple[str, str], ...] = ()
    needs_all: bool = False


@dataclass(frozen=True, slots=True)
class CreateTask:
    """CREATE TASK."""

    name: str
    schedule: str
    statement: str
    condition: Condition = Condition()
    comment: str = ""
    if_not_exists: bool = False
    or_replace: bool = False
    engine: Engine = ""  # empty: DuckDB, or Spark for what only Spark accepts


@dataclass(frozen=True, slots=True)
class AlterTask:
    """ALTER TASK: an action, a schedule or a comment."""

    name: str
    action: str = ""
    schedule: str = ""
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class NamedTask:
    """DESCRIBE and SHOW HISTORY FOR a task."""

    verb: str  # describe or history
    name: str


@dataclass(frozen=True, slots=True)
class ExecuteTask:
    """EXECUTE TASK. A repeated request has the same id, and gets the same run."""

    name: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class DropTask:
    """DROP TASK."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowTasks:
    """SHOW TASKS."""

    namespace: str = ""


TaskDefinition = CreateTask | AlterTask | NamedTask | ExecuteTask | DropTask | ShowTasks


def parse_task_definition(text: str) -> TaskDefinition | None:
    """Return the statement; None if it is not about periodic tasks. Raises InputError for one that is wrong."""
    bare = text.strip().rstrip(";").rstrip()
    if _KINDS.match(bare) is None:
        return None
    if words := _CREATE.match(bare):
        return _created(bare, words)
    if words := _ALTER.match(bare):
        comment = words["comment"]
        return AlterTask(
            _name(words),
            (words["action"] or "").lower(),
            _unquoted(words["schedule"] or ""),
            None if comment is None else _unquoted(comment),
        )
    if words := _DROP.match(bare):
        return DropTask(_name(words), if_exists=words["gone"] is not None)
    if words := _EXECUTE.match(bare):
        return ExecuteTask(_name(words), None if words["request"] is None else _unquoted(words["request"]))
    if words := _NAMED.match(bare):
        verb = words["verb"].split()[0].lower()
        return NamedTask({"show": "history", "desc": "describe"}.get(verb, verb), _name(words))
    if words := _SHOW.match(bare):
        return ShowTasks(words["namespace"] or "")
    raise _invalid(bare)


def parse_condition(text: str) -> Condition:
    """Return the condition of a text such as `HAS_DATA('shop.orders') OR HAS_DATA('shop.items', 'etl')`."""
    if not text.strip():
        return Condition()
    words = {word.lower() for word in re.findall(r"\)\s+(and|or)\s", text, re.IGNORECASE)}
    parts = [_HAS_DATA.match(part.strip()) for part in re.split(r"(?<=\))\s+(?:and|or)\s+", text, flags=re.IGNORECASE)]
    tables = tuple((part["table"], part["cursor"] or "") for part in parts if part is not None)
    if len(tables) < len(parts) or len(words) > 1:
        raise InputError(
            "PERIODIC_CONDITION_INVALID",
            f"WHEN {' '.join(text.split())[:80]}: a condition is HAS_DATA('table') or HAS_DATA('table', 'cursor'), and "
            "several of them joined by AND, or by OR",
        )
    return Condition(tables, "and" in words)


def _created(text: str, head: re.Match[str]) -> CreateTask:
    at, given = head.end(), dict[str, str]()
    while (words := _AS.match(text, at)) is None:
        clause = next((match for match in (each.match(text, at) for each in _CLAUSES) if match), None)
        if clause is None or given.keys() & clause.groupdict().keys():
            raise _invalid(text[at:])
        given |= clause.groupdict()
        at = clause.end()
    if "schedule" not in given:
        raise InputError("PERIODIC_DEFINITION_INVALID", "a task needs a schedule: SCHEDULE EVERY 5 MINUTES")
    return CreateTask(
        _name(head),
        _unquoted(given["schedule"]),
        words["statement"],
        parse_condition(given.get("condition", "")),
        _unquoted(given.get("comment", "")),
        if_not_exists=head["keeps"] is not None,
        or_replace=head["replaces"] is not None,
        engine=_ENGINES[_unquoted(given.get("engine", "")).lower()],
    )


def _name(words: re.Match[str]) -> str:
    return words["name"].replace("`", "")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if text[:1] in ("'", '"') else text


def _invalid(text: str) -> InputError:
    shown = " ".join(text.split())[:80]
    return InputError(
        "PERIODIC_DEFINITION_INVALID", f"the statement is wrong at {shown!r}: see docs/periodic-tasks.md#statements"
    )
