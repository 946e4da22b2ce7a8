"""Runs the statement of a periodic task: over its sources at one instant, in one commit under the run's due time."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from metaservice.client import ConflictError
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from protos.laketx.v1 import maintenance_pb2 as pb
from worker.arrow.changes.change_rows import ChangeRows
from worker.arrow.expressions.conditions import is_plain
from worker.arrow.scan.version_rows import VersionRows, columns_schema
from worker.arrow.write import merge, updates, writes
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.merge_clauses import Clause
from worker.arrow.write.merge_sources import plain_source
from worker.arrow.write.updates import EVERYTHING
from worker.base.errors import InputError
from worker.commit.conflict_policies import OnConflict
from worker.commit.rows_read import each_table_once
from worker.commit.scopes import Partitions
from worker.commit.stages import Stage, Staged
from worker.commit.transaction import run_writes
from worker.commit.writes import Write
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.periodic.statements import TaskStatement, expression_text, parse_statement, refused
from worker.views.engine import Engine, run_with, types_in
from worker.views.operators import LAKE, quoted

TASK, TASK_STATEMENT, TASK_SOURCES = "task.name", "task.statement", "task.sources"  # properties of commits
STATEMENT_CHARS_MAX: Final = 4_096
WHOLE: Final = float("inf")
ATTEMPTS_MAX: Final = 5  # after lost races
OPERATIONS: Final = {
    "insert": common_pb2.OPERATION_INSERT,
    "overwrite": common_pb2.OPERATION_OVERWRITE,
    "update": common_pb2.OPERATION_UPDATE,
    "delete": common_pb2.OPERATION_DELETE,
    "merge": common_pb2.OPERATION_MERGE,
}


@dataclass(frozen=True, slots=True)
class CheckedStatement:
    """A statement that fits its tables, and what runs it."""

    engine: pb.PeriodicEngine.ValueType
    operation: common_pb2.Operation.ValueType
    target: catalog_pb2.Table
    sources: Sequence[catalog_pb2.Table]  # the tables that it reads


@dataclass(frozen=True, slots=True)
class Done:
    """What a run did; version 0: there was nothing to change."""

    version: int = 0
    rows: int = 0


def check_statement(lake: Connection, text: str) -> CheckedStatement:
    """Parse a statement, and plan it over its tables as they are now. Raises InputError, NotFoundError."""
    statement = parse_statement(text)
    tables = {name: lake.client.get_table(name) for name in (statement.target, *statement.reads)}
    readers = {
        name: VersionRows(TableView(lake, tables[name]), tables[name].head_version) for name in statement.sources
    }
    rows = {f"{LAKE}{name}": reader.empty(reader.schema.names) for name, reader in readers.items()}
    for each in statement.increments:
        meta = tables[each.table]
        _cursor(lake, meta, each.cursor)
        reader = ChangeRows(TableView(lake, meta), meta.head_version, meta.head_version, each.mode)
        rows[each.relation] = reader.schema.empty_table()
    try:
        _planned(TableView(lake, tables[statement.target]), statement, _query_rows(statement, rows, 0), 0)
    except InputError as error:
        raise refused(str(error).partition(": ")[2] or str(error)) from error
    sources = [tables[name] for name in statement.reads]
    return CheckedStatement(pb.PERIODIC_ENGINE_DUCKDB, OPERATIONS[statement.verb], tables[statement.target], sources)


def run_statement(
    lake: Connection, text: str, table_ids: frozenset[str], app_id: str, due_us: int, task_name: str
) -> Done:
    """Run the statement of a task once under an application id and its due time, whoever else runs it, too.

    `table_ids` are the tables for which the owner's rights were checked. The commit says the task, its statement and
    the versions of its sources.
    """
    statement = parse_statement(text)
    app = common_pb2.AppVersion(app_id=app_id, version=due_us)
    properties = commit_properties(task_name, text)
    for attempt in range(1, ATTEMPTS_MAX + 1):
        tables = {name: lake.client.get_table(name) for name in (statement.target, *statement.reads)}
        for name, meta in tables.items():
            if meta.table_id not in table_ids:
                raise replaced(name)
        if is_applied(lake, tables[statement.target].table_id, app):
            return Done()
        pin, versions = lake.pins.own_many({meta.table_id: None for meta in tables.values()})
        try:
            return _run(lake, statement, tables, versions, app, properties)
        except ConflictError:
            if attempt == ATTEMPTS_MAX:
                raise
        finally:
            pin.release()
    raise AssertionError("the last attempt raises")


def replaced(name: str) -> InputError:
    """The refusal of a run whose table is another one now."""
    why = f"{name} is another table than when the task was made: make the task again, with OR REPLACE"
    return InputError("PERIODIC_TABLE_REPLACED", why)


def is_applied(lake: Connection, target_id: str, app: common_pb2.AppVersion) -> bool:
    """Whether a run has committed."""
    applied = lake.client.resolve_version(target_id, app_id=app.app_id)
    return applied.HasField("app_version") and applied.app_version >= app.version


def commit_properties(task_name: str, text: str) -> dict[str, str]:
    """The task and its statement, for the commit of a run."""
    return {TASK: task_name, TASK_STATEMENT: text[:STATEMENT_CHARS_MAX]}


def commit_message(task_name: str) -> str:
    """The message of the commit of a run."""
    return f"periodic task {task_name}"


def rows_changed(staged: Staged) -> int:
    """How many rows a run wrote or removed."""
    return max(staged.rows(), sum(each.rows for each in staged.delete_sets))


def _run(
    lake: Connection,
    statement: TaskStatement,
    tables: Mapping[str, catalog_pb2.Table],
    versions: Mapping[str, int],
    app: common_pb2.AppVersion,
    properties: Mapping[str, str],
) -> Done:
    names = statement.sources
    rows = {f"{LAKE}{name}": _rows(lake, tables[name], versions[tables[name].table_id], statement) for name in names}
    moves = []
    for each in statement.increments:
        meta = tables[each.table]
        move = _move(lake, meta, each.cursor, versions[meta.table_id])
        rows[each.relation] = _changes(lake, meta, move, each.mode)
        moves += [move] if move.version > move.expected_version else []
    given = _query_rows(statement, rows, app.version)
    if statement.verb == "insert" and given is not None and not len(given):
        for move in moves:
            lake.client.advance_cursor(move.table_id, move.name, move.expected_version, move.version)
        return Done()
    target_id = tables[statement.target].table_id
    version = versions[target_id]
    counts: list[int] = []  # of each attempt
    reads_itself = statement.target in statement.reads

    def planned() -> list[Write]:
        view = TableView(lake, tables[statement.target]).refreshed()
        write = _planned(view, statement, given, app.version).named(app)
        if reads_itself:
            write = replace(write, rows_read=[EVERYTHING], rows_version=version)
        inner = write.stage
        if inner is None:
            return [write]

        def counted(stage: Stage) -> Staged:
            staged = inner(stage)
            counts.append(rows_changed(staged))
            return staged

        return each_table_once([replace(write, stage=counted)])

    policy: OnConflict | None = None if statement.verb == "insert" and not reads_itself else "fail"
    sources = {tables[name].table_id: versions[tables[name].table_id] for name in statement.reads}
    noted = {**properties, TASK_SOURCES: json.dumps(sources, sort_keys=True)}
    message = commit_message(properties[TASK])
    [commit] = run_writes(lake, planned, on_conflict=policy, message=message, cursors=moves, properties=noted)
    return Done() if commit.already_applied else Done(commit.version, counts[-1] if counts else 0)


def _rows(lake: Connection, meta: catalog_pb2.Table, version: int, statement: TaskStatement) -> pa.Table:
    reader = VersionRows(TableView(lake, lake.client.get_table(table_id=meta.table_id, version=version)), version)
    used = statement.used_columns()
    names = [name for name in reader.schema.names if used is None or name.lower() in used] or reader.schema.names[:1]
    return pa.concat_tables([reader.empty(names), *reader.tables(names, None, WHOLE)])


def _cursor(lake: Connection, meta: catalog_pb2.Table, name: str) -> read_pb2.Cursor:
    cursor = next((each for each in lake.client.list_cursors(meta.table_id) if each.name == name), None)
    if cursor is None:
        raise refused(f"{meta.name} has no cursor {name}: create it, table.cursor({name!r})")
    return cursor


def _move(lake: Connection, meta: catalog_pb2.Table, name: str, version: int) -> transaction_pb2.CursorMove:
    """The move of a cursor up to a version."""
    begin = _cursor(lake, meta, name).version
    return transaction_pb2.CursorMove(
        table_id=meta.table_id, name=name, expected_version=begin, version=max(version, begin)
    )


def _changes(lake: Connection, meta: catalog_pb2.Table, move: transaction_pb2.CursorMove, mode: str) -> pa.Table:
    view = TableView(lake, lake.client.get_table(table_id=meta.table_id, version=move.version))
    reader = ChangeRows(view, move.expected_version, move.version, mode)
    if move.expected_version == move.version:
        return reader.schema.empty_table()
    return pa.concat_tables(reader.tables(reader.schema.names, None, WHOLE))


def _query_rows(statement: TaskStatement, rows: Mapping[str, pa.Table], due_us: int) -> pa.Table | None:
    if statement.query is None:
        return None
    return run_with(rows, statement.query_text(due_us))


def _planned(view: TableView, statement: TaskStatement, rows: pa.Table | None, due_us: int) -> Write:
    """The write of a statement; `rows` are those of its query."""
    meta = view.meta
    if statement.verb in ("insert", "overwrite"):
        assert rows is not None
        return _insert(view, statement, rows, due_us)
    with Engine() as engine:

        def evaluate(text: str) -> Any:
            return engine.run(f"SELECT {text} AS v").column("v").to_pylist()[0]

        def plain(tree: Any) -> str:
            return expression_text(tree, due_us, evaluate)

        where = None if statement.condition is None else plain(statement.condition)
        settings = {name: plain(tree) for name, tree in statement.settings.items()}
        clauses = [
            Clause(
                each.when,
                each.action,
                None if each.settings is None else {name: plain(tree) for name, tree in each.settings.items()},
                None if each.condition is None else plain(each.condition),
            )
            for each in statement.clauses
        ]
    if statement.verb == "update":
        return updates.plan_update(view, settings, where)
    assert where is not None
    if statement.verb == "delete":
        if not is_plain(where, meta):
            raise refused(f"DELETE … WHERE {where}: a condition compares columns with constants; use MERGE for others")
        return writes.plan_delete(view, where)
    assert rows is not None
    return merge.plan_merge(view, plain_source(rows), where, clauses)


def _insert(view: TableView, statement: TaskStatement, rows: pa.Table, due_us: int) -> Write:
    meta = view.meta
    fixed = _fixed(statement, meta, due_us)
    named = _named(statement, rows, meta, fixed)
    for name in fixed.column_names:
        named = named.append_column(name, fixed.column(name).take(pa.array([0] * len(rows), pa.int64())))
    whole = fitted(named, meta)
    if statement.verb == "overwrite":
        where: Partitions = "dynamic" if statement.partition else "all"
        return writes.plan_overwrite(view, whole, fixed.to_pylist()[0] if fixed.num_columns else where)
    plan: Callable[[TableView, pa.Table], Write] = writes.plan_upsert if meta.primary_key else writes.plan_append
    return plan(view, whole)


def _fixed(statement: TaskStatement, meta: catalog_pb2.Table, due_us: int) -> pa.Table:
    """One row with the values in PARTITION."""
    stored = {name.lower(): name for name in meta.partition_columns}
    if statement.partition.keys() - stored.keys():
        has = f"has the partition columns {', '.join(stored.values())}" if stored else "has no partitions"
        raise refused(f"PARTITION ({', '.join(statement.partition)}): {meta.name} {has}")
    values = {stored[name]: text for name, text in statement.fixed_columns(due_us).items()}
    if statement.verb == "overwrite" and values and len(values) < len(stored):
        raise refused(f"INSERT OVERWRITE … PARTITION has a value for each of {', '.join(stored.values())}, or for none")
    types = types_in(columns_schema(meta))
    with Engine() as engine:
        listed = [f"CAST({text} AS {types[name]}) AS {quoted(name)}" for name, text in values.items()]
        return engine.run(f"SELECT {', '.join(listed)}") if listed else pa.table({})


def _named(statement: TaskStatement, rows: pa.Table, meta: catalog_pb2.Table, fixed: pa.Table) -> pa.Table:
    """The rows with the names of the columns that they are for."""
    names = statement.columns or tuple(each.name for each in meta.columns if each.name not in fixed.column_names)
    if statement.is_by_name:
        names = tuple(rows.column_names)
    if len(names) != rows.num_columns:
        raise refused(
            f"the query has {rows.num_columns} columns, and {len(names)} are to be filled: name the columns, "
            f"INSERT INTO {statement.target} (a, b) SELECT …"
        )
    twice = {name.lower() for name in names} & {name.lower() for name in fixed.column_names}
    if twice:
        raise refused(f"{', '.join(sorted(twice))} has its value in PARTITION: leave it out of the columns")
    return rows.rename_columns(list(names))
