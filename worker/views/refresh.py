"""A refresh: the difference of a view's query between two vectors becomes one commit that moves the vector.

pin the sources at one instant -> their changes -> the delta plan -> rows that come and go -> commit with the cursors

The commit moves the view's cursor on each source from the version that the refresh began at, and depends on the rows of
the view as they were then. So of two refreshes from the same vector one commits, and a refresh that is repeated after a
crash begins at the vector that it finds.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from metaservice.client import ConflictError, MetaServiceError
from metaservice.client.retries import Backoff
from protos.laketx.v1 import common_pb2, read_pb2, transaction_pb2
from worker.arrow.scan.version_rows import VersionRows, shown_schema
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.updates import Changes, TargetRows, replaced, target_rows
from worker.base.errors import InputError
from worker.commit.noted_reads import EVERYTHING
from worker.commit.stages import Stage, Staged
from worker.commit.transaction import run_writes
from worker.commit.writes import Write
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.views.classes import classified
from worker.views.costs import PAST_MAX, PastRefresh, expected_seconds
from worker.views.definition import CLASS, READ, REASON, TOTALS, VECTOR, WORKER, Definition
from worker.views.delta import N, whole_text
from worker.views.differences import difference
from worker.views.engine import matches, run_with
from worker.views.key_rows import read_rows, rows_like
from worker.views.operators import Work, quoted
from worker.views.query import Query, analyse, parse
from worker.views.sources import SourceTables, named_if_dropped
from worker.views.totals import are_stored, known_totals, totals_in

ATTEMPTS_MAX: Final = 10
QUERIES_KEPT: Final = 100
BACKOFF: Final = Backoff(base_s=0.05, longest_s=2.0)
AGAIN: Final = ("CURSOR_MOVED", "ROWS_CHANGED", "CURSOR_UNKNOWN", "HISTORY_CHANGED")
RETIRED: Final = "VERSION_RETIRED"
BROKEN: Final = "VIEW_BROKEN"  # or another refresh has changed the rows meanwhile
NOTHING, INCREMENTAL, FULL = "nothing", "incremental", "full"
PLACE: Final = "_laketx_place"

Vector = Mapping[str, int]  # versions by the names of sources


@dataclass(frozen=True, slots=True)
class Refresh:
    """What a refresh did: `nothing`, or a commit that is `incremental` or `full`, with the reason if it is full."""

    kind: str
    version: int
    vector: Vector
    reason: str = ""
    rows_added: int = 0
    rows_removed: int = 0
    rows_read: int = 0  # of the sources
    bytes_read: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class LastRefresh:
    """The newest refresh up to a version: what its commit says."""

    version: int
    vector: Vector
    kind: str
    reason: str
    time_us: int
    rows_read: int = 0  # of the sources
    bytes_read: int = 0
    seconds: float = 0.0  # until its rows were known
    worker: str = ""  # that refreshed by the view's schedule
    rows_changed: int | None = None  # of the sources; None: it didn't count them
    totals: str | None = None  # of its aggregates over all rows


@dataclass(frozen=True, slots=True)
class _Plan:
    """The rows of a refresh: a difference with N, or the whole answer."""

    rows: pa.Table
    is_difference: bool
    reason: str
    rows_changed: int | None = None
    totals: str | None = None  # of aggregates over all rows, for the commit


def last_refresh(view: TableView, definition: Definition, version: int | None = None) -> LastRefresh | None:
    """Return the newest refresh up to a version; None if there was none. One call."""
    return next(_refreshes(view, definition, version, 1), None)


def past_refreshes(view: TableView, definition: Definition) -> list[PastRefresh]:
    """Return the newest refreshes, the last one first. One call."""
    refreshes = islice(_refreshes(view, definition, None, PAST_MAX), PAST_MAX)
    return [PastRefresh(each.kind == FULL, each.rows_changed, each.seconds) for each in refreshes]


def _refreshes(view: TableView, definition: Definition, version: int | None, count: int) -> Iterator[LastRefresh]:
    newest = read_pb2.VersionFilter(properties={VECTOR: ""}, to_version=version)
    for commit in view.client.list_versions(view.table_id, matching=newest, page_size=count):
        yield _refresh_of(commit, definition)


def _refresh_of(commit: read_pb2.Version, definition: Definition) -> LastRefresh:
    by_id = json.loads(commit.properties[VECTOR])
    vector = {name: by_id[source.table_id] for name, source in definition.sources.items()}
    kind, reason = commit.properties[CLASS], commit.properties.get(REASON, "")
    read = json.loads(commit.properties.get(READ, "{}"))
    costs = (read.get("rows", 0), read.get("bytes", 0), read.get("seconds", 0.0))
    worker = commit.properties.get(WORKER, "")
    changed, totals = read.get("changed"), commit.properties.get(TOTALS)
    return LastRefresh(commit.version, vector, kind, reason, commit.commit_time_us, *costs, worker, changed, totals)


def oldest_commit_us(lake: Connection, source_id: str, version: int) -> int | None:
    """Return the commit time of the first commit after a version; None if there is none, or it is no longer known."""
    after = read_pb2.VersionFilter(from_version=version + 1, to_version=version + 1)
    commit = next(lake.client.list_versions(source_id, matching=after, page_size=1), None)
    return None if commit is None else commit.commit_time_us


def query_of(definition: Definition, sources: SourceTables) -> Query:
    """Return the operators of a view's query."""
    types = sources.types()
    return _analysed(definition.canonical, tuple((name, tuple(types[name].items())) for name in types))


@lru_cache(QUERIES_KEPT)
def _analysed(canonical: str, types: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]) -> Query:
    """A worker refreshes the same views again and again, and a query of TPC-DS takes up to a second to analyse."""
    return analyse(parse(canonical), {name: dict(columns) for name, columns in types})


def refresh(
    view: TableView,
    *,
    full: bool = False,
    incremental: bool = False,
    worker: str = "",
    attempts_max: int = ATTEMPTS_MAX,
    begins_at: int | None = None,
) -> Refresh:
    """Bring a view up to its sources as they are now. The commit names the worker.

    `full` computes it as a whole, `incremental` does not if it can: otherwise what is expected to be faster.
    `begins_at`: only if the last refresh is that version of the view (0: there was none).

    Raises BlockedError if a source was dropped, InputError if a column that the query reads was, ConflictError after
    too many lost races.
    """
    if "@" in view.name:
        raise InputError(
            "VIEW_ON_BRANCH",
            f"{view.name} is on a branch: refresh {view.name.partition('@')[0]}, the view of the lake itself",
        )
    definition = Definition.of(view.meta)
    new_cursors = False
    for attempt in range(1, attempts_max + 1):
        last = last_refresh(view, definition)
        if begins_at is not None and begins_at != (0 if last is None else last.version):
            return Refresh(NOTHING, 0 if last is None else last.version, {} if last is None else last.vector)
        with named_if_dropped(definition):
            pin, heads = view.lake.pins.own_many({source.table_id: None for source in definition.sources.values()})
        after = {name: heads[source.table_id] for name, source in definition.sources.items()}
        if last is not None and last.vector == after and not full:
            return Refresh(NOTHING, last.version, after)
        try:
            renews = new_cursors or last is None
            choice = FULL if full else INCREMENTAL if incremental or definition.is_strict else ""
            return _refresh(view, definition, last, after, choice=choice, new_cursors=renews, worker=worker)
        except ConflictError:
            if attempt == attempts_max:
                raise
        except MetaServiceError as error:
            if error.reason not in AGAIN or attempt == attempts_max:
                raise
            new_cursors = new_cursors or error.reason != "ROWS_CHANGED"
        except InputError as error:
            is_overtaken = error.reason == BROKEN and last_refresh(view, definition) != last
            if not is_overtaken or attempt == attempts_max:
                raise
        finally:
            pin.release()
        time.sleep(BACKOFF.delay_s(attempt - 1, random.random()))
    raise AssertionError("the last attempt raises")


def _refresh(
    view: TableView,
    definition: Definition,
    last: LastRefresh | None,
    after: Vector,
    *,
    choice: str,
    new_cursors: bool,
    worker: str,
) -> Refresh:
    began_s = time.monotonic()
    before = {} if last is None else last.vector
    sources = SourceTables(view.lake, definition.sources, before, after)
    query = query_of(definition, sources)
    past = None if choice else lambda: past_refreshes(view, definition)
    plan = _planned(query, sources, last, lambda keys: _rows_with(view, keys), full=choice == FULL, past=past)
    moves = _moves(view, definition, before, after, new_cursors=new_cursors)
    view = view.refreshed()
    counts = {"added": 0, "removed": 0}

    def stage(stage: Stage) -> Staged:
        then = view.at(stage.read_version)
        staged, added, removed = _staged(then, stage, plan, is_first=last is None)
        counts.update(added=added, removed=removed)
        return staged

    write = Write(
        view,
        common_pb2.OPERATION_MERGE,
        stage,
        reads=[common_pb2.Read(predicate=EVERYTHING)],
        unchanged_since=0 if last is None else last.version,
    )
    kind = INCREMENTAL if plan.is_difference else FULL
    vector = {source.table_id: after[name] for name, source in definition.sources.items()}
    seconds = round(time.monotonic() - began_s, 3)
    read = {"rows": sources.rows_read, "bytes": sources.bytes_read, "seconds": seconds}
    if plan.rows_changed is not None:
        read["changed"] = plan.rows_changed
    properties = {VECTOR: json.dumps(vector, sort_keys=True), CLASS: kind, REASON: plan.reason, READ: json.dumps(read)}
    if plan.totals is not None:
        properties[TOTALS] = plan.totals
    if worker:
        properties[WORKER] = worker
    [commit] = run_writes(
        view.lake,
        lambda: [replace(write)],
        on_conflict="fail",
        message=f"{kind} refresh" + (f": {plan.reason}" if plan.reason else ""),
        cursors=moves,
        properties=properties,
    )
    seconds = round(time.monotonic() - began_s, 3)
    changed = (counts["added"], counts["removed"])
    return Refresh(kind, commit.version, after, plan.reason, *changed, sources.rows_read, sources.bytes_read, seconds)


# -- the rows ----------------------------------------------------------------------------------------------------------


def _planned(
    query: Query,
    sources: SourceTables,
    last: LastRefresh | None,
    old: Callable[[pa.Table], pa.Table],
    *,
    full: bool,
    past: Callable[[], Sequence[PastRefresh]] | None = None,
) -> _Plan:
    """Return the rows of a refresh. With `past`, earlier refreshes decide whether a full one should be faster."""
    reason, changed, totals = _why_full(query, sources, last, full=full), None, None
    if reason is None:
        try:
            changed = sources.changed_rows()
            reason = None if past is None else _why_faster(past(), changed)
            if reason is None:
                totals = known_totals(query.operator, sources, None if last is None else last.totals)
                if past is None or not totals.is_joined:
                    rows = difference(totals.query, totals.added_to(sources), old)
                    return _Plan(rows, True, "", changed, totals.stored)
                reason = "a total that is compared with each row changed"
        except MetaServiceError as error:
            if error.reason != RETIRED:
                raise
            reason = "versions of a source after the last refresh are no longer kept"
    totals = totals or known_totals(query.operator, sources, None)
    text = whole_text(totals.query)
    rows = run_with(totals.added_to(sources).relations(text), text)
    return _Plan(rows, False, reason, changed, totals.stored)


def _why_faster(past: Sequence[PastRefresh], changed: int) -> str | None:
    expected = expected_seconds(past, changed)
    return f"expected to be faster: {expected.text}" if expected.is_full_faster else None


def _rows_with(view: TableView, keys: pa.Table) -> pa.Table:
    """The view's rows with these keys now, and perhaps others.

    If the view is not as the refresh left it at which this one begins, its commit is refused.
    """
    pin, pinned = view.lake.pins.own_many({view.table_id: None})
    try:
        then = view.at(pinned[view.table_id])
        reader = VersionRows(then, pinned[view.table_id])
        return read_rows(reader, reader.schema.names, rows_like(then.meta, reader.schema, keys))
    finally:
        pin.release()


def _why_full(query: Query, sources: SourceTables, last: LastRefresh | None, *, full: bool) -> str | None:
    if last is None:
        return "the first refresh"
    if full:
        return "asked for"
    for step in classified(query.operator):
        if step.work is Work.FULL:
            return f"{step.operator}: {step.reason}"
    if any(totals_in(query.operator)) and (last.totals is None or not are_stored(query.operator, last.totals)):
        return "no totals over all rows are stored"
    try:
        altered = sources.altered()
    except MetaServiceError as error:
        if error.reason != RETIRED:
            raise
        return "versions of a source after the last refresh are no longer kept"
    return None if altered is None else f"the types of {altered} changed"


def _staged(then: TableView, stage: Stage, plan: _Plan, *, is_first: bool) -> tuple[Staged, int, int]:
    """Stage the rows that come and go; return how many of each, too."""
    names = [column.name for column in then.meta.columns]
    target: TargetRows | None = None
    if plan.is_difference:
        difference = _shaped(plan.rows, then)
    elif is_first:
        rows = fitted(plan.rows, then.meta)
        difference = rows.append_column(N, pa.array(np.ones(len(rows), np.int64)))
    else:
        target = target_rows(then, stage.read_version, None)
        difference = subtract(fitted(plan.rows, then.meta), target.rows.select(names))
    counts = difference.column(N).to_numpy()
    new = difference.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 0)))).select(names)
    gone = difference.filter(pa.array(counts < 0))
    if not len(new) and not len(gone):
        return Staged(), 0, 0
    target = target or (_rows_like(then, stage.read_version, gone) if len(gone) else TargetRows(_no_rows(then)))
    places = _places(target.rows.select(names), gone, then.name)
    changes = Changes(target.rows.take(pa.array(places)), np.empty(0, np.int64), new.slice(0, 0), new)
    return replaced(then, stage, target, changes), len(new), len(places)


def _shaped(rows: pa.Table, then: TableView) -> pa.Table:
    """The rows of a difference in the shape of the view's table."""
    return fitted(rows.drop_columns([N]), then.meta).append_column(N, rows.column(N).cast(pa.int64()))


def _rows_like(then: TableView, version: int, gone: pa.Table) -> TargetRows:
    """The rows of the view that may equal those that go."""
    some = rows_like(then.meta, shown_schema(then), gone.drop_columns([N]))
    if some is None:
        return target_rows(then, version, None)
    return target_rows(then, version, some.condition, some.near, some.among)


def _no_rows(then: TableView) -> pa.Table:
    return target_rows(then, 0, common_pb2.Predicate(literal=False)).rows


def subtract(after: pa.Table, before: pa.Table) -> pa.Table:
    """Return the difference of two bags of rows with the same columns: each row once, with N."""
    names = ", ".join(map(quoted, after.column_names))
    text = (
        f"SELECT {names}, CAST(SUM({N}) AS BIGINT) AS {N} FROM ("
        f"SELECT {names}, 1 AS {N} FROM after UNION ALL SELECT {names}, -1 AS {N} FROM before"
        f") GROUP BY {names} HAVING SUM({N}) <> 0"
    )
    return run_with({"after": after, "before": before}, text).cast(
        pa.schema([*after.schema.remove_metadata(), pa.field(N, pa.int64())])
    )


def _places(rows: pa.Table, gone: pa.Table, view: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The places of the rows that go: as many copies of each as its N says."""
    if not len(gone):
        return np.empty(0, np.int64)
    numbered = rows.append_column(PLACE, pa.array(np.arange(len(rows))))
    marked = gone.append_column(PLACE, pa.array(np.arange(len(gone))))
    text = (
        f"SELECT place FROM (SELECT v.{PLACE} AS place, -g.{N} AS copies, "
        f"row_number() OVER (PARTITION BY g.{PLACE} ORDER BY v.{PLACE}) AS copy "
        f"FROM rows AS v JOIN gone AS g ON {matches('v', 'g', rows.column_names)}) WHERE copy <= copies ORDER BY place"
    )
    places: np.ndarray[tuple[int], np.dtype[np.int64]]
    places = run_with({"rows": numbered, "gone": marked}, text).column("place").to_numpy()
    count = -int(gone.column(N).to_numpy().sum())
    if len(places) != count:
        raise InputError(
            BROKEN,
            f"{view} lacks {count - len(places)} of {count} rows that the refresh removes: its rows are not those "
            "of its query. `verify` names them, a full refresh corrects them",
        )
    return places


# -- cursors -----------------------------------------------------------------------------------------------------------


def _moves(
    view: TableView, definition: Definition, before: Vector, after: Vector, *, new_cursors: bool
) -> list[transaction_pb2.CursorMove]:
    """The moves of the view's cursors, which must stand at the vector that the refresh began at."""
    moves = []
    for name, source in definition.sources.items():
        expected = before.get(name, after[name])
        if new_cursors:
            expected = _made_cursor(view, definition.cursor, source.table_id, after[name])
        moves.append(
            transaction_pb2.CursorMove(
                table_id=source.table_id, name=definition.cursor, expected_version=expected, version=after[name]
            )
        )
    return moves


def _made_cursor(view: TableView, name: str, table_id: str, version: int) -> int:
    """The position of a cursor that is there, or is made at this version; one of another history is made again."""
    try:
        return view.client.create_cursor(table_id, name, version=version).cursor.version
    except MetaServiceError as error:
        if error.reason != "HISTORY_CHANGED":
            raise
        view.client.drop_cursor(table_id, name)
        return view.client.create_cursor(table_id, name, version=version).cursor.version
