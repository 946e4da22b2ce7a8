"""The timeline of a table: logical commits, which have a time version, and the work of table services between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metaservice.cli.values import to_second
from protos.laketx.v1 import common_pb2, read_pb2
from worker.console.charts import WIDTH, Mark, Tick, scaled
from worker.console.history_strip import strip_of, tick_text
from worker.console.visits import PageError, Shown, Visit, live_of, taken

PAGE_SIZE: Final = 100
LOGICAL_Y: Final = 34
SERVICE_Y: Final = 84
MARK_SIZE: Final = 6
MARGIN: Final = 14
TICKS: Final = 5
SECOND_US: Final = 1_000_000
LAST: Final = {"minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_592_000}  # in seconds
SERVICES: Final = (
    common_pb2.OPERATION_MINOR_COMPACT,
    common_pb2.OPERATION_MAJOR_COMPACT,
    common_pb2.OPERATION_CLUSTER,
)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The versions of a page as marks on two lanes over one axis of time."""

    marks: Sequence[Mark]
    ticks: Sequence[Tick]
    logical: int
    services: int


def show(visit: Visit) -> Shown:
    """Show a page of versions, newest first. Pages continue by version, so that new commits move nothing."""
    table, before, after = visit.table(), visit.number("before"), visit.number("after")
    since_us, until_us = times_of(visit)
    kind = visit.text("kind")
    matching = read_pb2.VersionFilter(logical_only=kind == "logical", from_time_us=since_us, to_time_us=until_us)
    if kind == "services":
        matching.operations.extend(SERVICES)
    if before is not None:
        matching.to_version = max(before - 1, 0)
    elif after is not None:
        matching.to_version = after + PAGE_SIZE
    listed = visit.client.list_versions(table.table_id, matching=matching, page_size=PAGE_SIZE + 1)
    versions, has_older = taken(listed, PAGE_SIZE)
    is_newest = before is None and after is None
    facts = {
        "table": table,
        "versions": versions,
        "lanes": lanes_of(table.table_id, versions),
        "strip": strip_of(visit.client, table, since_us, until_us) if is_newest else None,
        "range": {name: visit.text(name) for name in ("last", "since", "until")},
        "lengths": list(LAST),
        "older": versions[-1].version if versions and has_older else None,
        "newer": versions[0].version if versions and not is_newest else None,
        "kind": kind if kind in ("logical", "services") else "",
        "before": before,
        "services": SERVICES,
        "tab": "timeline",
        "now_us": visit.now_us,
    }
    return Shown("timeline.html", facts, live=live_of(table) if is_newest else "")


def times_of(visit: Visit) -> tuple[int | None, int | None]:
    """The range of time that is asked for; None: without an end."""
    last, since_us, until_us = visit.text("last"), visit.number("since"), visit.number("until")
    if last and last not in LAST:
        raise PageError(400, f"There is no range of one {last}", f"It is one of {', '.join(LAST)}.")
    if since_us is not None and until_us is not None and since_us > until_us:
        raise PageError(400, "The range ends before it begins", "Correct the address, or go back.")
    if last:
        return max(visit.now_us - LAST[last] * SECOND_US, 0), None
    return since_us, until_us


def lanes_of(table_id: str, versions: Sequence[read_pb2.Version]) -> Lanes:
    if not versions:
        return Lanes([], [], 0, 0)
    first, last = versions[-1].commit_time_us, versions[0].commit_time_us
    marks = []
    for each in reversed(versions):
        is_logical = each.HasField("time_version_us")
        kind = "logical" if is_logical else "service" if each.operation in SERVICES else "altered"
        x = MARGIN + scaled(each.commit_time_us, first, last, WIDTH - 2 * MARGIN)
        word = common_pb2.Operation.Name(each.operation).removeprefix("OPERATION_").replace("_", " ").lower()
        text = f"version {each.version}, {word}, {to_second(each.commit_time_us)} UTC"
        link = f"/tables/{table_id}/versions/{each.version}"
        marks.append(Mark(x, LOGICAL_Y if is_logical else SERVICE_Y, MARK_SIZE, kind, text, link))
    span = last - first
    ticks = [
        Tick(MARGIN + (WIDTH - 2 * MARGIN) * at / (TICKS - 1), tick_text(first + span * at // (TICKS - 1), span))
        for at in range(TICKS if span else 1)
    ]
    kinds = Counter(mark.kind for mark in marks)
    return Lanes(marks, ticks, kinds["logical"], kinds["service"])
