"""Which views a worker refreshes now: a pure function of schedules, vectors and the newest versions of all tables.

A view is behind if a source has another version than its vector says, or is a DOWNSTREAM view that is behind.
A view waits for the views that it reads: while one is being refreshed, and for one that is due, too, and has not been
refreshed since this view was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from metaservice.shared.view_schedules import DOWNSTREAM, EVERY, MANUAL, ON_COMMIT, TARGET_LAG, ViewSchedule

SECOND_US: Final = 1_000_000
LAG_SHARE: Final = 2  # a refresh begins at a half of the target lag: the other half is for the refresh


@dataclass(frozen=True, slots=True)
class ScheduledView:
    """A view with a schedule. `vector` is by the ids of its sources; None: it was never refreshed."""

    view_id: str
    schedule: ViewSchedule
    sources: frozenset[str]
    vector: Mapping[str, int] | None
    refreshed_us: int = 0
    behind_since_us: int = 0  # the commit time of the oldest commit that it lacks, if it is behind
    is_suspended: bool = False

    @property
    def is_active(self) -> bool:
        """Whether workers refresh it."""
        return not self.is_suspended and self.schedule.kind != MANUAL


@dataclass(frozen=True, slots=True)
class Due:
    """The views to refresh at a time. `begins` are those that wait for no other one, the longest unrefreshed first."""

    views: frozenset[str]
    begins: Sequence[str]


@dataclass
class _Lake:
    views: Mapping[str, ScheduledView]
    heads: Mapping[str, int]
    now_us: int
    resting: Collection[str]
    _behind: dict[str, bool] = field(default_factory=dict)
    _due: dict[str, bool] = field(default_factory=dict)

    def is_behind(self, view: ScheduledView) -> bool:
        if view.view_id not in self._behind:
            self._behind[view.view_id] = is_source_ahead(view, self.heads) or any(
                self.is_behind(source) for source in self._downstream(view)
            )
        return self._behind[view.view_id]

    def is_due(self, view: ScheduledView) -> bool:
        if view.view_id not in self._due:
            self._due[view.view_id] = view.view_id not in self.resting and self._is_due(view)
        return self._due[view.view_id]

    def _is_due(self, view: ScheduledView) -> bool:
        if not view.is_active or not self.is_behind(view):
            return False
        if view.vector is None or view.schedule.kind == ON_COMMIT:
            return True
        interval_us = view.schedule.seconds * SECOND_US
        if view.schedule.kind == EVERY:
            return self.now_us >= view.refreshed_us + interval_us
        if view.schedule.kind == TARGET_LAG:
            return self.now_us >= self.behind_since_us(view) + interval_us // LAG_SHARE
        return any(self.is_due(reader) for reader in self.views.values() if view.view_id in reader.sources)

    def behind_since_us(self, view: ScheduledView) -> int:
        """The commit time of the oldest commit that the view lacks, also by way of DOWNSTREAM sources."""
        times = [view.behind_since_us] if is_source_ahead(view, self.heads) else []
        times += [self.behind_since_us(source) for source in self._downstream(view) if self.is_behind(source)]
        return min(times, default=self.now_us)

    def _downstream(self, view: ScheduledView) -> list[ScheduledView]:
        """The sources that would be refreshed for the view; one that failed a short time ago would not."""
        sources = [self.views[source] for source in view.sources if source in self.views]
        return [
            source
            for source in sources
            if source.is_active and source.schedule.kind == DOWNSTREAM and source.view_id not in self.resting
        ]


def is_source_ahead(view: ScheduledView, heads: Mapping[str, int]) -> bool:
    """Return whether a source has another version than the vector says, or is gone."""
    if view.vector is None:
        return True
    return any(heads.get(source) != view.vector.get(source) for source in view.sources)


def due_views(
    views: Collection[ScheduledView],
    heads: Mapping[str, int],
    now_us: int,
    *,
    resting: Collection[str] = (),
    running: Collection[str] = (),
    begun: Mapping[str, int] | None = None,
) -> Due:
    """Return the views that are due, and those of them that can begin.

    `resting` are views whose last refresh failed a short time ago, `begun` has the order in which refreshes began.
    """
    lake = _Lake({view.view_id: view for view in views}, heads, now_us, resting)
    order = begun or {}
    due = {view.view_id for view in views if lake.is_due(view)}
    begins = [
        view.view_id
        for view in views
        if view.view_id in due and view.view_id not in running and not _waits(view, due, running, order)
    ]
    return Due(frozenset(due), sorted(begins, key=lambda view_id: (order.get(view_id, 0), view_id)))


def _waits(view: ScheduledView, due: Collection[str], running: Collection[str], order: Mapping[str, int]) -> bool:
    return any(
        source in running or (source in due and order.get(source, 0) <= order.get(view.view_id, 0))
        for source in view.sources
    )
