"""Builds the operators of a qualified query, of which each has a rule; raises NoRule for a part that has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from sqlglot import exp

from worker.base.errors import InputError
from worker.views.dialect import DIALECT
from worker.views.expressions import aggregates_of, aggregates_of_any, conjuncts, free_columns, has_subquery
from worker.views.functions import refused
from worker.views.grouping_sets import grouping_of, grouping_sets, null_of
from worker.views.join_order import equal_keys, joined_in_order
from worker.views.operators import (
    LAKE,
    Aggregate,
    Constant,
    Filter,
    Join,
    NoRule,
    Operator,
    Project,
    Scan,
    UnionAll,
    Window,
    columns_of,
    quoted,
)
from worker.views.subqueries import correlated_rows, filtered, marked
from worker.views.total_types import have_totals
from worker.views.windows import windowed, windows_of, with_names

KNOWN_CLAUSES: Final = frozenset(
    [
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "distinct",
        "with_",
        "order",
        "limit",
        "offset",
        "kind",
        "hint",
        "qualify",
    ]
)


class OperatorBuilder:
    """Builds operators from a qualified query. Names that begin with a dot are the builder's own."""

    def __init__(self, uses: Mapping[str, tuple[str, ...]]) -> None:
        self._uses = uses
        self._numbers = 0

    def query(self, node: exp.Expr, ctes: Mapping[str, exp.Query]) -> Operator:
        query = node.unnest() if isinstance(node, exp.Subquery) else node
        with_ = query.args.get("with_")
        if with_ is not None:
            ctes = {**ctes, **{cte.alias: cte.this for cte in with_.expressions}}
        if query.args.get("limit") is not None or query.args.get("offset") is not None:
            raise NoRule("LIMIT has no key to restrict by")
        if isinstance(query, exp.Union):
            return self._union(query, ctes)
        if isinstance(query, exp.Intersect | exp.Except):
            return self._compared(query, ctes)
        if isinstance(query, exp.Select):
            return self._select(query, ctes)
        raise NoRule(f"{type(query).__name__.upper()} has no rule yet")

    def name(self) -> str:
        self._numbers += 1
        return f".{self._numbers}"

    def _union(self, query: exp.Union, ctes: Mapping[str, exp.Query]) -> Operator:
        sides = [self.query(side, ctes) for side in (query.this, query.expression)]
        prefix = self.name()
        listed = [{_short(name): name for name in columns_of(side)} for side in sides]
        names = [f"{prefix}.{name}" for name in dict.fromkeys(name for each in listed for name in each)]
        if query.args.get("by_name"):
            pairs = [[(_or_null(each, _short(name)), name) for name in names] for each in listed]
        elif len(columns_of(sides[1])) != len(columns_of(sides[0])):
            raise refused("the parts of a UNION have different numbers of columns")
        else:
            names = [f"{prefix}.{_short(name)}" for name in columns_of(sides[0])]
            pairs = [list(zip(map(quoted, columns_of(side)), names, strict=True)) for side in sides]
        whole = UnionAll(tuple(Project(side, tuple(columns)) for side, columns in zip(sides, pairs, strict=True)))
        return _distinct(whole, self.name()) if query.args.get("distinct") else whole

    def _compared(self, query: exp.SetOperation, ctes: Mapping[str, exp.Query]) -> Operator:
        """INTERSECT and EXCEPT: the distinct rows of both sides as groups, which know the sides that have them.

        With ALL the copies of a row on each side are numbered. The copies 1 to min(l, r) are on both sides of an
        INTERSECT, the copies r + 1 to l on the left side alone of an EXCEPT.
        """
        sides = [self.query(side, ctes) for side in (query.this, query.expression)]
        rows, flags, groups, has = (self.name() for _ in range(4))
        columns = [_short(name) for name in columns_of(sides[0])]
        if len(columns_of(sides[1])) != len(columns) or query.args.get("by_name"):
            raise NoRule(f"{query.key.upper()} of different columns has no rule")
        parts = []
        for side, (left, right) in zip(sides, (("1", "0"), ("0", "1")), strict=True):
            named = zip(map(quoted, columns_of(side)), (f"{rows}.{column}" for column in columns), strict=True)
            parts.append(Project(side, (*named, (left, f"{flags}.l"), (right, f"{flags}.r"))))
        keys = tuple((quoted(f"{rows}.{column}"), f"{groups}.{column}") for column in columns)
        union: Operator = UnionAll(tuple(parts))
        if not query.args.get("distinct"):
            of_a_side = (*(key for key, _ in keys), quoted(f"{flags}.l"))
            copy = f"row_number() OVER (PARTITION BY {', '.join(of_a_side)})"
            union = Window(union, of_a_side, ((copy, f"{flags}.n"),))
            keys = (*keys, (quoted(f"{flags}.n"), f"{has}.n"))
        grouped = Aggregate(
            union,
            keys,
            tuple((f"MAX({quoted(f'{flags}.{side}')})", f"{has}.{side}") for side in "lr"),
        )
        is_right = 1 if isinstance(query, exp.Intersect) else 0
        both = Filter(grouped, f"{quoted(f'{has}.l')} = 1 AND {quoted(f'{has}.r')} = {is_right}")
        return Project(both, tuple((quoted(f"{groups}.{column}"), f"{rows}.{column}") for column in columns))

    def _select(self, select: exp.Select, ctes: Mapping[str, exp.Query]) -> Operator:
        unknown = {name for name, value in select.args.items() if value and name not in KNOWN_CLAUSES}
        if unknown or select.args.get("kind"):
            raise NoRule(f"{', '.join(sorted(unknown)) or 'this SELECT'} has no rule yet".upper())
        where = select.args.get("where")
        conditions = [] if where is None else conjuncts(where.this)
        rows, left = self.relations(select, ctes, conditions)
        if where is not None and len(left) == len(conditions) and not has_subquery(where.this):
            left = [where.this]
        rows = filtered(self, rows, left, ctes)
        outputs = [(output.unalias(), output.alias_or_name) for output in select.expressions]
        parts = [output for output, _ in outputs]
        qualify = select.args.get("qualify")
        if qualify is not None:
            parts.append(qualify.this)
        text: Callable[[exp.Expr], str] = self.text
        if _is_grouped(select):
            rows, text = self._grouped(select, rows, parts, ctes)
        else:
            for at, part in enumerate(parts):
                if has_subquery(part):
                    rows, parts[at] = marked(self, rows, part, ctes)
        rows, windows = windowed(rows, [window for part in parts for window in windows_of(part)], text, self.name())
        texts = [text(with_names(part, windows)) for part in parts]
        if qualify is not None:
            rows = Filter(rows, texts.pop())
        prefix = self.name()
        names = [f"{prefix}.{name}" for _, name in outputs]
        if len(set(names)) < len(names):
            raise refused("two columns of a query have one name: rename one with AS")
        projected = Project(rows, tuple(zip(texts, names, strict=True)))
        return _distinct(projected, self.name()) if select.args.get("distinct") else projected

    def relations(
        self, select: exp.Select, ctes: Mapping[str, exp.Query], conditions: Sequence[exp.Expr]
    ) -> tuple[Operator, Sequence[exp.Expr]]:
        """Return the rows of FROM and its joins, and those of the conditions in WHERE that they need not meet yet."""
        from_, joins = select.args.get("from_"), list(select.args.get("joins") or ())
        if from_ is None:
            return Constant("SELECT TRUE AS one", ("one",)), conditions
        parts, ons = [self._relation(from_.this, ctes)], list[exp.Expr]()
        while joins and _is_plain(joins[0]):
            join = joins.pop(0)
            parts.append(self._relation(join.this, ctes))
            on = join.args.get("on")
            if on is not None:
                self.text(on)  # it has no subquery
                ons += conjuncts(on)
        names = [name for part in parts for name in columns_of(part)]
        if len(set(names)) < len(names):
            raise _one_name()
        are_kept = len(parts) > 1 and all((join.side or "").upper() in ("", "LEFT") for join in joins)
        rows, left = joined_in_order(parts, [*ons, *(conditions if are_kept else ())], self.text)
        are_on = {id(each) for each in ons}
        rows = filtered(self, rows, [each for each in left if id(each) in are_on], ctes)
        for join in joins:
            rows = self._joined(rows, join, ctes)
        return rows, [each for each in left if id(each) not in are_on] if are_kept else conditions

    def _relation(self, node: exp.Expr, ctes: Mapping[str, exp.Query]) -> Operator:
        alias = node.alias_or_name
        if node.args.get("joins") or node.args.get("pivots") or node.args.get("laterals"):
            raise NoRule("nested joins and pivots have no rule yet")
        if isinstance(node, exp.Table) and node.name.startswith(LAKE):
            source = node.name.removeprefix(LAKE)
            return Scan(source, tuple((name, f"{alias}.{name}") for name in self._uses[source]))
        if isinstance(node, exp.Table) and isinstance(node.this, exp.GenerateSeries):
            return self._constant(node)
        if isinstance(node, exp.Table):
            inner = self.query(ctes[node.name], {name: cte for name, cte in ctes.items() if name != node.name})
        elif isinstance(node, exp.Subquery):
            inner = self.query(node.this, ctes)
        elif isinstance(node, exp.Values | exp.Unnest) and not node.find(exp.Column, exp.Query):
            return self._constant(node)
        else:
            raise NoRule(f"{type(node).__name__.lower()} in FROM has no rule yet")
        names = [_short(name) for name in columns_of(inner)]
        if isinstance(node.args.get("alias"), exp.TableAlias) and node.args["alias"].columns:
            names = [column.name for column in node.args["alias"].columns]
        pairs = zip(columns_of(inner), names, strict=True)
        return Project(inner, tuple((quoted(name), f"{alias}.{short}") for name, short in pairs))

    @staticmethod
    def _constant(node: exp.Expr) -> Constant:
        """The rows that a part of FROM writes out."""
        columns = node.alias_column_names
        if not columns or node.args.get("offset"):
            raise NoRule(f"{type(node).__name__.lower()} in FROM without names of its columns has no rule yet")
        names = tuple(f"{node.alias}.{column}" for column in columns)
        listed = ", ".join(f"{quoted(column)} AS {quoted(name)}" for column, name in zip(columns, names, strict=True))
        return Constant(f"SELECT {listed} FROM {node.sql(dialect=DIALECT)}", names)

    def _unnested(self, rows: Operator, node: exp.Unnest) -> Operator:
        """The rows, each as often as a list of it has elements, with the elements."""
        columns = node.alias_column_names
        if node.args.get("offset") or not len(columns) == len(node.expressions) == 1:
            raise NoRule("UNNEST of several lists, or WITH ORDINALITY, has no rule yet")
        kept = tuple((quoted(name), name) for name in columns_of(rows))
        element = f"UNNEST({self.text(node.expressions[0])})"
        return Project(rows, (*kept, (element, f"{node.alias}.{columns[0]}")))

    def _joined(self, left: Operator, join: exp.Join, ctes: Mapping[str, exp.Query]) -> Operator:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.method or join.args.get("using") or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            raise NoRule(f"{join.method or ''} {side} {kind} JOIN has no rule yet".strip())
        if isinstance(join.this, exp.Unnest) and join.this.find(exp.Column) is not None:
            if side or kind in ("SEMI", "ANTI") or join.args.get("on") not in (None, exp.true()):
                raise NoRule(f"{side} {kind} JOIN of UNNEST has no rule yet".strip())
            return self._unnested(left, join.this)
        if isinstance(join.this, exp.Lateral):
            return self._lateral(left, join, ctes)
        right = self._relation(join.this, ctes)
        on = join.args.get("on")
        word = side or (kind if kind in ("SEMI", "ANTI") else "INNER")
        if len(set(columns_of(left)) | set(columns_of(right))) < len(columns_of(left)) + len(columns_of(right)):
            raise _one_name()
        equal = [] if on is None else conjuncts(on)
        keys = tuple(equal_keys(equal, set(columns_of(left)), set(columns_of(right)), self.text))
        if word != "INNER" and not keys:
            raise NoRule(f"a {word} JOIN without equal columns has no key to restrict by")
        return Join(word, left, right, "TRUE" if on is None else self.text(on), keys)

    def _lateral(self, left: Operator, join: exp.Join, ctes: Mapping[str, exp.Query]) -> Operator:
        """Each row with the rows of a subquery that depends on it."""
        side, node = (join.side or "").upper(), join.this
        if side not in ("", "LEFT") or join.args.get("on") not in (None, exp.true()):
            raise NoRule("LATERAL with another condition than TRUE has no rule yet")
        rows, values = correlated_rows(self, left, node.this, ctes, is_left=side == "LEFT")
        names = [f"{node.alias}.{name}" for name in node.alias_column_names or names_of(node.this)]
        kept = tuple((quoted(name), name) for name in columns_of(left))
        return Project(rows, (*kept, *zip(map(self.text, values), names, strict=True)))

    def _grouped(
        self, select: exp.Select, rows: Operator, outputs: list[exp.Expr], ctes: Mapping[str, exp.Query]
    ) -> tuple[Operator, Callable[[exp.Expr], str]]:
        """The rows grouped, and what gives the text of an expression over them; outputs get columns for subqueries."""
        group, having = select.args.get("group"), select.args.get("having")
        conditions = [] if having is None else [having.this]
        calls = [call for part in (*outputs, *conditions) for call in aggregates_of(part)]
        sets = [()] if group is None else grouping_sets(group)
        if group is not None and group.args.get("all"):
            sets = [tuple(output for output in outputs if not aggregates_of(output) and not windows_of(output))]
        sets = [tuple(key for key in keys if key.find(exp.Column) is not None) for keys in sets]
        if group is not None and not any(sets):
            raise NoRule("a GROUP BY without columns has no key to restrict by")
        keys = list(dict.fromkeys(key for each in sets for key in each))
        prefix = self.name()
        names: dict[exp.Expr, str] = {}
        for part in (*keys, *calls):
            names.setdefault(part, f"{prefix}.{len(names)}")
        calls = [call for call in dict.fromkeys(calls) if call not in keys]
        texts: dict[exp.Expr, str] = {}
        for part in (*keys, *calls):
            instead = part
            if has_subquery(part):
                rows, instead = marked(self, rows, part, ctes)
            texts[part] = self.text(instead.unnest())
        if len(sets) == 1:
            grouped: Operator = self._groups(rows, {key: names[key] for key in keys}, calls, names, texts)
        else:
            grouped = UnionAll(tuple(self._one_set(rows, keys, each, calls, names, texts) for each in sets))
        if having is not None:
            grouped, condition = self._marked_groups(grouped, having.this, names, ctes)
            grouped = Filter(grouped, self._over(condition, names))
        for at, part in enumerate(outputs):
            grouped, outputs[at] = self._marked_groups(grouped, part, names, ctes)
        return grouped, partial(self._over, names=names)

    def _marked_groups(
        self, grouped: Operator, expression: exp.Expr, names: Mapping[exp.Expr, str], ctes: Mapping[str, exp.Query]
    ) -> tuple[Operator, exp.Expr]:
        """The groups with columns for the subqueries of an expression, and the expression over these columns."""
        if not has_subquery(expression) or expression in names:
            return grouped, expression
        queries = [node for node in expression.walk(prune=_is_query) if _is_query(node)]
        outer = {column for query in queries for column in free_columns(query, query)}
        if outer - set(names):
            raise _not_grouped(next(iter(outer - set(names))))
        again = {f"{column.table}.{column.name}": names[column] for column in outer}
        kept = tuple((quoted(name), name) for name in columns_of(grouped))
        added = tuple((quoted(name), flat) for flat, name in again.items() if flat not in columns_of(grouped))
        copy = exp.Paren(this=expression.copy())
        for node in list(copy.walk(prune=lambda node: _is_query(node) or node in names)):
            if node in names:
                column = _column(names[node])
                column.type = node.type
                node.replace(column)
        return marked(self, Project(grouped, (*kept, *added)) if added else grouped, copy, ctes)

    def _groups(
        self,
        rows: Operator,
        keys: Mapping[exp.Expr, str],
        calls: Sequence[exp.Expr],
        names: Mapping[exp.Expr, str],
        texts: Mapping[exp.Expr, str],
    ) -> Aggregate:
        return Aggregate(
            rows,
            tuple((texts[key], name) for key, name in keys.items()),
            tuple((texts[call], names[call]) for call in calls),
            has_totals=not keys and have_totals(calls),
        )

    def _one_set(
        self,
        rows: Operator,
        keys: Sequence[exp.Expr],
        own: Sequence[exp.Expr],
        calls: Sequence[exp.Expr],
        names: Mapping[exp.Expr, str],
        texts: Mapping[exp.Expr, str],
    ) -> Operator:
        """Return the groups of one of several grouping sets, with NULL for the keys of the other sets."""
        prefix = self.name()
        inner = {part: f"{prefix}.{at}" for at, part in enumerate((*own, *calls))}
        of_set = [call for call in calls if isinstance(call, exp.Grouping | exp.GroupingId)]
        added = [call for call in calls if call not in of_set]
        if not own and not added:
            added = [exp.Count(this=exp.Star(), big_int=True)]
            inner[added[0]] = f"{prefix}.n"
            texts = {**texts, added[0]: self.text(added[0])}
        groups = self._groups(rows, {key: inner[key] for key in own}, added, inner, texts)
        shown = {key: quoted(inner[key]) if key in own else null_of(key) for key in keys}
        shown |= {call: grouping_of(call, own) if call in of_set else quoted(inner[call]) for call in calls}
        return Project(groups, tuple((text, names[part]) for part, text in shown.items()))

    def _over(self, expression: exp.Expr, names: Mapping[exp.Expr, str]) -> str:
        """The text of an expression over groups."""

        def named(node: exp.Expr) -> exp.Expr:
            is_function = isinstance(node.parent, exp.Window) and node.arg_key == "this"
            return _column(names[node]) if node in names and not is_function else node

        replaced = expression.copy().transform(named, copy=False)
        left = [column for column in replaced.find_all(exp.Column) if column.table]
        if left:
            raise _not_grouped(left[0])
        return self._checked(replaced)

    def text(self, expression: exp.Expr) -> str:
        """The text of an expression over the columns of relations."""

        def flat(node: exp.Expr) -> exp.Expr:
            return _column(f"{node.table}.{node.name}") if isinstance(node, exp.Column) and node.table else node

        return self._checked(expression.copy().transform(flat, copy=False))

    @staticmethod
    def _checked(expression: exp.Expr) -> str:
        if expression.find(exp.Query) is not None:
            raise NoRule("a subquery in an expression has no rule yet")
        return expression.sql(dialect=DIALECT)


def _not_grouped(column: exp.Column) -> InputError:
    return refused(f"{column.name} is neither grouped nor aggregated: add it to GROUP BY")


def _one_name() -> InputError:
    return refused("two tables of a join have one name: give them aliases")


def _is_plain(join: exp.Join) -> bool:
    """Whether it is an inner join of a relation that doesn't depend on the ones before."""
    is_inner = not join.side and (join.kind or "").upper() in ("", "INNER", "CROSS")
    is_list = isinstance(join.this, exp.Unnest) and join.this.find(exp.Column) is not None
    depends = is_list or isinstance(join.this, exp.Lateral)
    return is_inner and not join.method and not join.args.get("using") and not depends


def names_of(query: exp.Query) -> tuple[str, ...]:
    """Return the names of a query's columns; UNION BY NAME has those of both sides."""
    plain = query.unnest() if isinstance(query, exp.Subquery) else query
    assert isinstance(plain, exp.Query)
    if isinstance(plain, exp.SetOperation):
        more = names_of(plain.expression) if plain.args.get("by_name") else ()
        return tuple(dict.fromkeys((*names_of(plain.this), *more)))
    return tuple(output.alias_or_name for output in plain.selects)


def _or_null(columns: Mapping[str, str], name: str) -> str:
    return quoted(columns[name]) if name in columns else "NULL"


def _short(name: str) -> str:
    """The name of a query's column without the builder's prefix."""
    return name.split(".", 2)[2]


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _distinct(rows: Operator, prefix: str) -> Aggregate:
    names = columns_of(rows)
    return Aggregate(rows, tuple((quoted(name), f"{prefix}.{_short(name)}") for name in names), ())


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Query)


def _is_grouped(select: exp.Select) -> bool:
    parts = [select.args.get("group"), select.args.get("having")]
    return any(part is not None for part in parts) or bool(aggregates_of_any(select.expressions))
