"""The statements of materialized views in `laketx sql`: Python carries them out, by DuckDB, where Spark has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, assert_never

from laketx.lake import Lake
from metaservice.client import NotFoundError
from worker.views.statements import (
    AlterView,
    CreateView,
    DropView,
    ExplainView,
    RefreshView,
    ShowViews,
    Statement,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement, with their columns in SQL's words; no columns: it is done."""

    columns: str = ""
    rows: tuple[tuple[Any, ...], ...] = ()


def carry_out(lake: Lake, statement: Statement, whole: Callable[[str], str]) -> Answer:
    """Carry out a statement; `whole` makes a name that is written in the session a name of the lake."""
    match statement:
        case CreateView():
            return _create(lake, statement, whole(statement.name))
        case RefreshView(name, full, incremental):
            done = lake.materialized_view(whole(name)).refresh(full=full, incremental=incremental)
            columns = "kind string, version bigint, rows_added bigint, rows_removed bigint, reason string"
            return Answer(columns, ((done.kind, done.version, done.rows_added, done.rows_removed, done.reason),))
        case ExplainView(name):
            return Answer("plan string", ((lake.materialized_view(whole(name)).explain(),),))
        case AlterView(name, action):
            view = lake.materialized_view(whole(name))
            if action:
                (view.suspend if action == "suspend" else view.resume)()
            else:
                view.alter(schedule=statement.schedule, target_lag=statement.target_lag)
        case DropView(name, if_exists):
            try:
                lake.materialized_view(whole(name)).drop()
            except NotFoundError:
                if not if_exists:
                    raise
        case ShowViews(namespace):
            statuses = [lake.materialized_view(name).status() for name in lake.materialized_views(namespace)]
            columns = "name string, schedule string, suspended boolean, version bigint, behind bigint, failure string"
            rows = [
                (each.name, each.schedule, each.is_suspended, each.version, sum(each.behind.values()), each.failure)
                for each in statuses
            ]
            return Answer(columns, tuple(rows))
        case _:
            assert_never(statement)
    return Answer()


def _create(lake: Lake, statement: CreateView, name: str) -> Answer:
    if statement.if_not_exists:
        try:
            lake.materialized_view(name)
        except NotFoundError:
            pass
        else:
            return Answer()
    lake.create_materialized_view(
        name,
        statement.query,
        strict=statement.strict,
        partition_by=statement.partition_by,
        comment=statement.comment,
        with_data=statement.with_data,
        schedule=statement.schedule,
        target_lag=statement.target_lag,
    )
    return Answer()
