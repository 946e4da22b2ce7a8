"""Refreshes views by their schedules, in the process of a worker.

Each pass lists the tables once, which has the newest version of every source and the schedule of every view; a view
whose sources did not move costs nothing more. Several workers can run: a view is refreshed by the worker that refreshed
it last, as its newest commit says, and by others only if it is overdue. If two refresh it all the same, one of them
commits and the other one finds nothing to do. A failure is noted with the view, which then rests for longer each time.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from metaservice.client import ConflictError, LakeTXError, MetaServiceError, NotFoundError, UnavailableError
from metaservice.client.retries import Backoff
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.background_runs import IDLE_S, POLL_S, BackgroundRuns
from worker.base.errors import InputError
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.views.definition import (
    FAILURE,
    QUERY,
    SCHEDULE,
    SUSPENDED,
    Definition,
    Failure,
    failure_of,
    failure_text,
    is_suspended,
    schedule_of,
)
from worker.views.due_views import ScheduledView, due_views, is_source_ahead
from worker.views.refresh import AGAIN, BROKEN, NOTHING, LastRefresh, last_refresh, oldest_commit_us, refresh

LISTING_REST: Final = 20.0  # after a list of the tables, times as long as it took
VIEWS_AT_ONCE: Final = 2
ATTEMPTS_MAX: Final = 2
OVERDUE_S: Final = 5.0  # and twice as long as the last refresh took: then another worker takes a view over
REST: Final = Backoff(base_s=5.0, longest_s=900.0)  # after failures
FAILURE_CHARS_MAX: Final = 1_000
SECOND_US: Final = 1_000_000

log = logging.getLogger("laketx.worker")


@dataclass
class _View:
    """What a worker knows of a view between two passes."""

    head_version: int = -1  # of the view, when its last refresh was looked up
    last: LastRefresh | None = None
    behind_at: Mapping[str, int] = field(default_factory=dict)  # the vector for which `behind_since_us` holds
    behind_since_us: int = 0
    due_since_s: float | None = None
    failures: int = 0
    rests_until_s: float = 0.0
    settings: tuple[str, ...] = ()
    noted: str = ""  # the failure


class ViewRefresher(BackgroundRuns):
    """Refreshes views by their schedules: `start`, later `stop`; or `run_once`."""

    def __init__(
        self,
        lake: Connection,
        *,
        poll_s: float = POLL_S,
        now_s: Callable[[], float] = time.monotonic,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1_000,
    ) -> None:
        super().__init__("views", poll_s)
        self._lake = lake
        self._now_s = now_s
        self._now_us = now_us
        self.worker = f"{socket.gethostname()}/{os.getpid()}/{uuid7()[-8:]}"
        self._views: dict[str, _View] = {}
        self._begun: dict[str, int] = {}
        self._listing_s = 0.0

    def run_once(self) -> list[str]:
        """Looks at all views once, and begins the refreshes that are due; returns the names of those views."""
        tables, heads = self._list()
        views: dict[str, ScheduledView] = {}
        for view_id, meta in tables.items():
            try:
                views[view_id] = self._look(meta, heads)
            except (ValueError, KeyError, NotFoundError) as error:  # of a later release, or dropped meanwhile
                log.warning("view %s is left alone: %s", meta.name, error)
        now_s = self._now_s()
        with self._lock:
            running = set(self._running)
            begun = dict(self._begun)
        resting = [view_id for view_id in views if self._views[view_id].rests_until_s > now_s]
        due = due_views(views.values(), heads, self._now_us(), resting=resting, running=running, begun=begun)
        for view_id in views:
            state = self._views[view_id]
            if view_id not in due.views:
                state.due_since_s = None
            elif state.due_since_s is None:
                state.due_since_s = now_s
        names: list[str] = []
        for view_id in due.begins:
            if len(running) + len(names) < VIEWS_AT_ONCE and self._is_ours(self._views[view_id]):
                self._begin(tables[view_id])
                names.append(tables[view_id].name)
        return names

    # -- passes

    def _rest_s(self) -> float:
        rest_s = self._poll_s if self._views else max(self._poll_s, IDLE_S)
        return max(rest_s, LISTING_REST * self._listing_s)

    def _list(self) -> tuple[dict[str, catalog_pb2.Table], dict[str, int]]:
        """The views with schedules, and the newest version of every table, by id."""
        began_s = self._now_s()
        tables, heads = {}, {}
        for meta in self._lake.client.list_tables():
            heads[meta.table_id] = meta.head_version
            if meta.properties.get(QUERY) and meta.properties.get(SCHEDULE) and "@" not in meta.name:
                tables[meta.table_id] = meta
        self._listing_s = self._now_s() - began_s
        self._views = {view_id: self._views.get(view_id, _View()) for view_id in tables}
        return tables, heads

    def _look(self, meta: catalog_pb2.Table, heads: Mapping[str, int]) -> ScheduledView:
        state, definition = self._views[meta.table_id], Definition.of(meta)
        ids = frozenset(source.table_id for source in definition.sources.values())
        settings = tuple(meta.properties.get(name, "") for name in (SCHEDULE, SUSPENDED))
        noted = meta.properties.get(FAILURE, "")
        is_resumed = bool(state.noted) and not noted
        state.noted = noted
        if settings != state.settings or is_resumed:
            state.settings, state.failures, state.rests_until_s = settings, 0, 0.0
        if state.head_version != meta.head_version:
            state.last, state.head_version = last_refresh(TableView(self._lake, meta), definition), meta.head_version
        by_id = None
        if state.last is not None:
            by_id = {source.table_id: state.last.vector[name] for name, source in definition.sources.items()}
        view = ScheduledView(
            meta.table_id,
            schedule_of(meta),
            ids,
            by_id,
            0 if state.last is None else state.last.time_us,
            is_suspended=is_suspended(meta),
        )
        return replace(view, behind_since_us=self._behind_since_us(view, state, heads)) if view.is_active else view

    def _behind_since_us(self, view: ScheduledView, state: _View, heads: Mapping[str, int]) -> int:
        """The time of the oldest commit that the view lacks: one call a source, once after a refresh."""
        if view.vector is None or not is_source_ahead(view, heads):
            return 0
        if not state.behind_since_us or state.behind_at != view.vector:
            moved = [source for source, version in view.vector.items() if heads.get(source, version) != version]
            times = [oldest_commit_us(self._lake, source, view.vector[source]) for source in moved]
            commits_us = [time_us for time_us in times if time_us is not None]
            state.behind_at, state.behind_since_us = view.vector, min(commits_us, default=self._now_us())
        return state.behind_since_us

    def _is_ours(self, state: _View) -> bool:
        """Whether this worker refreshes the view: it did so last, or the one that did so is late."""
        if state.last is None or state.last.worker in ("", self.worker):
            return True
        due_s = 0.0 if state.due_since_s is None else self._now_s() - state.due_since_s
        return due_s > OVERDUE_S + 2 * state.last.seconds

    # -- refreshes

    def _begin(self, meta: catalog_pb2.Table) -> None:
        last = self._views[meta.table_id].last
        with self._lock:
            self._begun[meta.table_id] = max(self._begun.values(), default=0) + 1
        self._begin_run(meta.table_id, partial(self._refresh, meta, 0 if last is None else last.version))

    def _refresh(self, meta: catalog_pb2.Table, begins_at: int) -> None:
        state = self._views.get(meta.table_id, _View())
        try:
            view = TableView(self._lake, meta).refreshed()
            done = refresh(view, worker=self.worker, attempts_max=ATTEMPTS_MAX, begins_at=begins_at)
        except (ConflictError, UnavailableError) as error:
            log.info("view %s was not refreshed, and is looked at again: %s", meta.name, error)
            return
        except (MetaServiceError, InputError) as error:
            if error.reason not in AGAIN and not (error.reason == BROKEN and self._is_overtaken(meta, state)):
                self._fail(meta, state, str(error))
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the view's status says it
            self._fail(meta, state, f"{type(error).__name__}: {error}")
            return
        state.failures, state.rests_until_s = 0, 0.0
        if done.kind != NOTHING:
            why = f" ({done.reason})" if done.reason else ""
            changes = f"{done.rows_added} rows added, {done.rows_removed} removed"
            log.info("view %s: %s refresh%s, version %s, %s", meta.name, done.kind, why, done.version, changes)

    def _is_overtaken(self, meta: catalog_pb2.Table, state: _View) -> bool:
        """Whether another refresh has changed the rows meanwhile."""
        return last_refresh(TableView(self._lake, meta), Definition.of(meta)) != state.last

    def _fail(self, meta: catalog_pb2.Table, state: _View, text: str) -> None:
        """Lets a view rest, and notes the reason with it, once."""
        state.rests_until_s = self._now_s() + REST.delay_s(state.failures, (1 + random.random()) / 2)
        state.failures += 1
        log.warning("view %s could not be refreshed: %s", meta.name, text)
        noted, refreshed_us = failure_of(meta), 0 if state.last is None else state.last.time_us
        failure = Failure(self._now_us(), text[:FAILURE_CHARS_MAX])
        if noted is not None and noted.text == failure.text and noted.time_us > refreshed_us:
            return
        note = common_pb2.Alteration(set_properties={FAILURE: failure_text(failure)})
        try:
            self._lake.client.alter_table(meta.table_id, note, commit_message="a refresh failed")
        except LakeTXError as error:  # the view is dropped, or the right is missing
            log.info("the failure of view %s is not noted: %s", meta.name, error)
