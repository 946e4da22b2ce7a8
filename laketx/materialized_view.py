"""Materialized views: tables whose rows are the answer of a query, refreshed by what changed.

daily = lake.create_materialized_view("shop.daily", "SELECT day, sum(amount) AS total FROM shop.orders GROUP BY day")
daily.refresh()
daily.verify()
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from laketx.arrow_reads import ArrowReads
from laketx.table import Table
from metaservice.client import BlockedError, NotFoundError
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.base.values import moment_of
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.views.costs import expected_seconds, usual_change
from worker.views.definition import (
    FAILURE,
    SCHEDULE,
    SUSPENDED,
    Definition,
    ViewSource,
    failure_of,
    is_suspended,
    schedule_of,
    schedule_properties,
)

if TYPE_CHECKING:
    from worker.views import explanation, lineage, proof, refresh
    from worker.views.lineage import ViewRead
    from worker.views.proof import Proof
    from worker.views.refresh import Refresh
else:
    explanation = LazyModule("worker.views.explanation")
    lineage = LazyModule("worker.views.lineage")
    proof = LazyModule("worker.views.proof")
    refresh = LazyModule("worker.views.refresh")


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """A view's last refresh, and the commits of its sources since; `refreshed` None: it was never refreshed."""

    name: str
    refreshed: datetime | None
    version: int
    kind: str
    reason: str
    vector: Mapping[str, int]
    behind: Mapping[str, int]  # commits, by source
    lag_s: float = 0.0  # since the oldest commit of a source that the view lacks
    rows_read: int = 0  # of the sources, by the last refresh
    bytes_read: int = 0
    seconds: float = 0.0
    schedule: str = ""
    is_suspended: bool = False
    failed: datetime | None = None  # the last refresh by schedule, if it failed
    failure: str = ""  # of that, or which sources are not found
    expected: str = ""  # how long a refresh takes of either kind, by past ones


def _why_not(lost: Sequence[str]) -> str:
    return f"sources that are not found: {', '.join(lost)}" if lost else ""


class MaterializedView(ArrowReads):
    """A materialized view, made by `lake.create_materialized_view` and found by `lake.materialized_view`.

    refresh, verify, status, explain, lineage, drop    the view
    alter, suspend, resume                             its refreshes by `laketx worker`
    to_arrow, to_pandas, to_polars, scanner, count     its rows, like those of a table
    table                                              its table: history, tags, cursors, increments

        daily = lake.materialized_view("shop.daily")
        print(daily.refresh())
        daily.to_arrow(where="total > 100")

    Each version has a vector: the versions of its sources. Its rows are those of the query at that vector.
    """

    def __init__(self, lake: Connection, meta: catalog_pb2.Table) -> None:
        self.lake = lake
        self.view = TableView(lake, meta)
        self._definition = Definition.of(meta)

    def __repr__(self) -> str:
        return f"MaterializedView({self.name!r})"

    @property
    def name(self) -> str:
        """The view's name with its namespace."""
        return self.view.name

    @property
    def query(self) -> str:
        """The query, as it was written."""
        return self._definition.query

    @property
    def sources(self) -> list[str]:
        """The names of the tables that the query reads, as they are written there."""
        return list(self._definition.sources)

    @property
    def table(self) -> Table:
        """The view's table, in its current state. Writes to it are refused."""
        return Table(self.lake, self.view.refreshed().meta)

    def refresh(self, *, full: bool = False, incremental: bool = False) -> Refresh:
        """Brings the view up to its sources as they are now: one commit, or none if no source has moved.

            result = daily.refresh()
            print(result.kind, result.version, result.vector)

        `kind` is "incremental", "full" with a `reason`, or "nothing". A refresh that can be incremental is full if past
        refreshes say that this is faster. `full` computes the query as a whole, `incremental` doesn't if it can.

        Raises ConflictError after too many lost races, BlockedError if a source was dropped, InputError if a column
        that the query reads was.
        """
        if full and incremental:
            raise InputError("VIEW_REFRESH_INVALID", "a refresh is full or incremental: leave one of them out")
        done = refresh.refresh(self.view, full=full, incremental=incremental)
        self.view = self.view if done.kind == refresh.NOTHING else self.view.refreshed()
        return done

    def verify(self, version: int | None = None) -> Proof:
        """Computes the query again at the vector of a version, by default the newest, and compares the rows.

            assert daily.verify().holds
            print(daily.verify(version=3).missing)

        Raises InputError if the view was not refreshed by that version, GoneError if the version, or that of a source,
        is no longer kept, BlockedError if a source was dropped.
        """
        return proof.verify(self.view, version)

    def status(self) -> ViewStatus:
        """Returns when and how the view was refreshed last, and how far its sources are ahead."""
        meta = self.view.refreshed().meta
        last = refresh.last_refresh(self.view, self._definition)
        sources = self._definition.sources
        heads, lost = dict[str, int](), list[str]()
        for name, source in sources.items():
            try:
                heads[name] = self.lake.client.resolve_version(source.table_id).version
            except (BlockedError, NotFoundError):
                lost.append(name)
        failure = failure_of(meta)
        if failure is not None and last is not None and last.time_us > failure.time_us:
            failure = None
        status = ViewStatus(
            meta.name,
            None,
            0,
            "",
            "",
            {},
            heads,
            schedule=schedule_of(meta).text,
            is_suspended=is_suspended(meta),
            failed=None if failure is None else moment_of(failure.time_us),
            failure=_why_not(lost) if failure is None else failure.text,
        )
        if last is None:
            return status
        behind = {name: head - last.vector[name] for name, head in heads.items()}
        since = [self._oldest_us(sources[name], last.vector[name]) for name, commits in behind.items() if commits]
        past = refresh.past_refreshes(self.view, self._definition)
        lag_us = max((time.time_ns() // 1_000 - time_us for time_us in since), default=0)
        return replace(
            status,
            refreshed=moment_of(last.time_us),
            version=last.version,
            kind=last.kind,
            reason=last.reason,
            vector=last.vector,
            behind=behind,
            lag_s=max(lag_us, 0) / 1_000_000,
            rows_read=last.rows_read,
            bytes_read=last.bytes_read,
            seconds=last.seconds,
            expected=expected_seconds(past, usual_change(past)).text,
        )

    def _oldest_us(self, source: ViewSource, version: int) -> int:
        """The time of a source's first commit after a version; if that is no longer known, that of the newest."""
        oldest = refresh.oldest_commit_us(self.lake, source.table_id, version)
        return oldest or self.lake.client.resolve_version(source.table_id).commit_time_us

    def alter(self, *, schedule: str = "", target_lag: str = "") -> None:
        """Changes when `laketx worker` refreshes the view; "MANUAL": never.

            daily.alter(schedule="EVERY 5 MINUTES")
            daily.alter(target_lag="1 minute")

        Raises InputError for a wrong schedule, DeniedError without the right to alter the view.
        """
        if not schedule and not target_lag:
            raise InputError("VIEW_SCHEDULE_INVALID", "name the schedule or the target lag: MANUAL ends refreshes")
        timing = schedule_properties(schedule, target_lag) or {SCHEDULE: ""}
        if self.view.refreshed().meta.properties.get(SCHEDULE, "") != timing[SCHEDULE]:  # it would be a version
            self._set(timing)

    def suspend(self) -> None:
        """Ends refreshes by `laketx worker`, until `resume`. `refresh` works all the same."""
        self._set({SUSPENDED: "true"})

    def resume(self) -> None:
        """Undoes `suspend`, and lets a view whose refreshes failed be tried again at once."""
        self._set({SUSPENDED: "false", FAILURE: ""})

    def _set(self, properties: Mapping[str, str]) -> None:
        self.lake.client.alter_table(self.view.table_id, common_pb2.Alteration(set_properties=properties))
        self.view = self.view.refreshed()

    def explain(self) -> str:
        """Returns how the view is refreshed: each operator with its class and the reason, and the delta plan in SQL."""
        return explanation.explain(self.view)

    def lineage(self) -> list[ViewRead]:
        """Returns the tables that the view reads and the views that read it, directly and by way of views.

            for read in daily.lineage():
                print(read.direction, read.steps, read.view, read.source, read.columns)

        Tables that you have no right to read are not in it.
        """
        return lineage.lineage_of(lineage.view_reads(self.lake.client.list_tables()), self.view.refreshed().name)

    def drop(self) -> None:
        """Drops the view, and its cursors, which keep versions of its sources."""
        self.lake.client.drop_table(self.view.table_id)
        for source in self._definition.sources.values():
            with suppress(NotFoundError):  # the source was dropped
                self.lake.client.drop_cursor(source.table_id, self._definition.cursor)
