"""The difference of a view's rows between two vectors, by the plan that reads the least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from worker.base.errors import InputError
from worker.views.delta import NONE, DeltaPlan, N, SomeGroups, delta_plan, whole_text
from worker.views.engine import Engine
from worker.views.group_totals import (
    JUDGED,
    OPEN,
    TOUCHED,
    VIEW,
    Groups,
    closed_text,
    groups_of,
    judged_text,
    losses_text,
    nullable_arguments,
    open_text,
    shows_all_counts,
    touched_keys_text,
    touched_plan,
)
from worker.views.operators import Operator, sources_of
from worker.views.totals import Sources

FAILED: Final = "VIEW_QUERY_FAILED"

Old = Callable[[pa.Table], pa.Table]  # of some keys, named as the view's columns: its rows with them


def difference(query: Operator, sources: Sources, old: Old) -> pa.Table:
    """Return the query's rows that come and go, with N. `old` reads the view's rows with some keys."""
    if sources_of(query).isdisjoint(sources.changed):
        return sources.run(DeltaPlan(f"SELECT *, CAST(0 AS BIGINT) AS {N} FROM ({whole_text(query, NONE)})", {}))
    groups = groups_of(query)
    rows = None if groups is None else by_totals(query, groups, sources, old)
    if rows is not None:
        return rows
    plan = delta_plan(query, sources.changed)
    assert plan is not None
    return sources.run(plan)


def by_totals(query: Operator, groups: Groups, sources: Sources, old: Old) -> pa.Table | None:
    """Return the difference by what the view's rows tell, with open groups by their rows; None if that can't be."""
    touched = touched_plan(groups, sources.changed)
    assert touched is not None
    with Engine() as engine:
        for name, rows in sources.relations(touched.text, touched.restrictions).items():
            engine.add(name, rows)
        try:
            touched_types = engine.keep(TOUCHED, touched.text)
            engine.add(VIEW, old(engine.run(touched_keys_text(groups))))
            view_types = engine.types_of(VIEW)
            is_counting = shows_all_counts(groups) and not len(engine.run(losses_text(groups)))
            no_nulls = frozenset() if is_counting else sources.without_nulls(nullable_arguments(groups))
            judged = judged_text(groups, touched_types, view_types, no_nulls)
            if judged is None:
                return None
            engine.keep(JUDGED, judged)
            closed = engine.run(closed_text(groups, touched_types, view_types, no_nulls))
            keys = engine.run(open_text(groups))
        except InputError as error:
            if error.reason != FAILED:  # such as a sum that is too large on its way
                raise
            return None
    if not len(keys):
        return closed
    plan = delta_plan(query, sources.changed, SomeGroups(groups.aggregate, OPEN))
    assert plan is not None
    return pa.concat_tables([closed, sources.run(plan, {OPEN: keys})])
