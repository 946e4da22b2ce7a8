"""Bugs of materialized views."""

from __future__ import annotations

from typing import Final

from tests.plant.bug import Bug

DELTAS = ("tests/views/test_deltas.py",)
SOURCES = ("tests/views/test_sources.py",)
REFRESHES = "tests/views/test_refreshes.py"
HISTORIES = (REFRESHES, "-k", "test_views_are_their_queries_over_random_histories")
QUERIES = ("tests/views/test_queries.py",)
SCHEDULES = "tests/views/test_schedules.py"
SUBQUERIES = ("tests/views/test_subqueries.py",)
WINDOWS = ("tests/views/test_windows.py",)
COSTS = ("tests/views/test_costs.py",)
TOTALS = ("tests/views/test_group_totals.py",)
CHOSEN = ("tests/arrow/test_chosen_rows.py",)
FORMS = ("tests/views/test_forms.py",)

BUGS: Final = (
    Bug(
        "EXCEPT ALL numbers the copies of a row over both sides",
        "worker/views/operator_builder.py",
        ((', quoted(f"{flags}.l"))\n            copy =', ",)\n            copy ="),),
        ("tests/views/test_deltas.py", "-k", "rows_of_both_sides"),
    ),
    Bug(
        "Arrow compares the floats of a view's sources, and NaN is not greater than 0.5",
        "worker/views/engine.py",
        (("        if not floats:\n", "        if True:\n"),),
        own_tests=("tests/views/test_engine.py", "-k", "floats_of_arrow"),
    ),
    Bug(
        "a query around UNION BY NAME misses the columns that only its second part has",
        "worker/views/unions.py",
        (("for name in side or ())", "for name in listed[0] or ())"),),
        own_tests=("tests/views/test_forms.py", "-k", "written_out"),
    ),
    Bug(
        "a value is greater than all rows though one is NULL",
        "worker/views/comparisons.py",
        (("exp.GT(this=rows, expression=values)", "exp.LT(this=rows, expression=values)"),),
        own_tests=("tests/views/test_forms.py", "-k", "written_out"),
    ),
    Bug(
        "indexes of lists are counted from 0 in one place and from 1 in another",
        "worker/views/dialect.py",
        (("INDEX_OFFSET = 0", "INDEX_OFFSET = 1"),),
        own_tests=("tests/views/test_forms.py", "-k", "indexes"),
    ),
    Bug(
        "rows that WHERE takes away are missing before a FULL JOIN",
        "worker/views/operator_builder.py",
        (('in ("", "LEFT") for join in joins', 'in ("", "LEFT", "FULL") for join in joins'),),
        own_tests=("tests/views/test_deltas.py", "-k", "full_join"),
    ),
    Bug(
        "ROLLUP leaves out the row over all rows",
        "worker/views/grouping_sets.py",
        (("range(len(columns), -1, -1)]", "range(len(columns), 0, -1)]"),),
        own_tests=("tests/views/test_deltas.py", "-k", "grouping_sets"),
    ),
    Bug(
        "a total keeps the smallest value when it went",
        "worker/views/totals.py",
        (('return f"(d.m{at} {beyond} b.v{at} AND NOT {came})"', 'return "FALSE"'),),
        own_tests=("tests/views/test_totals.py", "-k", "smallest"),
    ),
    Bug(
        "the sum of no value is 0",
        "worker/views/totals.py",
        (("CASE WHEN {count} <> 0 THEN", "CASE WHEN TRUE THEN"),),
        own_tests=("tests/views/test_totals.py", "-k", "told_by"),
    ),
    Bug(
        "a value for all rows that changed is compared with changed rows alone",
        "worker/views/totals.py",
        (("        if earlier.to_pylist() != after.to_pylist():\n", "        if not len(after):\n"),),
        own_tests=("tests/views/test_totals.py", "-k", "changes_or_stays"),
    ),
    Bug(
        "a join counts the pairs of two changed rows twice",
        "worker/views/delta.py",
        (
            (
                "self._beside(right, rights, operator.left, FROM, lefts)",
                "self._beside(right, rights, operator.left, TO, lefts)",
            ),
        ),
        DELTAS,
    ),
    Bug(
        "of a table that is joined only the rows are read whose keys came",
        "worker/views/delta.py",
        (
            (
                'f"SELECT DISTINCT {_numbered(keys)} FROM ({rows})"',
                'f"SELECT DISTINCT {_numbered(keys)} FROM ({rows}) WHERE {N} > 0"',
            ),
        ),
        DELTAS,
    ),
    Bug(
        "NULL is no key of a group that changed",
        "worker/views/delta.py",
        (('f"{text} IS NOT DISTINCT FROM {keys}.k{at}"', 'f"{text} = {keys}.k{at}"'),),
        DELTAS,
    ),
    Bug(
        "an outer join forgets the keys that changed on one side",
        "worker/views/delta.py",
        (("for text, keys in sides if text is not None]", "for text, keys in sides[-1:] if text is not None]"),),
        DELTAS,
    ),
    Bug(
        "a LEFT JOIN forgets the rows whose keys changed on the other side",
        "worker/views/delta.py",
        (
            (
                "        if moved is not None:\n            rows = ",
                "        if moved is not None and came is None:\n            rows = ",
            ),
        ),
        DELTAS,
    ),
    Bug(
        "NOT IN is true although the subquery has a NULL",
        "worker/views/subqueries.py",
        (('    rows = _joined(builder, "ANTI", rows, nulls, nulls.keys)\n', ""),),
        SUBQUERIES,
    ),
    Bug(
        "NULL is not in a subquery that has rows",
        "worker/views/subqueries.py",
        (('    return _joined(builder, "ANTI", rows, some, (*some.keys, is_null))\n', "    return rows\n"),),
        SUBQUERIES,
    ),
    Bug(
        "a count of no row in a subquery is NULL",
        "worker/views/subqueries.py",
        (
            (
                "        return exp.Coalesce(this=value, expressions=[exp.Literal.number(0)]) if is_count else value\n",
                "        return value\n",
            ),
        ),
        SUBQUERIES,
    ),
    Bug(
        "the partition that a row left is not computed again",
        "worker/views/delta.py",
        (
            (
                'f"SELECT DISTINCT {_numbered(operator.keys)} FROM ({self.delta(operator.child)})"',
                'f"SELECT DISTINCT {_numbered(operator.keys)} FROM ({self.delta(operator.child)}) WHERE {N} > 0"',
            ),
        ),
        WINDOWS,
    ),
    Bug(
        "rows before the changes that are equal count once",
        "worker/views/sources.py",
        (("FROM after EXCEPT ALL ", "FROM after EXCEPT "),),
        SOURCES,
    ),
    Bug(
        "the last files are not searched for the keys",
        "worker/views/key_rows.py",
        (("        if waiting:\n            yield self._chosen(waiting)\n", ""),),
        SOURCES,
    ),
    Bug(
        "rows with the largest of many keys are not read",
        "worker/views/key_rows.py",
        (("COMPARISON_LESS_OR_EQUAL", "COMPARISON_LESS"),),
        own_tests=("tests/views/test_key_rows.py", "-k", "with_the_keys"),
    ),
    Bug(
        "NULL is none of many keys",
        "worker/views/key_rows.py",
        (("nulls_equal=True", "nulls_equal=False"),),
        own_tests=("tests/views/test_key_rows.py", "-k", "with_the_keys"),
    ),
    Bug(
        "files with NULL are left out though NULL is a key",
        "worker/views/key_rows.py",
        (("if self.keys.null_count else []", "if False else []"),),
        own_tests=("tests/views/test_key_rows.py", "-k", "with_the_keys"),
    ),
    Bug(
        "a number with the last bits of a listed one counts as listed",
        "worker/arrow/scan/chosen_rows.py",
        (("near[self._numbers[np.searchsorted(self._numbers[:-1], some)] == some]", "near[some == some]"),),
        own_tests=CHOSEN,
    ),
    Bug(
        "NULL is the number that its bytes have",
        "worker/arrow/scan/chosen_rows.py",
        (("            places = places[~is_null[places]]\n", ""),),
        own_tests=CHOSEN,
    ),
    Bug(
        "a refresh reads the old rows of groups that grew alone",
        "worker/views/group_totals.py",
        (
            (
                'return f"SELECT {names} FROM {quoted(TOUCHED)}"',
                'return f"SELECT {names} FROM {quoted(TOUCHED)} WHERE n > 0"',
            ),
        ),
        own_tests=TOTALS,
    ),
    Bug(
        "equal rows are numbered in any order",
        "worker/views/windows.py",
        (("    terms += [exp.Ordered(", "    _ = [exp.Ordered("),),
        WINDOWS,
    ),
    Bug(
        "a strict view is refreshed as a whole because that is faster",
        "worker/views/refresh.py",
        (("INCREMENTAL if incremental or definition.is_strict else", "INCREMENTAL if incremental else"),),
        COSTS,
    ),
    Bug(
        "a refresh of more changed rows says what one of fewer takes",
        "worker/views/costs.py",
        (("if part[0] <= changed)", "if True)"),),
        COSTS,
    ),
    Bug(
        "a difference loses how often a row comes",
        "worker/views/refresh.py",
        (("np.repeat(np.arange(len(counts)), np.maximum(counts, 0))", "np.flatnonzero(counts > 0)"),),
        HISTORIES,
    ),
    Bug(
        "all copies of a row go with one of them",
        "worker/views/refresh.py",
        (("WHERE copy <= copies ORDER BY place", "ORDER BY place"),),
        HISTORIES,
    ),
    Bug(
        "the sources of a refresh are read at different instants",
        "worker/views/refresh.py",
        (
            (
                "        after = {name: heads[source.table_id] for name, source in definition.sources.items()}\n",
                (
                    "        after = {name: view.client.resolve_version(source.table_id).version "
                    "for name, source in definition.sources.items()}\n"
                ),
            ),
        ),
        (REFRESHES, "-k", "between_two_calls"),
    ),
    Bug(
        "a sum of floats depends on the order of rows",
        "worker/views/functions.py",
        (("        if name in ORDERED or not _is_exact(argument):\n", "        if name in ORDERED:\n"),),
        QUERIES,
    ),
    Bug(
        "anybody writes to a materialized view who names a vector",
        "metaservice/core/retention/view_refreshes.py",
        (
            (
                "moved.keys() == source_ids(meta.properties) and _vector(",
                "VECTOR in properties or _vector(",
            ),
        ),
        (REFRESHES, "-k", "only_looks_like"),
    ),
    Bug(
        "a view is refreshed while a view that it reads is",
        "worker/views/due_views.py",
        (("        source in running or (source in due and", "        (source in due and"),),
        (SCHEDULES, "-k", "order_in_which or only_for_them"),
    ),
    Bug(
        "a view is up to date although a DOWNSTREAM view that it reads is not",
        "worker/views/due_views.py",
        (
            (
                " or any(\n                self.is_behind(source)",
                " or any(\n                False and self.is_behind(source)",
            ),
        ),
        (SCHEDULES, "-k", "only_for_them"),
    ),
    Bug(
        "a view that failed is tried again at once",
        "worker/views/refresher.py",
        (("if self._views[view_id].rests_until_s > now_s]", "if self._views[view_id].rests_until_s < 0]"),),
        (SCHEDULES, "-k", "the_view_rests"),
    ),
    Bug(
        "every worker refreshes every view",
        "worker/views/refresher.py",
        (('state.last.worker in ("", self.worker)', 'state.last.worker in ("", state.last.worker)'),),
        (SCHEDULES, "-k", "two_workers"),
    ),
    Bug(
        "no worker takes over the view of one that is gone",
        "worker/views/refresher.py",
        (("return due_s > OVERDUE_S + 2 * state.last.seconds", "return False"),),
        (SCHEDULES, "-k", "takes_over"),
    ),
    Bug(
        "IF NOT EXISTS is forgotten",
        "worker/views/statements.py",
        (('if_not_exists=head["keeps"] is not None', 'if_not_exists=head["keeps"] is None'),),
        ("tests/views/test_statements.py",),
    ),
    Bug(
        "the lineage of a table ends after one view",
        "worker/views/lineage.py",
        (("        names = {ends_of(read)[1] for read in nearest} - seen\n", "        names = set()\n"),),
        ("tests/views/test_commands.py", "-k", "lineage"),
    ),
    Bug(
        "a group whose last row goes stays in the view",
        "worker/views/group_totals.py",
        (("WHERE NOT is_open AND rows_now > 0", "WHERE NOT is_open AND rows_now >= 0"),),
        TOTALS,
    ),
    Bug(
        "a sum without values is 0",
        "worker/views/group_totals.py",
        (('f"{counts[call.argument]} + c{at} = 0" if call.argument in counts else "FALSE"', '"FALSE"'),),
        TOTALS,
    ),
    Bug(
        "the group NULL is added to as if it were new",
        "worker/views/group_totals.py",
        (("IS NOT DISTINCT FROM t.k{at}", "= t.k{at}"),),
        TOTALS,
    ),
    Bug(
        "a changed row that comes twice is added once",
        "worker/views/group_totals.py",
        (("unnest(range(CAST(abs({N}) AS BIGINT)))", "unnest(range(1))"),),
        TOTALS,
    ),
    Bug(
        "the smallest value of a group stays after its row went",
        "worker/views/group_totals.py",
        (("OR NOT m{at} {inside} {old})", "AND NOT m{at} {inside} {old})"),),
        TOTALS,
    ),
    Bug(
        "a value that came takes the place of a smaller one that went",
        "worker/views/group_totals.py",
        (("AND NOT COALESCE({came}, FALSE))", "AND p{at} IS NULL)"),),
        TOTALS,
    ),
    Bug(
        "averages of decimals lose their scale",
        "worker/views/averages.py",
        (("count = exp.Paren(this=exp.Mul(this=count, expression=factor))", "pass"),),
        TOTALS,
    ),
    Bug(
        "LATERAL with LIMIT 2 takes one row",
        "worker/views/subqueries.py",
        (('{quoted(names[place])} <= {count.name}"', '{quoted(names[place])} < {count.name}"'),),
        FORMS,
    ),
    Bug(
        "LATERAL takes its first rows in the order of its columns",
        "worker/views/subqueries.py",
        (("zip(order, inner.values[len(outputs) :], strict=True)", "zip(order, inner.values, strict=False)"),),
        FORMS,
    ),
    Bug(
        "LATERAL takes a LIMIT of 5 percent for 5 rows",
        "worker/views/subqueries.py",
        ((' and limit.args.get("limit_options") is None', ""),),
        own_tests=(*SUBQUERIES, "-k", "says_why"),
    ),
    Bug(
        "constants of a UNION ALL come again with each refresh",
        "worker/views/delta.py",
        (('f"SELECT * FROM ({text}) WHERE FALSE" if side == NONE else text', "text"),),
        FORMS,
    ),
    Bug(
        "arg_max takes any of several rows",
        "worker/views/functions.py",
        (("if name in ORDERED or not", "if name not in ORDERED and not"),),
        FORMS,
    ),
)
