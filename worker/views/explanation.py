"""EXPLAIN of a view: the class of each operator with its reason, and the delta plan."""

from __future__ import annotations

from worker.connection.table_view import TableView
from worker.views.classes import classified
from worker.views.costs import expected_seconds, usual_change
from worker.views.definition import Definition
from worker.views.delta import delta_text, whole_text
from worker.views.group_totals import groups_of, touched_plan
from worker.views.operators import Work
from worker.views.refresh import past_refreshes, query_of
from worker.views.sources import SourceTables, named_if_dropped
from worker.views.totals import with_totals


def explain(view: TableView) -> str:
    """Return the explanation as text. Raises BlockedError or NotFoundError if a source was dropped."""
    definition = Definition.of(view.meta)
    sources = definition.sources
    with named_if_dropped(definition):
        heads = {name: view.client.resolve_version(source.table_id).version for name, source in sources.items()}
        query = query_of(definition, SourceTables(view.lake, sources, heads, heads))
    operators = classified(query.operator)
    is_full = any(step.work is Work.FULL for step in operators)
    width = max(len(step.work.words) for step in operators)
    lines = [f"{view.name}: each refresh is {'full' if is_full else 'incremental'}", ""]
    lines += [f"  {step.work.words:<{width}}  {step.operator}: {step.reason}" for step in operators]
    past = past_refreshes(view, definition)
    expected = expected_seconds(past, usual_change(past)).text
    if expected and not is_full:
        lines += ["", f"  expected after {usual_change(past)} changed rows, as often: {expected}"]
    operator, totals = with_totals(query.operator)
    changed = (*sources, *totals)
    groups = None if is_full else groups_of(operator)
    touched = None if groups is None else touched_plan(groups, changed)
    title = "the delta plan, if every source changed, for DuckDB:"
    if is_full:
        title, plan = "the query, for DuckDB:", whole_text(query.operator)
    elif touched is not None:
        title, plan = "what came and went of each group, if every source changed, for DuckDB:", touched.text
    else:
        plan = delta_text(operator, changed) or ""
    return "\n".join(
        [
            *lines,
            "",
            title,
            "",
            plan,
        ]
    )
