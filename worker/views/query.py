"""The query of a materialized view, from text to operators: parsed, qualified, checked, and made definite.

    statement = parse(text)                  the tables that it names
    query = analyse(statement, schemas)      its operators, its columns, what it uses of each table

Names are those of DuckDB: their case means nothing, and columns of views are in lower case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, SqlglotError, TokenError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

from worker.views.averages import split_averages
from worker.views.comparisons import with_cases, with_extremes
from worker.views.delta import N
from worker.views.dialect import DIALECT
from worker.views.functions import check_functions, refused
from worker.views.operator_builder import OperatorBuilder, names_of
from worker.views.operators import LAKE, NoRule, Opaque, Operator, Project, columns_of, quoted
from worker.views.subqueries import with_in
from worker.views.unions import with_places
from worker.views.windows import check_windows_in_order, inline_windows


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
    for table in _tables(tree):
        if table.args.get("only"):
            raise refused('ONLY is a reserved word: if it is a name, write it in quotes: "only"')
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


def _tables(tree: exp.Query) -> list[exp.Table]:
    """What is named in FROM, without series of constants."""
    return [
        table
        for table in tree.find_all(exp.Table)
        if not isinstance(table.this, exp.GenerateSeries) or table.this.find(exp.Column, exp.Query) is not None
    ]


def analyse(statement: Statement, schemas: Mapping[str, Mapping[str, str]]) -> Query:
    """Return the query as operators. `schemas` has the columns of each table with their types, in DuckDB's words."""
    schema: dict[str, object] = {
        f"{LAKE}{name}": {column.lower(): kind for column, kind in columns.items()} for name, columns in schemas.items()
    }
    written = with_in(statement.tree.copy())
    with_places(written)
    try:
        qualified = qualify(written, schema=schema, dialect=DIALECT, identify=True, quote_identifiers=True)
        tree = annotate_types(qualified, schema=schema, dialect=DIALECT)
    except (OptimizeError, SqlglotError) as error:
        raise refused(f"the query can't be resolved: {_plain(error)}") from None
    assert isinstance(tree, exp.Query)
    inline_windows(tree)
    canonical = _canonical(tree)
    check_functions(tree)
    _check_distinct_on(tree)
    with_extremes(tree)
    with_cases(tree)
    split_averages(tree, schemas)
    _order_limits(tree)
    names = _output_names(tree)
    uses = _uses(tree, schemas)
    try:
        built = OperatorBuilder(uses).query(tree, {})
        operator: Operator = Project(
            built, tuple((quoted(inner), name) for inner, name in zip(columns_of(built), names, strict=True))
        )
    except NoRule as whole:
        check_windows_in_order(tree, str(whole))
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
    names = names_of(tree)
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
        names = names_of(query)
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
