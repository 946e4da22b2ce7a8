"""Definitions of materialized views: properties of a table. Three are set when it is created, and never change:

view.query      the query as it was written
view.canonical  the same with every name resolved and every star expanded
view.sources    {"shop.orders": {"id": "01936d…", "columns": {"day": 3}}}: the tables and columns that it reads
view.strict     whether no refresh may be full by choice; it never changes, too

The others can be altered:

view.schedule   when workers refresh it
view.suspended  whether they leave it alone
view.failure    {"time_us": 1795700000000000, "text": "…"}: why the last refresh failed
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid

QUERY: Final = "view.query"
CANONICAL: Final = "view.canonical"
SOURCES: Final = "view.sources"
DEFINITION: Final = (QUERY, CANONICAL, SOURCES)
STRICT: Final = "view.strict"
SCHEDULE: Final = "view.schedule"
SUSPENDED: Final = "view.suspended"
FAILURE: Final = "view.failure"
REFRESHES: Final = (STRICT, SCHEDULE, SUSPENDED, FAILURE)
SOURCES_MAX: Final = 32
_TABLE_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def is_query(text: str) -> bool:
    return not text or bool(text.strip())


def is_sources(text: str) -> bool:
    """Whether the text names sources by id, each once; empty: there are none."""
    if not text:
        return True
    try:
        sources = json.loads(text)
    except ValueError:
        return False
    if not isinstance(sources, dict) or not 0 < len(sources) <= SOURCES_MAX:
        return False
    entries = list(sources.values())
    ids = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    are_ids = all(isinstance(table_id, str) and bool(_TABLE_ID.match(table_id)) for table_id in ids)
    return are_ids and len(set(ids)) == len(entries)


def is_failure(text: str) -> bool:
    """Whether the text has a time and a reason; empty: nothing failed."""
    if not text:
        return True
    try:
        failure = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return (
        isinstance(failure, dict) and isinstance(failure.get("time_us"), int) and isinstance(failure.get("text"), str)
    )


def source_ids(properties: Mapping[str, str]) -> frozenset[str]:
    """The tables that a view reads; none for an ordinary table."""
    text = properties.get(SOURCES, "")
    return frozenset(entry["id"] for entry in json.loads(text).values()) if text else frozenset()


def is_view(properties: Mapping[str, str]) -> bool:
    """Whether a table with these properties is a materialized view."""
    return bool(properties.get(QUERY))


def check_definition(table_id: str, properties: Mapping[str, str]) -> None:
    """Refuses part of a definition, and a view that reads itself."""
    if len({bool(properties.get(name)) for name in DEFINITION}) > 1:
        raise invalid("VIEW_DEFINITION_INVALID")
    if table_id in source_ids(properties):
        raise invalid("VIEW_DEFINITION_INVALID", "a view can't read itself: name other tables")
    check_refreshes(properties)


def check_refreshes(properties: Mapping[str, str]) -> None:
    """Refuses settings of refreshes for a table that is no view."""
    names = [name for name in REFRESHES if name in properties]
    if names and not is_view(properties):
        raise invalid("VIEW_DEFINITION_INVALID", f"{names[0]} is a property of materialized views: leave it out")


def without_definition(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a table with the same rows that is no view."""
    return {name: value for name, value in properties.items() if name not in (*DEFINITION, *REFRESHES)}


def check_replaceable(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuses to make a view of a table, or a table of a view, under the same id."""
    if is_view(before) or is_view(after):
        raise MetaError(ErrorKind.BLOCKED, "VIEW_NOT_REPLACED")
