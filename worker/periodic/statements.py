"""The statement of a periodic task: one INSERT, INSERT OVERWRITE, UPDATE, DELETE or MERGE in DuckDB's SQL, parsed.

Queries stay SQL, for DuckDB. Conditions and values of UPDATE, DELETE and MERGE become expressions of the Arrow engine;
what has no column in it is a constant, which DuckDB computes. The time of a run is the time at which it was due.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from worker.base.errors import InputError
from worker.views.operators import LAKE

CATALOG: Final = "lake"
DIALECT: Final = "duckdb"
EXPRESSIONS: Final = "spark"  # the dialect of the Arrow engine's expressions
MODES: Final = ("latest", "changes")
NOW: Final = frozenset({"now", "get_current_timestamp", "transaction_timestamp"})
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Evaluate = Callable[[str], Any]  # the value of an expression of DuckDB


@dataclass(frozen=True, slots=True)
class ChangesAfterCursor:
    """`changes('table', 'cursor')` in a query: what came after a cursor, which the run moves."""

    table: str
    cursor: str
    mode: str = "latest"

    @property
    def relation(self) -> str:
        """Its name in the query that DuckDB runs."""
        return f"{LAKE}{self.table}/{self.cursor}/{self.mode}"


@dataclass(frozen=True, slots=True)
class MergeClause:
    """WHEN … THEN …: `settings` None takes every column of the source."""

    when: str
    action: str
    settings: Mapping[str, exp.Expression] | None
    condition: exp.Expression | None


@dataclass(frozen=True, slots=True)
class TaskStatement:
    """A parsed statement. Tables have the names that it gives them, without the catalog."""

    verb: str  # insert, overwrite, update, delete or merge
    target: str
    sources: tuple[str, ...]
    query: exp.Expression | None = None  # INSERT's, or MERGE's source
    columns: tuple[str, ...] = ()  # of INSERT; none: those of the table, in their order
    is_by_name: bool = False
    partition: Mapping[str, exp.Expression | None] = field(default_factory=dict)  # of INSERT, in lower case
    settings: Mapping[str, exp.Expression] = field(default_factory=dict)
    condition: exp.Expression | None = None  # WHERE, or MERGE's ON
    clauses: tuple[MergeClause, ...] = ()
    increments: tuple[ChangesAfterCursor, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The tables that it reads, also by increments."""
        return tuple(dict.fromkeys((*self.sources, *(each.table for each in self.increments))))

    def query_text(self, due_us: int) -> str:
        """The query as DuckDB runs it over relations that are named `lake:` and the table's name."""
        assert self.query is not None
        return _timed(self.query, due_us).sql(dialect=DIALECT)

    def fixed_columns(self, due_us: int) -> dict[str, str]:
        """The columns of PARTITION that have a value, with its text."""
        fixed = {name: value for name, value in self.partition.items() if value is not None}
        return {name: _timed(value, due_us).sql(dialect=DIALECT) for name, value in fixed.items()}

    def used_columns(self) -> frozenset[str] | None:
        """The names of columns in the query, in lower case; None: it may use any."""
        if self.query is None:
            return frozenset()
        if any(self.query.find_all(exp.Star)) or any(self.query.find_all(exp.Join)):
            return None
        return frozenset(column.name.lower() for column in self.query.find_all(exp.Column))


def refused(why: str) -> InputError:
    """The refusal of a statement."""
    return InputError("PERIODIC_STATEMENT_INVALID", why)


def parse_statement(text: str) -> TaskStatement:
    """Parse a statement. Raises InputError for anything that a periodic task can't run."""
    try:
        statements = [each for each in sqlglot.parse(text, dialect=DIALECT) if each is not None]
    except (ParseError, TokenError) as error:
        raise refused(f"the statement can't be parsed: {_plain(error)}") from None
    if len(statements) != 1:
        raise refused(f"a periodic task runs one statement, not {len(statements)}: make a task for each")
    tree = statements[0]
    if isinstance(tree, exp.Insert):
        return _insert(tree)
    if isinstance(tree, exp.Update):
        return _update(tree)
    if isinstance(tree, exp.Delete):
        return _delete(tree)
    if isinstance(tree, exp.Merge):
        return _merge(tree)
    what = "a SELECT alone changes nothing" if isinstance(tree, exp.Query) else "it can't run this statement"
    raise refused(f"a periodic task runs INSERT, INSERT OVERWRITE, UPDATE, DELETE or MERGE: {what}")


def _insert(tree: exp.Insert) -> TaskStatement:
    into, columns = tree.this, ()
    if isinstance(into, exp.Schema):
        into, columns = into.this, tuple(column.name for column in into.expressions)
    if not isinstance(into, exp.Table):
        raise refused(f"{into.sql(dialect=DIALECT)} is no table of the lake")
    partition = _partition(into.args.get("partition"))
    for clause in ("conflict", "returning", "ignore", "alternative", "where"):
        if tree.args.get(clause):
            raise refused(f"INSERT can't have {clause.upper()} here: use MERGE")
    target, query = _table_name(into), tree.expression
    if not isinstance(query, exp.Query | exp.Values):
        raise refused("INSERT needs a query or VALUES")
    query = query.copy()
    if tree.args.get("with_") is not None and isinstance(query, exp.Query):
        query.set("with_", tree.args["with_"].copy())
    if isinstance(query, exp.Values):
        query = exp.select("*").from_(exp.alias_(query, "v", table=True))
    sources, increments = _bind(query)
    verb = "overwrite" if tree.args.get("overwrite") else "insert"
    is_by_name = bool(tree.args.get("by_name"))
    return TaskStatement(verb, target, sources, query, columns, is_by_name, partition=partition, increments=increments)


def _partition(clause: exp.Expression | None) -> dict[str, exp.Expression | None]:
    """PARTITION (day = DATE '2026-11-01', country): the columns with their values, None for the rows' own."""
    parts: dict[str, exp.Expression | None] = {}
    for part in [] if clause is None else clause.expressions:
        column, value = (part.this, part.expression) if isinstance(part, exp.EQ) else (part, None)
        if not isinstance(column, exp.Column) or (value is not None and value.find(exp.Column, exp.Query) is not None):
            raise refused(f"PARTITION has columns and constants, not {part.sql(dialect=DIALECT)}")
        parts[column.name.lower()] = value
    return parts


def _update(tree: exp.Update) -> TaskStatement:
    _check_plain(tree, "UPDATE", ("from_", "returning", "order", "limit", "with_"))
    alias = _alias(tree.this)
    settings = _settings(tree.expressions, {alias: ""})
    return TaskStatement("update", _table_name(tree.this), (), settings=settings, condition=_where(tree, {alias: ""}))


def _delete(tree: exp.Delete) -> TaskStatement:
    _check_plain(tree, "DELETE", ("using", "returning", "order", "limit", "with_", "tables"))
    where = _where(tree, {_alias(tree.this): ""})
    if where is None:
        raise refused("DELETE needs a WHERE: to replace all rows, use INSERT OVERWRITE")
    return TaskStatement("delete", _table_name(tree.this), (), condition=where)


def _merge(tree: exp.Merge) -> TaskStatement:
    _check_plain(tree, "MERGE", ("returning", "with_", "using_cond"), subqueries=False)
    using = tree.args["using"]
    sides = {_alias(tree.this): "target", _alias(using): "source"}
    if len(sides) < 2:
        raise refused("give the table of MERGE and its source different names: MERGE INTO a AS t USING b AS s")
    condition = _sided(tree.args["on"], sides)
    clauses = tuple(_clause(when, sides) for when in tree.args["whens"].expressions)
    query = using.this.copy() if isinstance(using, exp.Subquery) else exp.select("*").from_(using.copy())
    sources, increments = _bind(query)
    for part in (condition, *(clause.condition for clause in clauses)):
        _check_no_query(part)
    return TaskStatement(
        "merge", _table_name(tree.this), sources, query, condition=condition, clauses=clauses, increments=increments
    )


def _clause(when: exp.When, sides: Mapping[str, str]) -> MergeClause:
    then = when.args["then"]
    kind = "by_source" if when.args.get("source") else "matched" if when.args.get("matched") else "not_matched"
    condition = when.args.get("condition")
    condition = None if condition is None else _sided(condition, sides)
    if isinstance(then, exp.Update):
        is_all = any(isinstance(each, exp.Star) for each in then.expressions)
        return MergeClause(kind, "update", None if is_all else _settings(then.expressions, sides), condition)
    if isinstance(then, exp.Insert):
        if isinstance(then.this, exp.Star):
            return MergeClause(kind, "insert", None, condition)
        names = [column.name for column in then.this.expressions] if then.this is not None else []
        values = then.expression.expressions if then.expression is not None else []
        if not names or len(names) != len(values):
            raise refused("INSERT in MERGE is INSERT * or INSERT (columns) VALUES (as many values)")
        return MergeClause(
            kind, "insert", {name: _sided(each, sides) for name, each in zip(names, values, strict=True)}, condition
        )
    if then.name.upper() == "DELETE":
        return MergeClause(kind, "delete", None, condition)
    raise refused(f"MERGE can't {then.sql(dialect=DIALECT)} here: use UPDATE, DELETE or INSERT")


def _check_plain(tree: exp.Expression, verb: str, clauses: Sequence[str], *, subqueries: bool = True) -> None:
    for clause in clauses:
        if tree.args.get(clause):
            raise refused(f"{verb} can't have {clause.rstrip('_').upper()} here: use MERGE")
    if subqueries:
        _check_no_query(tree)


def _check_no_query(tree: exp.Expression | None) -> None:
    if tree is not None and tree.find(exp.Query) is not None:
        raise refused("a condition can't have a subquery: use MERGE, whose source is a query")


def _where(tree: exp.Expression, sides: Mapping[str, str]) -> exp.Expression | None:
    where = tree.args.get("where")
    return None if where is None else _sided(where.this, sides)


def _settings(expressions: Sequence[exp.Expression], sides: Mapping[str, str]) -> dict[str, exp.Expression]:
    settings = {}
    for each in expressions:
        if not isinstance(each, exp.EQ) or not isinstance(each.this, exp.Column):
            raise refused(f"SET needs column = value, not {each.sql(dialect=DIALECT)}")
        settings[each.this.name] = _sided(each.expression, sides)
    return settings


def _sided(tree: exp.Expression, sides: Mapping[str, str]) -> exp.Expression:
    """With the names of both sides that the Arrow engine knows."""
    tree = tree.copy()
    for column in tree.find_all(exp.Column):
        side = sides.get(column.table.lower())
        if column.table and side is None:
            raise refused(f"{column.sql(dialect=DIALECT)} names a table that the statement does not change")
        column.set("table", exp.to_identifier(side) if side else None)
    return tree


def _bind(query: exp.Expression) -> tuple[tuple[str, ...], tuple[ChangesAfterCursor, ...]]:
    """The tables and increments that a query reads, which get the names of their relations."""
    if query.find(exp.Placeholder, exp.Parameter) is not None:
        raise refused("a statement has no parameters: write the values")
    named = {cte.alias.lower() for cte in query.find_all(exp.CTE)}
    names: dict[str, None] = {}
    increments: dict[ChangesAfterCursor, None] = {}
    for table in list(query.find_all(exp.Table)):
        if isinstance(table.this, exp.Identifier) and not table.db and table.name.lower() in named:
            continue
        increment = _increment(table)
        if increment is not None:
            increments[increment] = None
            relation, name = increment.relation, "changes"
        else:
            name = _table_name(table)
            names[name] = None
            relation, name = f"{LAKE}{name}", table.name
        alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name))
        table.set("catalog", None)
        table.set("db", None)
        table.set("this", exp.to_identifier(relation, quoted=True))
        table.set("alias", alias)
    cursors = [(each.table, each.cursor) for each in increments]
    if len(set(cursors)) < len(cursors):
        raise refused("a statement reads the changes after a cursor in one mode")
    return tuple(names), tuple(increments)


def _increment(table: exp.Table) -> ChangesAfterCursor | None:
    call = table.this
    if not isinstance(call, exp.Anonymous) or call.name.lower() != "changes":
        return None
    words = [each.name for each in call.expressions if isinstance(each, exp.Literal) and each.is_string]
    if len(words) != len(call.expressions) or len(words) not in (2, 3) or (*words, "latest")[2].lower() not in MODES:
        raise refused("write changes('table', 'cursor'), with the mode 'latest' or 'changes' as a third argument")
    return ChangesAfterCursor(words[0].lower(), words[1], (*words, "latest")[2].lower())


def _table_name(table: exp.Expression) -> str:
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise refused(f"{table.sql(dialect=DIALECT)} is no table of the lake")
    if table.catalog and table.catalog.lower() != CATALOG:
        raise refused(f"{table.sql(dialect=DIALECT)} is in another catalog: name tables of the lake")
    name = f"{table.db}.{table.name}" if table.db else table.name
    if "@" in name:
        raise refused(f"{name} is on a branch: a periodic task reads and changes tables of the lake itself")
    return name.lower()


def _alias(table: exp.Expression) -> str:
    return str(table.alias_or_name).lower()


# -- times and constants -----------------------------------------------------------------------------------------------


def expression_text(tree: exp.Expression, due_us: int, evaluate: Evaluate) -> str:
    """An expression as the Arrow engine reads it: its constants are computed."""
    return _folded(_timed(tree, due_us), evaluate).sql(dialect=EXPRESSIONS)


def _timed(tree: exp.Expression, due_us: int) -> exp.Expression:
    """With the due time instead of now."""
    due = EPOCH + timedelta(microseconds=due_us)

    def at(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.CurrentTimestamp) or (isinstance(node, exp.Anonymous) and node.name.lower() in NOW):
            return exp.cast(exp.Literal.string(f"{due:%Y-%m-%d %H:%M:%S.%f}+00"), exp.DType.TIMESTAMPTZ)
        if isinstance(node, exp.CurrentDate):
            return exp.cast(exp.Literal.string(f"{due:%Y-%m-%d}"), exp.DType.DATE)
        return node

    return tree.copy().transform(at)


def _folded(node: exp.Expression, evaluate: Evaluate) -> exp.Expression:
    is_plain = isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal)
    is_computed = isinstance(node, exp.Func | exp.Binary | exp.Cast | exp.Paren | exp.Neg) and not is_plain
    if is_computed and node.find(exp.Column) is None:
        return exp.Var(this=_literal(evaluate(node.sql(dialect=DIALECT))))
    for name, child in list(node.args.items()):
        if isinstance(child, exp.Expression):
            node.set(name, _folded(child, evaluate))
        elif isinstance(child, list):
            node.set(name, [_folded(each, evaluate) if isinstance(each, exp.Expression) else each for each in child])
    return node


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
        case float():
            return f"{value!r}" if "e" in repr(value) else f"{value!r}e0"
        case str():
            return exp.Literal.string(value).sql(dialect=EXPRESSIONS)
        case datetime():
            return f"TIMESTAMP '{value:%Y-%m-%d %H:%M:%S.%f}Z'" if value.tzinfo else f"TIMESTAMP_NTZ '{value}'"
        case date():
            return f"DATE '{value}'"
        case _:
            raise refused(f"a value of the type {type(value).__name__} can't be in a condition")


def _plain(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return text.replace("\x1b[4m", "").replace("\x1b[0m", "")
