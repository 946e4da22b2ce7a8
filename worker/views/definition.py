"""The definition of a materialized view, as the properties of its table have it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metaservice.shared.view_schedules import ViewSchedule, parse_view_schedule
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError

QUERY: Final = "view.query"  # as it was written
CANONICAL: Final = "view.canonical"  # with every name resolved and every star expanded
SOURCES: Final = "view.sources"
VECTOR: Final = "view.vector"  # of a refresh's commit: the versions of the sources by their ids
CLASS: Final = "view.class"
REASON: Final = "view.reason"
READ: Final = "view.read"  # rows and bytes of its sources that a refresh read, changed rows, and its seconds
TOTALS: Final = "view.totals"  # those of its aggregates over all rows, if it has any
WORKER: Final = "view.worker"  # the process that refreshes by schedule
SCHEDULE: Final = "view.schedule"
SUSPENDED: Final = "view.suspended"
STRICT: Final = "view.strict"
FAILURE: Final = "view.failure"
SOURCES_MAX: Final = 32
TEXT_CHARS_MAX: Final = 65_536  # of each part; the service takes no more, too


@dataclass(frozen=True, slots=True)
class ViewSource:
    """A table that a view reads. `columns` are the names in the query, with the ids that renames don't change."""

    name: str
    table_id: str
    columns: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a worker could not refresh a view, and when."""

    time_us: int
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """What a view is; it never changes."""

    view_id: str
    query: str
    canonical: str
    sources: Mapping[str, ViewSource]
    is_strict: bool = False

    @classmethod
    def of(cls, meta: catalog_pb2.Table) -> Definition:
        """Return the definition in a table's properties. Raises InputError if the table is no view."""
        if not meta.properties.get(QUERY):
            raise InputError("VIEW_NOT_MATERIALIZED", f"{meta.name} is a table, not a materialized view")
        stored = json.loads(meta.properties[SOURCES])
        sources = {name: ViewSource(name, entry["id"], entry["columns"]) for name, entry in stored.items()}
        is_strict = meta.properties.get(STRICT) == "true"
        return cls(meta.table_id, meta.properties[QUERY], meta.properties[CANONICAL], sources, is_strict)

    @property
    def cursor(self) -> str:
        """The name of the view's cursor on each source."""
        return f"view-{self.view_id}"


def schedule_of(meta: catalog_pb2.Table) -> ViewSchedule:
    """Return the schedule of a view."""
    return parse_view_schedule(meta.properties.get(SCHEDULE, ""))


def schedule_properties(schedule: str, target_lag: str) -> dict[str, str]:
    """Return the property of a schedule; none if the view is refreshed by hand. Raises InputError."""
    if schedule and target_lag:
        raise InputError("VIEW_SCHEDULE_INVALID", "a view has a schedule or a target lag: leave one of them out")
    text = f"target lag {target_lag}" if target_lag else schedule
    try:
        stored = parse_view_schedule(text).text
    except ValueError:
        raise InputError(
            "VIEW_SCHEDULE_INVALID",
            f"{text!r} is no schedule: use ON COMMIT, EVERY 5 MINUTES, DOWNSTREAM or MANUAL, or a target lag such as "
            "1 minute",
        ) from None
    return {SCHEDULE: stored} if stored else {}


def is_suspended(meta: catalog_pb2.Table) -> bool:
    """Return whether workers leave a view alone."""
    return meta.properties.get(SUSPENDED) == "true"


def failure_of(meta: catalog_pb2.Table) -> Failure | None:
    """Return the last failure of a refresh by schedule; a later refresh may have succeeded."""
    stored = meta.properties.get(FAILURE, "")
    return Failure(**{name: json.loads(stored)[name] for name in ("time_us", "text")}) if stored else None


def failure_text(failure: Failure) -> str:
    """Return a failure as the property has it."""
    return json.dumps({"time_us": failure.time_us, "text": failure.text})


def properties_of(
    query: str, canonical: str, sources: Mapping[str, ViewSource], *, strict: bool = False
) -> dict[str, str]:
    """Return the properties of a new view's table. Raises InputError if they are too large."""
    if len(sources) > SOURCES_MAX:
        raise InputError("VIEW_QUERY_INVALID", f"a view reads at most {SOURCES_MAX} tables, not {len(sources)}")
    stored = {name: {"id": source.table_id, "columns": dict(source.columns)} for name, source in sources.items()}
    properties = {QUERY: query, CANONICAL: canonical, SOURCES: json.dumps(stored, separators=(",", ":"))}
    for text in properties.values():
        if len(text) > TEXT_CHARS_MAX:
            raise InputError(
                "VIEW_QUERY_INVALID",
                f"the query with every name resolved, or the list of its columns, has {len(text)} characters; at most "
                f"{TEXT_CHARS_MAX} are allowed",
            )
    return {**properties, STRICT: "true"} if strict else properties
