"""What happens, as events: from each table's cursor in MetaService on, and from the last conflict and branch told.

A cursor advances after its events were taken, so a killed process repeats some events and skips none. The service keeps
everything after a cursor.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Final

from metaservice.cli.cloud_events import (
    Event,
    branch_event,
    branch_gap_event,
    commit_event,
    conflict_event,
    gap_event,
    refresh_failure_event,
    run_failure_event,
)
from metaservice.cli.event_delivery import Sender
from metaservice.cli.lineage_events import QUERY, LineageEvents
from metaservice.client import ErrorKind, MetaClient, MetaServiceError, features
from protos.laketx.v1 import admin_pb2, catalog_pb2, common_pb2, maintenance_pb2, read_pb2, transaction_pb2

COMMITS_A_TIME: Final = 200
COMMITS_A_ROUND: Final = 1_000  # of one table, before the others have their turn
BRANCH_EVENTS_A_ROUND: Final = 1_000
ADVANCE_S: Final = 1.0  # a cursor advances no more often: each step is a job of the decider
SCAN_S: Final = 5.0  # between two looks for conflicts
SCAN_SHARE: Final = 20  # a look takes no more than this part of the time
NEAR_MS: Final = 30_000  # how far back ids are looked at each time: how much clients' clocks differ
FAR_MS: Final = 600_000  # and how far every FAR_S
FAR_S: Final = 300.0
OPEN_AT_ONCE: Final = 100  # long transactions asked for at a time
REFRESH_FAILURE: Final = "view.failure"  # a property of a view
GONE: Final = ("TABLE_DROPPED", "TABLE_UNKNOWN", "TABLE_ID_OUTDATED")


@dataclass(slots=True)
class State:
    """The content of the state file. Without it, conflicts that the service still keeps are delivered again."""

    started_us: int
    floor_ms: int  # all transactions of older ids have ended, and were looked at
    conflicts: dict[str, int] = field(default_factory=dict)  # delivered, with ids from the floor on
    branches: int = 0  # the number of the last delivered event of a branch
    runs: dict[str, int] = field(
        default_factory=dict
    )  # by periodic task, the end of the last failed run that was delivered

    def write(self, path: Path) -> None:
        content = asdict(self)
        content["told"] = content.pop("conflicts")  # the file's name for them
        text = json.dumps(content)
        beside = path.with_name(f"{path.name}.new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)


def read_state(path: Path) -> State | None:
    try:
        stored: Any = json.loads(path.read_text(encoding="utf-8"))
        branches = int(stored.get("branches", 0))  # earlier releases had none
        runs = dict(stored.get("runs", {}))
        return State(int(stored["started_us"]), int(stored["floor_ms"]), dict(stored["told"]), branches, runs)
    except FileNotFoundError:
        return None


@dataclass(slots=True)
class Place:
    """How far a table's commits were taken, and where its cursor is."""

    version: int
    cursor: int
    advanced_s: float


class Feed:
    """Reads and sends, in one thread."""

    def __init__(
        self,
        client: MetaClient,
        sender: Sender,
        name: str,
        patterns: Sequence[str],
        state_path: Path,
        *,
        from_start: bool,
        keep_ms: int,
        conflicts: bool,
        branches: bool,
        note: Callable[[str], None],
        stopped: threading.Event,
        lineage: str = "",
    ) -> None:
        """With `lineage`, a namespace, it sends only commits, as events of OpenLineage."""
        self._client = client
        self._sender = sender
        self._name = name
        self._patterns = patterns
        self._path = state_path
        self._keep_ms = keep_ms
        self._touch_s = keep_ms / 4_000
        self._conflicts = conflicts and not lineage
        self._branches = branches and not patterns and not lineage and client.offers(features.BRANCHES)
        self._note = note
        self._stopped = stopped
        status = client.get_status()
        self._source = f"urn:laketx:{status.history_epoch}"
        self._lineage = LineageEvents(client, lineage, self._source) if lineage else None
        self._places: dict[str, Place] = {}
        self._dropped: set[str] = set()
        self._open: dict[str, None] = {}  # transactions that are older than a near look
        self._names: dict[str, str] = {}
        self._periodic = True  # until the service says that it is of a release before
        self._runs: dict[str, int] = {}  # by task, the end of the last run that was looked at
        self._runs_at_s = 0.0
        self._scan_at_s = 0.0
        self._far_at_s = 0.0
        self._state = self._begin(status, from_start=from_start)

    def _begin(self, status: admin_pb2.GetStatusResponse, *, from_start: bool) -> State:
        now_s = time.monotonic()
        cursors = [cursor for cursor in self._client.list_cursors() if cursor.name == self._name]
        for cursor in cursors:
            fresh = (
                cursor.version == 0 and cursor.used_time_us == cursor.create_time_us
            )  # its creation may not be told yet
            self._places[cursor.table_id] = Place(-1 if fresh else cursor.version, cursor.version, now_s)
        state_before = read_state(self._path)
        if state_before is not None:
            return state_before
        now_us = now_of(status)
        started_us = 0 if from_start else min((cursor.create_time_us for cursor in cursors), default=now_us)
        state = State(started_us, max(started_us // 1_000 - FAR_MS, 0))
        state.write(self._path)
        return state

    def round(self) -> bool:
        """One look at everything; returns whether there was something."""
        was = self._sender.counts.delivered + self._sender.counts.dead
        for table in list(self._client.list_tables(include_dropped=True)):
            if self._stopped.is_set():
                return False
            self._names[table.table_id] = table.name
            if not self._is_wanted(table):
                continue
            try:
                self._table(table)
            except MetaServiceError as error:
                if error.reason not in GONE:
                    raise
        if self._branches:
            self._tell_branches()
        if self._periodic and time.monotonic() >= self._runs_at_s:
            self._tell_failed_runs()
        if self._conflicts and time.monotonic() >= self._scan_at_s:
            self._scan()
        return self._sender.counts.delivered + self._sender.counts.dead > was

    def flush(self) -> None:
        """Advances the cursors to what was taken."""
        for table_id, place in self._places.items():
            if place.version > place.cursor:
                self._advance(table_id, place)

    def _is_wanted(self, table: catalog_pb2.Table) -> bool:
        if not self._patterns:
            return True
        return any(each == table.table_id or fnmatchcase(table.name, each) for each in self._patterns)

    # ------------------------------------------------------------------------------------------------------- commits

    def _table(self, table: catalog_pb2.Table) -> None:
        place = self._places.get(table.table_id)
        if table.HasField("drop_time_us"):
            self._after_drop(table, place)
            return
        self._dropped.discard(table.table_id)
        if place is None:
            place = self._places[table.table_id] = self._place(table)
        last = min(table.head_version, place.version + COMMITS_A_ROUND)
        while place.version < last and not self._stopped.is_set():
            to = min(place.version + COMMITS_A_TIME, last)
            events = list(self._commits(table, place.version + 1, to))
            if not self._sender.send(events):
                return
            place.version = to
            if time.monotonic() - place.advanced_s >= ADVANCE_S:
                self._advance(table.table_id, place)
        idle_s = time.monotonic() - place.advanced_s
        if (place.version > place.cursor and idle_s >= ADVANCE_S) or idle_s >= self._touch_s:
            self._advance(table.table_id, place)

    def _place(self, table: catalog_pb2.Table) -> Place:
        """Begin a table that has no cursor yet at its creation, or where it was when events began."""
        begin = -1
        if table.create_time_us < self._state.started_us:
            begin = self._version_at(table, self._state.started_us)
        made = self._client.create_cursor(table.table_id, self._name, version=max(begin, 0), keep_ms=self._keep_ms)
        place = Place(begin, made.cursor.version, time.monotonic())
        if begin == 0:  # a cursor that was used says that the creation of the table is told
            self._advance(table.table_id, place)
        return place

    def _version_at(self, table: catalog_pb2.Table, time_us: int) -> int:
        try:
            return self._client.resolve_version(table.table_id, time_us=time_us).version
        except MetaServiceError as error:
            if error.reason != "VERSION_RETIRED":
                raise
            return int(error.facts.get("oldest", table.head_version + 1)) - 1

    def _commits(self, table: catalog_pb2.Table, first: int, last: int) -> Iterator[Event]:
        versions = read_pb2.VersionFilter(from_version=first, to_version=last)
        kept = {version.version: version for version in self._client.list_versions(table.table_id, matching=versions)}
        missing = [number for number in range(first, last + 1) if number not in kept]
        if missing and self._lineage is None:
            yield self._gap(table, missing[0], missing[-1], "RETIRED")
        for number in sorted(kept):
            error = self._refresh_error(table, kept[number])
            if self._lineage is None:
                yield commit_event(self._source, table, kept[number])
                if error:
                    yield refresh_failure_event(self._source, table, kept[number], error)
            elif error:
                yield self._lineage.refresh_failure(table, kept[number], error)
            else:
                yield self._lineage.event(table, kept[number])

    def _refresh_error(self, table: catalog_pb2.Table, version: read_pb2.Version) -> str:
        """Why a refresh failed, if the commit notes that: it changes a property of a view."""
        if QUERY not in table.properties or version.operation != common_pb2.OPERATION_ALTER:
            return ""
        try:
            before, after = (
                self._client.get_table(table_id=table.table_id, version=each).properties.get(REFRESH_FAILURE, "")
                for each in (version.version - 1, version.version)
            )
        except MetaServiceError as error:
            if error.reason != "VERSION_RETIRED":
                raise
            return ""
        return str(json.loads(after)["text"]) if after and after != before else ""

    def _gap(self, table: catalog_pb2.Table, first: int, last: int, reason: str) -> Event:
        self._note(f"versions {first} to {last} of {table.name} are not there any more: {reason.lower()}")
        now_us = table.drop_time_us or table.head_commit_time_us
        return gap_event(self._source, table, first, last, reason, now_us)

    def _after_drop(self, table: catalog_pb2.Table, place: Place | None) -> None:
        """Commits of a dropped table can't be read: those that were not told are told as a gap."""
        if place is None or table.table_id in self._dropped:
            return
        if place.version < table.head_version and self._lineage is None:
            gap = self._gap(table, place.version + 1, table.head_version, "DROPPED")
            if not self._sender.send([gap]):
                return
            place.version = table.head_version
        self._dropped.add(table.table_id)

    def _advance(self, table_id: str, place: Place) -> None:
        try:
            self._client.advance_cursor(table_id, self._name, place.cursor, max(place.version, 0))
            place.cursor = max(place.version, 0)
        except MetaServiceError as error:
            if error.reason == "CURSOR_MOVED":
                self._note(f"another process moves the cursors {self._name}: events come twice")
                moved = self._client.create_cursor(table_id, self._name, must_exist=True).cursor.version
                place.version, place.cursor = max(place.version, moved), moved
            elif error.reason not in GONE:
                raise
        place.advanced_s = time.monotonic()

    # ------------------------------------------------------------------------------------------------------ branches

    def _tell_branches(self) -> None:
        """The next ones. The file of the state has how far they were told."""
        before = self._state.branches
        happened = list(islice(self._client.list_branch_events(after=before), BRANCH_EVENTS_A_ROUND))
        if not happened:
            return
        events = [branch_event(self._source, event) for event in happened if event.time_us >= self._state.started_us]
        if before and happened[0].number > before + 1:
            lost = before + 1, happened[0].number - 1
            self._note(f"events {lost[0]} to {lost[1]} of branches are not there any more")
            events.insert(0, branch_gap_event(self._source, *lost, happened[0].time_us))
        if not events or self._sender.send(events):
            self._state.branches = happened[-1].number
            self._state.write(self._path)

    # ---------------------------------------------------------------------------------------------------- failed runs

    def _tell_failed_runs(self) -> None:
        """Delivers failed runs of periodic tasks. The state file has the end of each task's last delivered run."""
        self._runs_at_s = time.monotonic() + SCAN_S
        try:
            tasks = list(self._client.list_periodic_tasks())
        except MetaServiceError as error:
            if error.kind is not ErrorKind.BLOCKED:
                raise
            self._periodic, tasks = False, []
        for task in tasks:
            since_us = max(self._state.runs.get(task.task_id, self._state.started_us), self._runs.get(task.task_id, 0))
            if task.last_run.end_time_us <= since_us or not self._is_wanted_id(task.table_id):
                continue
            ended = [run for run in self._client.list_periodic_runs(task.name) if run.end_time_us > since_us]
            failed = [run for run in ended if run.outcome == maintenance_pb2.PERIODIC_OUTCOME_FAILED]
            for run in sorted(failed, key=lambda each: each.end_time_us):
                event = (
                    run_failure_event(self._source, task, run)
                    if self._lineage is None
                    else self._lineage.run_failure(task, run)
                )
                if not self._sender.send([event]):
                    return
                self._state.runs[task.task_id] = run.end_time_us
                self._state.write(self._path)
            self._runs[task.task_id] = max((run.end_time_us for run in ended), default=since_us)

    # ----------------------------------------------------------------------------------------------------- conflicts

    def _scan(self) -> None:
        """Looks at recent transactions, and at older ones that were still open."""
        began_s = time.monotonic()
        now_ms = now_of(self._client.get_status()) // 1_000
        is_far = began_s >= self._far_at_s
        below_ms = min(self._state.floor_ms, now_ms - FAR_MS) if is_far else now_ms - NEAR_MS
        lost: list[transaction_pb2.Transaction] = []
        still_open: dict[str, None] = {}
        for transaction in self._client.list_transactions():
            if time_of(transaction.txn_id) < below_ms:
                break
            self._open.pop(transaction.txn_id, None)
            if transaction.state == transaction_pb2.TRANSACTION_STATE_OPEN:
                still_open[transaction.txn_id] = None
            elif transaction.state == transaction_pb2.TRANSACTION_STATE_CONFLICT:
                lost.append(transaction)
        lost += self._lost_long_ago()
        self._open |= still_open
        table_ids = {transaction.conflict.table_id for transaction in lost}
        if table_ids - self._names.keys():  # created after the last listing of tables
            self._names |= {table.table_id: table.name for table in self._client.list_tables(include_dropped=True)}
        for transaction in sorted(lost, key=lambda each: each.end_time_us):
            if transaction.txn_id in self._state.conflicts or transaction.end_time_us < self._state.started_us:
                continue
            if self._is_wanted_id(transaction.conflict.table_id) and not self._sender.send(
                [self._conflict(transaction)]
            ):
                return
            self._state.conflicts[transaction.txn_id] = transaction.end_time_us
            self._state.write(self._path)
        ended_s = time.monotonic()
        if is_far:
            self._far_at_s = ended_s + FAR_S
            self._state.floor_ms = min([now_ms - FAR_MS, *map(time_of, self._open)])
            floor_ms = min(self._state.floor_ms, now_ms - FAR_MS)
            self._state.conflicts = {
                name: when for name, when in self._state.conflicts.items() if time_of(name) >= floor_ms
            }
            self._state.write(self._path)
        self._scan_at_s = ended_s + max(SCAN_S, (ended_s - began_s) * SCAN_SHARE)

    def _lost_long_ago(self) -> list[transaction_pb2.Transaction]:
        """Return lost transactions that were open at an earlier scan, and are older than this scan; a few at a time."""
        lost = []
        for txn_id in list(self._open)[:OPEN_AT_ONCE]:
            del self._open[txn_id]
            try:
                transaction = self._client.get_transaction(txn_id)
            except MetaServiceError as error:
                if error.reason != "TRANSACTION_UNKNOWN":
                    raise
                continue
            if transaction.state == transaction_pb2.TRANSACTION_STATE_OPEN:
                self._open[txn_id] = None  # behind the others
            elif transaction.state == transaction_pb2.TRANSACTION_STATE_CONFLICT:
                lost.append(transaction)
        return lost

    def _conflict(self, transaction: transaction_pb2.Transaction) -> Event:
        table_id = transaction.conflict.table_id
        return conflict_event(self._source, self._names.get(table_id, table_id), transaction)

    def _is_wanted_id(self, table_id: str) -> bool:
        return self._is_wanted(catalog_pb2.Table(table_id=table_id, name=self._names.get(table_id, "")))


def now_of(status: admin_pb2.GetStatusResponse) -> int:
    """The service's time."""
    return status.start_time_us + status.uptime_ms * 1_000


def time_of(txn_id: str) -> int:
    """The milliseconds in a UUIDv7."""
    return int(txn_id.replace("-", "")[:12], 16)
