"""The query of a materialized view, from text to operators: parsed, qualified, checked, and made definite.

    statement = parse(text)                  the tables that it names
    query = analyse(statement, schemas)      its operators, its columns, what it uses of each table

Names are those of DuckDB: their case means nothing, and columns of views are in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, SqlglotError, TokenError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from worker.views.averages import split_averages
from worker.views.delta import N
from worker.views.functions import check_functions, refused
from worker.views.operators import (
    DIALECT,
    LAKE,
    Aggregate,
    Filter,
    Join,
    Opaque,
    Operator,
    Project,
    Scan,
    UnionAll,
    columns_of,
    quoted,
)

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
    ]
)
AGGREGATES: Final = (exp.AggFunc, exp.Filter, exp.WithinGroup)


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed query. `tables` are the names of the lake's tables in it, as they are written there."""

    text: str
    tree: exp.Query
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query as operators. `uses` are the columns that it reads of each table; `canonical` is its text, resolved."""

    canonical: str
    operator: Operator
    columns: tuple[str, ...]
    uses: Mapping[str, tuple[str, ...]]


class _Whole(Exception):  # noqa: N818 - never leaves this module
    """This part of a query has no rule: the query is computed as a whole."""


# -- parsing -----------------------------------------------------------------------------------------------------------


def parse(text: str) -> Statement:
    """Parse a query and find its tables. Raises InputError for anything else."""
    try:
        statements = [each for each in sqlglot.parse(text, dialect=DIALECT) if each is not None]
    except (ParseError, TokenError) as error:
        raise refused(f"the query can't be parsed: {_plain(error)}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise refused("a view is one SELECT")
    tree = statements[0]
    for forbidden in (exp.Placeholder, exp.Parameter, exp.TableSample, exp.Into, exp.Lock):
        if tree.find(forbidden) is not None:
            raise refused(f"a view can't have {forbidden.__name__.lower()}s")
    if any(with_.args.get("recursive") for with_ in tree.find_all(exp.With)):
        raise refused("recursive queries are not supported")
    named = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables: dict[str, None] = {}
    for table in list(tree.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or table.catalog:
            raise refused(
                f"{table.sql(dialect=DIALECT)} is no table of the lake: a view reads tables of the lake alone"
            )
        if not table.db and table.name.lower() in named:
            continue
        name = f"{table.db}.{table.name}" if table.db else table.name
        if "@" in name:
            raise refused(f"{name} is on a branch: a view reads tables of the lake itself")
        tables[name.lower()] = None
        alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name))
        table.set("db", None)
        table.set("this", exp.to_identifier(f"{LAKE}{name.lower()}", quoted=True))
        table.set("alias", alias)
    if not tables:
        raise refused("the query reads no table")
    return Statement(text, tree, tuple(tables))


def analyse(statement: Statement, schemas: Mapping[str, Mapping[str, str]]) -> Query:
    """Return the query as operators. `schemas` has the columns of each table with their types, in DuckDB's words."""
    schema: dict[str, object] = {
        f"{LAKE}{name}": {column.lower(): kind for column, kind in columns.items()} for name, columns in schemas.items()
    }
    try:
        qualified = qualify(
            statement.tree.copy(), schema=schema, dialect=DIALECT, identify=True, quote_identifiers=True
        )
        tree = annotate_types(qualified, schema=schema, dialect=DIALECT)
    except (OptimizeError, SqlglotError) as error:
        raise refused(f"the query can't be resolved: {_plain(error)}") from None
    assert isinstance(tree, exp.Query)
    canonical = _canonical(tree)
    check_functions(tree)
    _check_distinct_on(tree)
    split_averages(tree, schemas)
    _order_limits(tree)
    names = _output_names(tree)
    uses = _uses(tree, schemas)
    try:
        built = _Builder(uses).query(tree, {})
        operator: Operator = Project(
            built, tuple((quoted(inner), name) for inner, name in zip(columns_of(built), names, strict=True))
        )
    except _Whole as whole:
        text = tree.sql(dialect=DIALECT)
        operator = Opaque(text, tuple(uses), names, str(whole))
    return Query(canonical, operator, names, uses)


def _canonical(tree: exp.Query) -> str:
    copy = tree.copy()
    for table in copy.find_all(exp.Table):
        if table.name.startswith(LAKE):
            namespace, dot, name = table.name.removeprefix(LAKE).rpartition(".")
            table.set("this", exp.to_identifier(name, quoted=True))
            table.set("db", exp.to_identifier(namespace, quoted=True) if dot else None)
    return copy.sql(dialect=DIALECT)


def _plain(error: Exception) -> str:
    """The error without the colours and lines of a terminal."""
    text = str(error).split("\n", 1)[0]
    return text.replace("\x1b[4m", "").replace("\x1b[0m", "").replace(f'"{LAKE}', '"').replace(LAKE, "")


def _check_distinct_on(tree: exp.Query) -> None:
    for distinct in tree.find_all(exp.Distinct):
        if distinct.args.get("on") is not None:
            raise refused("DISTINCT ON takes any row of several: use GROUP BY with min or max")


def _output_names(tree: exp.Query) -> tuple[str, ...]:
    names = tuple(output.alias_or_name for output in tree.selects)
    for name in names:
        if not name or name.startswith("_col_"):
            raise refused("a column of the view has no name: write `… AS name`")
        if name == N or name.startswith("_"):
            raise refused(f"a column of a view can't be named {name}: names with _ at the beginning are LakeTX's own")
        if names.count(name) > 1:
            raise refused(f"two columns of the view are named {name}: rename one with AS")
    return names


def _order_limits(tree: exp.Query) -> None:
    """A LIMIT takes the first rows by its order and then by all columns: which rows are kept is then definite."""
    for query in list(tree.find_all(exp.Select, exp.SetOperation)):
        if query.args.get("limit") is None and query.args.get("offset") is None:
            if query is tree:
                query.set("order", None)  # a table has no order
            continue
        order = query.args.get("order")
        terms = list(order.expressions) if order is not None else []
        names = [output.alias_or_name for output in query.selects]
        terms += [exp.Ordered(this=exp.column(exp.to_identifier(name, quoted=True))) for name in names]
        query.set("order", exp.Order(expressions=terms))


def _uses(tree: exp.Query, schemas: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """The columns that the query names of each table; of one whose rows are only counted, the first."""
    aliases: dict[str, set[str]] = {}
    for table in tree.find_all(exp.Table):
        if table.name.startswith(LAKE):
            aliases.setdefault(table.name.removeprefix(LAKE), set()).add(table.alias_or_name)
    named = {(column.table, column.name) for column in tree.find_all(exp.Column)}
    uses = {}
    for source, of in aliases.items():
        columns = [name.lower() for name in schemas[source]]
        used = tuple(name for name in columns if any((alias, name) in named for alias in of))
        uses[source] = used or tuple(columns[:1])
    return uses


# -- operators ---------------------------------------------------------------------------------------------------------


class _Builder:
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
            raise _Whole("LIMIT has no key to restrict by")
        if isinstance(query, exp.Union):
            return self._union(query, ctes)
        if isinstance(query, exp.Select):
            return self._select(query, ctes)
        raise _Whole(f"{type(query).__name__.upper()} has no rule yet")

    def _name(self) -> str:
        self._numbers += 1
        return f".{self._numbers}"

    def _union(self, query: exp.Union, ctes: Mapping[str, exp.Query]) -> Operator:
        sides = [self.query(side, ctes) for side in (query.this, query.expression)]
        if query.args.get("by_name"):
            raise _Whole("UNION BY NAME has no rule yet")
        prefix = self._name()
        names = [f"{prefix}.{_short(name)}" for name in columns_of(sides[0])]
        if len(columns_of(sides[1])) != len(names):
            raise refused("the parts of a UNION have different numbers of columns")
        pairs = [zip(map(quoted, columns_of(side)), names, strict=True) for side in sides]
        whole = UnionAll(tuple(Project(side, tuple(columns)) for side, columns in zip(sides, pairs, strict=True)))
        return _distinct(whole, self._name()) if query.args.get("distinct") else whole

    def _select(self, select: exp.Select, ctes: Mapping[str, exp.Query]) -> Operator:
        unknown = {name for name, value in select.args.items() if value and name not in KNOWN_CLAUSES}
        if unknown or select.args.get("kind"):
            raise _Whole(f"{', '.join(sorted(unknown)) or 'this SELECT'} has no rule yet".upper())
        from_ = select.args.get("from_")
        if from_ is None:
            raise _Whole("a SELECT without FROM has no rule")
        rows = self._relation(from_.this, ctes)
        for join in select.args.get("joins") or ():
            rows = self._joined(rows, join, ctes)
        where = select.args.get("where")
        if where is not None:
            rows = Filter(rows, self._text(where.this))
        outputs = [(output.unalias(), output.alias_or_name) for output in select.expressions]
        rows, texts = self._grouped(select, rows, [output for output, _ in outputs])
        prefix = self._name()
        names = [f"{prefix}.{name}" for _, name in outputs]
        if len(set(names)) < len(names):
            raise refused("two columns of a query have one name: rename one with AS")
        projected = Project(rows, tuple(zip(texts, names, strict=True)))
        return _distinct(projected, self._name()) if select.args.get("distinct") else projected

    def _relation(self, node: exp.Expr, ctes: Mapping[str, exp.Query]) -> Operator:
        alias = node.alias_or_name
        if node.args.get("joins") or node.args.get("pivots") or node.args.get("laterals"):
            raise _Whole("nested joins and pivots have no rule yet")
        if isinstance(node, exp.Table) and node.name.startswith(LAKE):
            source = node.name.removeprefix(LAKE)
            return Scan(source, tuple((name, f"{alias}.{name}") for name in self._uses[source]))
        if isinstance(node, exp.Table):
            inner = self.query(ctes[node.name], {name: cte for name, cte in ctes.items() if name != node.name})
        elif isinstance(node, exp.Subquery):
            inner = self.query(node.this, ctes)
        else:
            raise _Whole(f"{type(node).__name__.lower()} in FROM has no rule yet")
        names = [_short(name) for name in columns_of(inner)]
        if isinstance(node.args.get("alias"), exp.TableAlias) and node.args["alias"].columns:
            names = [column.name for column in node.args["alias"].columns]
        pairs = zip(columns_of(inner), names, strict=True)
        return Project(inner, tuple((quoted(name), f"{alias}.{short}") for name, short in pairs))

    def _joined(self, left: Operator, join: exp.Join, ctes: Mapping[str, exp.Query]) -> Operator:
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if join.method or join.args.get("using") or kind not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI"):
            raise _Whole(f"{join.method or ''} {side} {kind} JOIN has no rule yet".strip())
        right = self._relation(join.this, ctes)
        on = join.args.get("on")
        word = side or (kind if kind in ("SEMI", "ANTI") else "INNER")
        if len(set(columns_of(left)) | set(columns_of(right))) < len(columns_of(left)) + len(columns_of(right)):
            raise refused("two tables of a join have one name: give them aliases")
        keys = tuple(_equal_keys(on, set(columns_of(left)), set(columns_of(right)), self._text))
        if word != "INNER" and not keys:
            raise _Whole(f"a {word} JOIN without equal columns has no key to restrict by")
        return Join(word, left, right, "TRUE" if on is None else self._text(on), keys)

    def _grouped(self, select: exp.Select, rows: Operator, outputs: Sequence[exp.Expr]) -> tuple[Operator, list[str]]:
        """The rows grouped if the SELECT groups them, and the texts of its outputs over them."""
        group, having = select.args.get("group"), select.args.get("having")
        conditions = [] if having is None else [having.this]
        calls = [call for part in (*outputs, *conditions) for call in _aggregates(part)]
        if group is None and not calls and having is None:
            return rows, [self._text(output) for output in outputs]
        if group is not None and {name for name, value in group.args.items() if value} - {"expressions", "all"}:
            raise _Whole("grouping sets have no rule yet")
        keys = [] if group is None else list(group.expressions)
        if group is not None and group.args.get("all"):
            keys = [output for output in outputs if not _aggregates(output)]
        keys = [key for key in keys if key.find(exp.Column) is not None]
        if group is not None and not keys:
            raise _Whole("a GROUP BY without columns has no key to restrict by")
        prefix = self._name()
        names: dict[exp.Expr, str] = {}
        for part in (*keys, *calls):
            names.setdefault(part, f"{prefix}.{len(names)}")
        grouped: Operator = Aggregate(
            rows,
            tuple((self._text(key), names[key]) for key in dict.fromkeys(keys)),
            tuple((self._text(call), names[call]) for call in dict.fromkeys(calls) if call not in keys),
        )
        if having is not None:
            grouped = Filter(grouped, self._over(having.this, names))
        return grouped, [self._over(output, names) for output in outputs]

    def _over(self, expression: exp.Expr, names: Mapping[exp.Expr, str]) -> str:
        """The text of an expression over groups."""

        def named(node: exp.Expr) -> exp.Expr:
            return _column(names[node]) if node in names else node

        replaced = expression.copy().transform(named, copy=False)
        left = [column for column in replaced.find_all(exp.Column) if column.table]
        if left:
            raise refused(f"{left[0].name} is neither grouped nor aggregated: add it to GROUP BY")
        return self._checked(replaced)

    def _text(self, expression: exp.Expr) -> str:
        """The text of an expression over the columns of relations."""

        def flat(node: exp.Expr) -> exp.Expr:
            return _column(f"{node.table}.{node.name}") if isinstance(node, exp.Column) and node.table else node

        return self._checked(expression.copy().transform(flat, copy=False))

    @staticmethod
    def _checked(expression: exp.Expr) -> str:
        if expression.find(exp.Query) is not None:
            raise _Whole("a subquery in an expression has no rule yet")
        return expression.sql(dialect=DIALECT)


def _short(name: str) -> str:
    """The name of a query's column without the builder's prefix."""
    return name.split(".", 2)[2]


def _column(name: str) -> exp.Column:
    return exp.Column(this=exp.to_identifier(name, quoted=True))


def _distinct(rows: Operator, prefix: str) -> Aggregate:
    names = columns_of(rows)
    return Aggregate(rows, tuple((quoted(name), f"{prefix}.{_short(name)}") for name in names), ())


def _aggregates(expression: exp.Expr) -> list[exp.Expr]:
    """The outermost aggregates of an expression."""
    if isinstance(expression, AGGREGATES):
        return [expression]
    if isinstance(expression, exp.Query):
        return []
    return [call for child in expression.iter_expressions() for call in _aggregates(child)]


def _equal_keys(
    on: exp.Expr | None, left: set[str], right: set[str], text: Callable[[exp.Expr], str]
) -> Iterator[tuple[str, str]]:
    """The pairs of expressions that the condition makes equal, one of each side."""
    parts = [] if on is None else list(on.flatten()) if isinstance(on, exp.And) else [on]
    for part in (each.unnest() for each in parts):
        if not isinstance(part, exp.EQ):
            continue
        sides = (part.this, part.expression)
        first, second = ({f"{column.table}.{column.name}" for column in side.find_all(exp.Column)} for side in sides)
        if first and second and first <= left and second <= right:
            yield text(part.this), text(part.expression)
        elif first and second and first <= right and second <= left:
            yield text(part.expression), text(part.this)
