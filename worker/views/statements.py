"""The SQL statements of materialized views, parsed from text. The query of CREATE is DuckDB's SQL and stays as it is.

CREATE MATERIALIZED VIEW [IF NOT EXISTS] shop.daily [COMMENT '…'] [PARTITIONED BY (day)]
  [REFRESH INCREMENTAL [STRICT]] [SCHEDULE EVERY 5 MINUTES | ON COMMIT | DOWNSTREAM] [TARGET LAG '1 minute']
  [WITH NO DATA] AS SELECT …
REFRESH MATERIALIZED VIEW shop.daily [FULL | INCREMENTAL]
EXPLAIN MATERIALIZED VIEW shop.daily
ALTER MATERIALIZED VIEW shop.daily SUSPEND | RESUME | SET SCHEDULE … | SET TARGET LAG '…'
DROP MATERIALIZED VIEW [IF EXISTS] shop.daily
SHOW MATERIALIZED VIEWS [IN shop]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from worker.base.errors import InputError

_NAME: Final = r"(?P<name>(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
_SCHEDULE: Final = r"(?P<schedule>on\s+commit|every\s+(?:\d+\s+)?\w+|downstream|manual)"
_LAG: Final = r"target\s+lag\s+(?:'(?P<lag>[^']*)'|(?P<downstream>downstream))"
_KINDS: Final = re.compile(
    r"(?P<verb>create(?:\s+or\s+replace)?|refresh|explain|alter|drop|show)\s+materialized\s+views?\b", re.IGNORECASE
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.DOTALL)


_CREATE: Final = _pattern(rf"create\s+materialized\s+view\s+(?P<keeps>if\s+not\s+exists\s+)?{_NAME}(?=[\s(])")
_CLAUSES: Final = tuple(
    _pattern(rf"\s+{clause}(?=[\s(]|$)")
    for clause in (
        r"comment\s+'(?P<comment>(?:[^']|'')*)'",
        r"partitioned\s+by\s*\((?P<columns>[^()]*)\)",
        r"refresh\s+incremental(?P<strict>\s+strict)?",
        rf"schedule\s+(?:refresh\s+)?{_SCHEDULE}",
        _LAG,
        r"(?P<empty>with\s+no\s+data)",
    )
)
_AS: Final = _pattern(r"\s+as\s+(?P<query>.+)\Z")
_REFRESH: Final = _pattern(rf"refresh\s+materialized\s+view\s+{_NAME}(?:\s+(?P<kind>full|incremental))?\s*\Z")
_EXPLAIN: Final = _pattern(rf"explain\s+materialized\s+view\s+{_NAME}\s*\Z")
_ALTER: Final = _pattern(
    rf"alter\s+materialized\s+view\s+{_NAME}\s+"
    rf"(?:(?P<action>suspend|resume)|set\s+schedule\s+(?:refresh\s+)?{_SCHEDULE}|set\s+{_LAG})\s*\Z"
)
_DROP: Final = _pattern(rf"drop\s+materialized\s+view\s+(?P<gone>if\s+exists\s+)?{_NAME}\s*\Z")
_SHOW: Final = _pattern(r"show\s+materialized\s+views(?:\s+(?:in|from)\s+`?(?P<namespace>[\w.]+)`?)?\s*\Z")


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE MATERIALIZED VIEW."""

    name: str
    query: str
    if_not_exists: bool = False
    comment: str = ""
    partition_by: Sequence[str] = ()
    strict: bool = False
    schedule: str = ""
    target_lag: str = ""
    with_data: bool = True


@dataclass(frozen=True, slots=True)
class RefreshView:
    """REFRESH MATERIALIZED VIEW."""

    name: str
    full: bool = False
    incremental: bool = False


@dataclass(frozen=True, slots=True)
class ExplainView:
    """EXPLAIN MATERIALIZED VIEW."""

    name: str


@dataclass(frozen=True, slots=True)
class AlterView:
    """ALTER MATERIALIZED VIEW: an action, a schedule or a target lag."""

    name: str
    action: str = ""
    schedule: str = ""
    target_lag: str = ""


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP MATERIALIZED VIEW."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowViews:
    """SHOW MATERIALIZED VIEWS."""

    namespace: str = ""


Statement = CreateView | RefreshView | ExplainView | AlterView | DropView | ShowViews


def parse_view_statement(text: str) -> Statement | None:
    """Return the statement; None if it is not about materialized views. Raises InputError for one that is wrong."""
    bare = text.strip().rstrip(";").rstrip()
    kind = _KINDS.match(bare)
    if kind is None:
        return None
    verb = kind["verb"].lower().split()
    if verb[0] == "create":
        return _created(bare, is_replacing=len(verb) > 1)
    if verb[0] == "refresh" and (words := _REFRESH.match(bare)):
        mode = (words["kind"] or "").lower()
        return RefreshView(_name(words), full=mode == "full", incremental=mode == "incremental")
    if verb[0] == "explain" and (words := _EXPLAIN.match(bare)):
        return ExplainView(_name(words))
    if verb[0] == "alter" and (words := _ALTER.match(bare)):
        return AlterView(_name(words), (words["action"] or "").lower(), *_timing(words))
    if verb[0] == "drop" and (words := _DROP.match(bare)):
        return DropView(_name(words), if_exists=words["gone"] is not None)
    if verb[0] == "show" and (words := _SHOW.match(bare)):
        return ShowViews(words["namespace"] or "")
    raise _invalid(bare)


def _created(text: str, *, is_replacing: bool) -> CreateView:
    if is_replacing:
        raise InputError(
            "VIEW_STATEMENT_INVALID", "a materialized view is not replaced: DROP MATERIALIZED VIEW, and create it again"
        )
    head = _CREATE.match(text)
    if head is None:
        raise _invalid(text)
    at, clauses = head.end(), dict[str, str]()
    while (words := _AS.match(text, at)) is None:
        clause = next((match for match in (clause.match(text, at) for clause in _CLAUSES) if match), None)
        if clause is None or clauses.keys() & _given(clause).keys():
            raise _invalid(text[at:])
        clauses |= _given(clause)
        at = clause.end()
    return CreateView(
        _name(head),
        words["query"],
        if_not_exists=head["keeps"] is not None,
        comment=clauses.get("comment", "").replace("''", "'"),
        partition_by=tuple(name.strip().strip("`") for name in clauses.get("columns", "").split(",") if name.strip()),
        strict="strict" in clauses,
        schedule=clauses.get("schedule", clauses.get("downstream", "")),
        target_lag=clauses.get("lag", ""),
        with_data="empty" not in clauses,
    )


def _given(clause: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in clause.groupdict().items() if value is not None}


def _timing(words: re.Match[str]) -> tuple[str, str]:
    return words["schedule"] or words["downstream"] or "", words["lag"] or ""


def _name(words: re.Match[str]) -> str:
    return words["name"].replace("`", "")


def _invalid(text: str) -> InputError:
    shown = " ".join(text.split())[:80]
    return InputError("VIEW_STATEMENT_INVALID", f"the statement is wrong at {shown!r}: see docs/views.md#statements")
