"""`laketx load`: rows of files become rows of a table, in one commit. No Spark here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from laketx.lake import Lake
from laketx.table import Table
from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.find import GONE, TABLE_ID, find_table
from metaservice.cli.output import Session
from metaservice.cli.partitions import read_partition
from metaservice.client import CommitOutcomeUnknownError, LakeTXError, MetaServiceError
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.writes import plan_append, plan_overwrite, plan_upsert
from worker.base import progress_bars
from worker.base.values import python_value
from worker.commit.conflict_policies import OnConflict, check_policy, named_policy
from worker.commit.transaction import run_writes
from worker.commit.writes import Commit, Write, app_version_of
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema, wire_columns
from worker.formats.source_files import STDIN, WITH_SCHEMA, Meter, Source, Target
from worker.services.commands import command_errors, warehouse_of

FORMATS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
MISSING: Final = (*GONE, "NAMESPACE_UNKNOWN")
MESSAGE_CHARS_MAX: Final = 200


def run_load(
    session: Session,
    table: str,
    files: tuple[str, ...],
    form: str | None,
    overwrite: bool,
    partition: str | None,
    create: bool,
    on_conflict: OnConflict | None,
    app_id: str | None,
    app_version: int | None,
    message: str,
    dry_run: bool,
    warehouse: str | None,
) -> None:
    if partition is not None and not overwrite:
        raise usage_failure("--partition says what --overwrite replaces", next_step="add --overwrite")
    sources = sources_of(files, form)
    place = warehouse_of(session, warehouse)
    with command_errors(), Lake(session.connect(), place, None, user=session.settings.user) as lake:
        app = app_version_of(app_id, app_version)
        target, schema = table_for(lake, table, sources, create=create)
        load = Load(sources, target, schema, fixed_values(target, partition), partition, overwrites=overwrite)
        policy = load.policy(on_conflict)
        if app is not None and schema is None and was_applied(Table(lake, target), app):
            say_applied(session, load, app, target.head_version)
        elif dry_run:
            with bar(session, load):
                rows = load.check(lake)
            say_checked(session, load, rows)
        else:
            with bar(session, load):
                done = load.run(lake, policy, app, message)
            if done.already_applied and app is not None:
                say_applied(session, load, app, done.version)
            else:
                say_done(session, load, done)


@contextmanager
def bar(session: Session, load: Load) -> Iterator[None]:
    """How far the files are read, in MB."""
    if session.settings.quiet or not progress_bars.is_wanted():
        yield
        return
    with progress_bars.line(f"load {load.table.name}, MB", lambda: (load.meter.done >> 20, -(-load.meter.total >> 20))):
        yield


def say_done(session: Session, load: Load, done: Commit) -> None:
    answer = load.answer(done.version, done.rows_staged)
    session.done(f"loaded {done.rows_staged} rows of {load.what} into {done.table}, version {done.version}", answer)


def say_applied(session: Session, load: Load, app: common_pb2.AppVersion, version: int) -> None:
    """Report a repeated load, which wrote nothing."""
    answer = {**load.answer(version, 0), "already_applied": True}
    message = f"nothing new: {app.app_id} has already loaded its version {app.version} into {load.table.name}"
    session.done(message, answer)


def say_checked(session: Session, load: Load, rows: int) -> None:
    table, what = load.table, f"{rows} rows of {load.what}"
    if load.schema is not None:
        columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
        message = f"would create table {table.name} ({columns}) with {what}"
    elif load.overwrites:
        message = f"would replace {load.partition or 'all rows'} of {table.name} by {what}"
    elif table.primary_key:
        message = f"would load {what} into {table.name}, replacing rows with their keys"
    else:
        message = f"would load {what} into {table.name}"
    answer = {**load.answer(table.head_version, rows), "dry_run": True, "created": load.schema is not None}
    session.show_answer(answer, message)


# -- files -------------------------------------------------------------------------------------------------------------


def sources_of(paths: Sequence[str], form: str | None) -> list[Source]:
    if paths.count(STDIN) > 1:
        raise usage_failure("standard input can be read once: give - once")
    meter = Meter()
    sources = [Source(path, form or form_of(path), meter) for path in paths]
    for source in sources:
        check_file(source)
    return sources


def form_of(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        message = "standard input has no format" if path == STDIN else f"`{path}` names no format"
        raise usage_failure(message, next_step=f"end it with {', '.join(FORMATS)}, or say --format")
    return FORMATS[suffix]


def check_file(source: Source) -> None:
    """Check a file; all are checked before one is read."""
    path = Path(source.path)
    if source.path != STDIN:
        if "://" in source.path:
            raise bad_file(source, "PATH_INVALID", "is no file of this machine", "copy it here, then load it")
        if not path.exists():
            raise bad_file(source, "FILE_UNREADABLE", "doesn't exist", "name a file that is there")
        if path.is_dir():
            raise bad_file(source, "PATH_INVALID", "is a folder", "name its files, such as folder/*.parquet")
        if not os.access(path, os.R_OK):
            raise bad_file(source, "FILE_UNREADABLE", "may not be read", "ask for the rights")
    if source.form == "parquet" and source.is_read_once:
        raise usage_failure(
            f"Parquet is read from a file, not from {source.name}", next_step="write it to a file first"
        )


def bad_file(source: Source, reason: str, why: str, next_step: str) -> CommandError:
    return CommandError(Exit.REFUSED, reason, f"{source.name} {why}", {"file": source.name}, next_step)


# -- the table ---------------------------------------------------------------------------------------------------------


def table_for(
    lake: Lake, name: str, sources: Sequence[Source], *, create: bool
) -> tuple[catalog_pb2.Table, pa.Schema | None]:
    """Return the table; or a new table's message, and its schema."""
    try:
        return find_table(lake.client, name), None
    except MetaServiceError as error:
        if not create or error.reason not in MISSING or TABLE_ID.fullmatch(name):
            raise
    with_schema = [source for source in sources if source.form in WITH_SCHEMA and not source.is_read_once]
    if not with_schema:
        raise usage_failure(
            "--create takes the columns from a Parquet or Arrow file: CSV and JSON don't say their types",
            next_step=f'create it first: laketx table create {name} "id bigint" "day date" …',
        )
    schema = with_schema[0].schema()
    table = catalog_pb2.Table(name=name, columns=wire_columns(schema, ()))
    try:
        return lake.client.create_table(table, validate_only=True), schema
    except MetaServiceError as error:
        if error.reason != "NAMESPACE_UNKNOWN":  # it is made, too
            raise
        return table, schema


def drop_unused(lake: Lake, table_id: str) -> None:
    """Unless somebody has written to it."""
    with suppress(LakeTXError):
        if lake.client.get_table(table_id=table_id).head_version == 0:
            lake.client.drop_table(table_id)


def fixed_values(table: catalog_pb2.Table, text: str | None) -> dict[str, Any]:
    """Return the column values of the partition that is replaced."""
    if text is None:
        return {}
    kinds = {field.name: field.type for field in arrow_schema(table)}
    constants = {fixed.column: python_value(fixed.value) for fixed in read_partition(table, text).values}
    return {name: pa.scalar(value, kinds[name]).as_py() for name, value in constants.items()}


def was_applied(table: Table, app: common_pb2.AppVersion) -> bool:
    applied = table.app_version(app.app_id)
    return applied is not None and applied >= app.version


# -- the write ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """The files, and what becomes of their rows; with a schema the table is made first."""

    sources: Sequence[Source]
    table: catalog_pb2.Table
    schema: pa.Schema | None
    fixed: Mapping[str, Any]
    partition: str | None
    overwrites: bool

    @property
    def what(self) -> str:
        return self.sources[0].name if len(self.sources) == 1 else f"{len(self.sources)} files"

    @property
    def meter(self) -> Meter:
        return self.sources[0].meter

    def answer(self, version: int, rows: int) -> dict[str, object]:
        files = [source.path for source in self.sources]
        return {"table": self.table.name, "version": version, "rows": rows, "files": files, "already_applied": False}

    def policy(self, given: OnConflict | None) -> OnConflict | None:
        """Return the policy for conflicts. A source that can be read only once can't be loaded again."""
        check_policy(given, is_insert=not self.overwrites)
        once = next((source for source in self.sources if source.is_read_once), None)
        if named_policy(given, self.table) != "rerun" or once is None:
            return given
        if given is None:
            return "fail"
        raise usage_failure(f"--on-conflict rerun reads the rows again, and {once.name} can be read once")

    def run(self, lake: Lake, policy: OnConflict | None, app: common_pb2.AppVersion | None, message: str) -> Commit:
        """Load the rows in one commit. If it fails, a table that was created for it is dropped."""
        made = None if self.schema is None else lake.create_table(self.table.name, self.schema)
        table = made or Table(lake, self.table)

        def plan() -> list[Write]:
            return [replace(self._plan(table.refresh().view), app=app)]

        try:
            text = message or f"load of {self.what}"[:MESSAGE_CHARS_MAX]
            [done] = run_writes(lake, plan, on_conflict=policy, message=text)
        except CommitOutcomeUnknownError:
            raise
        except BaseException:
            if made is not None:
                drop_unused(lake, made.table_id)
            raise
        return done

    def check(self, lake: Lake) -> int:
        """Refuses what a write would refuse before it commits; answers with the number of rows."""
        rows = self._rows(self.table)
        if not self.table.primary_key:
            return sum(len(batch) for batch in rows)
        whole = rows.read_all()
        plan_upsert(TableView(lake, self.table), whole)
        return len(whole)

    def _plan(self, table: TableView) -> Write:
        rows = self._rows(table.meta)
        if self.overwrites:
            return plan_overwrite(table, rows, self.fixed or "all")
        if table.meta.primary_key:
            return plan_upsert(table, rows.read_all())
        return plan_append(table, rows)

    def _rows(self, meta: catalog_pb2.Table) -> pa.RecordBatchReader:
        """Return the rows of all files with the table's columns; the files are read as the rows are needed."""
        sizes = [0 if source.is_read_once else Path(source.path).stat().st_size for source in self.sources]
        self.meter.done, self.meter.total = 0, sum(sizes) if all(sizes) else 0
        target = Target(meta, self.fixed)
        batches = chain.from_iterable(source.batches(target) for source in self.sources)
        return pa.RecordBatchReader.from_batches(arrow_schema(meta), batches)
