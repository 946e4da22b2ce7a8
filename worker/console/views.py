"""Materialized views: what each reads, how far it is behind, and how its last refresh went."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from starlette.responses import RedirectResponse, Response

from metaservice.cli.find import TABLE_ID
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.console.lineage_graph import LineageGraph, draw_lineage
from worker.console.rendering import path_text
from worker.console.visits import LIVE_SERVICE, PageError, Shown, TableNames, Visit, commit_time_us
from worker.views.definition import (
    CLASS,
    FAILURE,
    QUERY,
    READ,
    REASON,
    SUSPENDED,
    VECTOR,
    Definition,
    failure_of,
    is_suspended,
    schedule_of,
)

VIEWS_SHOWN: Final = 50
TABLES_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A table that a view reads, and its commits that the view lacks; None: the view was never refreshed."""

    table_id: str
    name: str  # empty: it is gone, or the caller may not see it
    behind: int | None


@dataclass(slots=True)
class ViewLine:
    """A view and its last refresh, for a row of the page."""

    table: catalog_pb2.Table
    sources: Sequence[SourceLine]
    schedule: str
    is_suspended: bool
    behind_us: int = 0  # since the oldest commit that it lacks
    version: int = 0
    refresh_us: int = 0
    kind: str = ""
    reason: str = ""
    read: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""

    @property
    def commits_behind(self) -> int:
        return sum(source.behind or 0 for source in self.sources)


def show(visit: Visit) -> Shown:
    listed = islice(visit.client.list_tables(), TABLES_MAX)
    tables = list(islice((table for table in listed if table.properties.get(QUERY)), VIEWS_SHOWN + 1))
    names = TableNames(visit.client)
    views = [line_of(visit, table, names) for table in tables[:VIEWS_SHOWN]]
    lineage = draw_lineage({view.table.name: [source.name for source in view.sources] for view in views})
    facts: dict[str, object] = {
        "views": views,
        "lineage": lineage if views else LineageGraph([], [], 0, 0),
        "has_more": len(tables) > VIEWS_SHOWN,
        "notice": visit.text("notice"),
        "noticed": names[visit.text("view")] if TABLE_ID.fullmatch(visit.text("view")) else "",
        "now_us": visit.now_us,
    }
    return Shown("views.html", facts, live=LIVE_SERVICE)


def line_of(visit: Visit, table: catalog_pb2.Table, names: TableNames) -> ViewLine:
    client, definition = visit.client, Definition.of(table)
    newest = read_pb2.VersionFilter(properties={VECTOR: ""})
    commit = next(client.list_versions(table.table_id, matching=newest, page_size=1), None)
    vector = json.loads(commit.properties[VECTOR]) if commit is not None else {}
    sources, lacks = [], []
    for source in definition.sources.values():
        parent = names.table(source.table_id)
        read_to = vector.get(source.table_id)
        if parent is None or read_to is None:
            sources.append(SourceLine(source.table_id, parent.name if parent is not None else "", None))
            continue
        sources.append(SourceLine(source.table_id, parent.name, max(parent.head_version - read_to, 0)))
        if parent.head_version > read_to:
            lacks.append(commit_time_us(client, source.table_id, read_to + 1) or parent.head_commit_time_us)
    line = ViewLine(table, sources, schedule_of(table).text, is_suspended(table))
    line.behind_us = max(visit.now_us - min(lacks), 0) if lacks else 0
    failure = failure_of(table)
    if commit is not None:
        line.version, line.refresh_us, line.kind = commit.version, commit.commit_time_us, commit.properties[CLASS]
        line.reason, line.read = commit.properties.get(REASON, ""), json.loads(commit.properties.get(READ, "{}"))
    if failure is not None and failure.time_us > line.refresh_us:
        line.failure = failure.text
    return line


def schedule(visit: Visit) -> Response:
    """Suspends or resumes the refreshes of a view by workers."""
    table, action = visit.table(), visit.form.get("action")
    if not table.properties.get(QUERY):
        raise PageError(404, "There is no such view", "It is a table, or it was dropped.")
    if action not in ("suspend", "resume"):
        raise PageError(400, "Choose to suspend or to resume", "Go back, and use the buttons.")
    properties = {SUSPENDED: "true"} if action == "suspend" else {SUSPENDED: "false", FAILURE: ""}
    visit.client.alter_table(table.table_id, common_pb2.Alteration(set_properties=properties))
    return RedirectResponse(path_text("/views"), 303)
