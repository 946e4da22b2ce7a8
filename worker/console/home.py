"""The first page: is the lake well, what happened in the last hour, and what waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from metaservice.cli.values import to_second
from metaservice.client import MetaClient
from protos.laketx.v1 import admin_pb2, catalog_pb2, maintenance_pb2, transaction_pb2
from worker.console.charts import stacked_bars
from worker.console.checks import Work, check_all, score
from worker.console.consumers import kind_of
from worker.console.visits import LIVE_SERVICE, Shown, TableNames, Visit, allowed, taken

TRANSACTIONS_MAX: Final = 2_000
PAGE_SIZE: Final = 500
MINUTES: Final = 60
MINUTE_US: Final = 60_000_000
CURSORS_MAX: Final = 200
BEHIND_MAX: Final = 10
BRANCHES_MAX: Final = 100
PURGE_MAX: Final = 100
STANDBY: Final = "standby"
COMMITTED, LOST = transaction_pb2.TRANSACTION_STATE_COMMITTED, transaction_pb2.TRANSACTION_STATE_CONFLICT
OPEN: Final = transaction_pb2.TRANSACTION_STATE_OPEN


@dataclass(frozen=True, slots=True)
class LastHour:
    """Transactions that ended in each minute of the last hour."""

    committed: Sequence[int]
    lost: Sequence[int]
    is_whole: bool  # False: there were more than are looked at

    def columns(self, now_us: int) -> list[tuple[str, list[tuple[str, int]]]]:
        first = now_us // MINUTE_US - MINUTES + 1
        return [
            (to_second((first + at) * MINUTE_US)[11:16], [("committed", done), ("lost", lost)])
            for at, (done, lost) in enumerate(zip(self.committed, self.lost, strict=True))
        ]


@dataclass(frozen=True, slots=True)
class CursorBehind:
    """A cursor, and how many versions it has not read."""

    table: catalog_pb2.Table
    name: str
    behind: int
    is_view: bool  # it is the cursor of a materialized view


def last_hour(transactions: Sequence[transaction_pb2.Transaction], now_us: int, *, is_whole: bool) -> LastHour:
    """The counts by minute, oldest first; the last minute is the one of now."""
    first = now_us // MINUTE_US - MINUTES + 1
    counts: Counter[tuple[int, int]] = Counter()
    for each in transactions:
        counts[each.state, each.end_time_us // MINUTE_US - first] += 1
    committed, lost = ([counts[state, at] for at in range(MINUTES)] for state in (COMMITTED, LOST))
    return LastHour(committed, lost, is_whole)


def show(visit: Visit) -> Shown:
    client, now_us = visit.client, visit.now_us
    status = client.get_status()
    if status.role == STANDBY:
        return Shown("standby.html", {"status": status})
    newest, has_more = taken(client.list_transactions(page_size=PAGE_SIZE), TRANSACTIONS_MAX)
    since_us = now_us - MINUTES * MINUTE_US
    is_whole = not has_more or newest[-1].begin_time_us < since_us
    ended = [each for each in newest if each.state not in (OPEN, 0)]
    tasks = next(client.list_task_pages(page_size=1))
    idle_ms, behind = cursors_behind(client)
    cursors = [each for each in behind if not each.is_view]
    checks = check_all(status, work_of(client, ended, tasks, idle_ms), now_us)
    hour = last_hour(ended, now_us, is_whole=is_whole)
    bars, top = stacked_bars(hour.columns(now_us))
    branches, more_branches = taken(client.list_branches(), BRANCHES_MAX)
    purgeable = allowed(islice(client.list_purgeable_tables(), PURGE_MAX + 1))
    facts = {
        "status": status,
        "score": score(checks),
        "checks": checks,
        "alarms": [check for check in checks if not check.is_good],
        "bars": bars,
        "top": top,
        "columns": hour.columns(now_us),
        "committed": sum(hour.committed),
        "lost": sum(hour.lost),
        "is_whole": hour.is_whole,
        "tasks": tasks,
        "behind": cursors[:BEHIND_MAX],
        "behind_count": len(cursors),
        "views_behind": len({each.name for each in behind if each.is_view}),
        "branch_count": len(branches),
        "more_branches": more_branches,
        "purge_count": None if purgeable is None else len(purgeable),
        "now_us": now_us,
    }
    return Shown("home.html", facts, live=LIVE_SERVICE)


def show_runbooks(_visit: Visit) -> Shown:
    """The runbooks of all alarms, for who has no other copy at hand."""
    return Shown("runbooks.html", {})


def work_of(
    client: MetaClient,
    ended: Sequence[transaction_pb2.Transaction],
    tasks: maintenance_pb2.ListTasksResponse,
    idle_ms: Sequence[int],
) -> Work:
    pin = next(client.list_pins(page_size=1), admin_pb2.Pin())
    lost = sum(each.state == LOST for each in ended)
    return Work(
        failed_tasks=tasks.failed,
        oldest_pin_ms=pin.age_ms,
        oldest_cursor_ms=max(idle_ms, default=0),
        ended=len(ended),
        lost=lost,
    )


def cursors_behind(client: MetaClient) -> tuple[list[int], list[CursorBehind]]:
    """How long each cursor was unused, and those that have not read everything, the farthest behind first."""
    cursors = [each for each in islice(client.list_cursors(), CURSORS_MAX) if not each.expired]
    tables = TableNames(client)
    behind = []
    for each in cursors:
        table = tables.table(each.table_id)
        if table is not None and table.head_version > each.version:
            is_view = kind_of(each) == "view"
            behind.append(CursorBehind(table, each.name, table.head_version - each.version, is_view))
    behind.sort(key=lambda cursor: -cursor.behind)
    return [max(each.keep_ms - each.left_ms, 0) for each in cursors], behind
