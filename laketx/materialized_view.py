"""Materialized views: tables whose rows are the answer of a query, refreshed by what changed.

daily = lake.create_materialized_view("shop.daily", "SELECT day, sum(amount) AS total FROM shop.orders GROUP BY day")
daily.refresh()
daily.verify()
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from laketx.arrow_reads import ArrowReads
from laketx.table import Table
from metaservice.client import NotFoundError
from protos.laketx.v1 import catalog_pb2
from worker.base.lazy_modules import LazyModule
from worker.base.values import moment_of
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.views.definition import Definition

if TYPE_CHECKING:
    from worker.views import explanation, proof, refresh
    from worker.views.proof import Proof
    from worker.views.refresh import Refresh
else:
    explanation = LazyModule("worker.views.explanation")
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


class MaterializedView(ArrowReads):
    """A materialized view, made by `lake.create_materialized_view` and found by `lake.materialized_view`.

    refresh, verify, status, explain, drop             the view
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

    def refresh(self, *, full: bool = False) -> Refresh:
        """Brings the view up to its sources as they are now: one commit, or none if no source has moved.

            result = daily.refresh()
            print(result.kind, result.version, result.vector)

        `kind` is "incremental", "full" with a `reason`, or "nothing". `full` computes the query as a whole.

        Raises ConflictError after too many lost races, BlockedError if a source was dropped, InputError if a column
        that the query reads was.
        """
        done = refresh.refresh(self.view, full=full)
        self.view = self.view if done.kind == refresh.NOTHING else self.view.refreshed()
        return done

    def verify(self, version: int | None = None) -> Proof:
        """Computes the query again at the vector of a version, by default the newest, and compares the rows.

            assert daily.verify().holds
            print(daily.verify(version=3).missing)

        Raises InputError if the view was not refreshed by that version, GoneError if the version, or that of a source,
        is no longer kept.
        """
        return proof.verify(self.view, version)

    def status(self) -> ViewStatus:
        """Returns when and how the view was refreshed last, and how far its sources are ahead."""
        last = refresh.last_refresh(self.view, self._definition)
        sources = self._definition.sources.items()
        heads = {name: self.lake.client.resolve_version(source.table_id).version for name, source in sources}
        if last is None:
            return ViewStatus(self.name, None, 0, "", "", {}, heads)
        behind = {name: head - last.vector[name] for name, head in heads.items()}
        return ViewStatus(self.name, moment_of(last.time_us), last.version, last.kind, last.reason, last.vector, behind)

    def explain(self) -> str:
        """Returns how the view is refreshed: each operator with its class and the reason, and the delta plan in SQL."""
        return explanation.explain(self.view)

    def drop(self) -> None:
        """Drops the view, and its cursors, which keep versions of its sources."""
        self.lake.client.drop_table(self.view.table_id)
        for source in self._definition.sources.values():
            with suppress(NotFoundError):  # the source was dropped
                self.lake.client.drop_cursor(source.table_id, self._definition.cursor)
