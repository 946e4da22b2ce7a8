"""`laketx import iceberg` and `laketx import delta`. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from metaservice.cli.output import Session
from worker.base import progress_bars
from worker.connection.lake_connection import Connection
from worker.imports.delta_table import read_delta
from worker.imports.facts import SourceTable
from worker.imports.planning import Meter
from worker.imports.table_import import Imported, import_table
from worker.services.commands import command_errors, warehouse_of


def run_iceberg(
    session: Session,
    catalog: str,
    table: str,
    name: str | None,
    catalog_options: Sequence[tuple[str, str]],
    warehouse: str | None,
    message: str,
    dry_run: bool,
) -> None:
    from worker.imports.iceberg_table import is_static, open_table, read_iceberg  # noqa: PLC0415 - Delta does without pyiceberg

    place = warehouse_of(session, warehouse)
    with command_errors(), _bar(session, table) as meter:
        source = read_iceberg(open_table(catalog, table, dict(catalog_options)), meter)
        own = table if is_static(catalog) else ".".join(table.split(".")[-2:])
        done = _run(session, place, source, name or own, message, dry_run=dry_run)
    say(session, done, dry_run=dry_run)


def run_delta(
    session: Session, path: str, name: str | None, warehouse: str | None, message: str, dry_run: bool
) -> None:
    place = warehouse_of(session, warehouse)
    own = path.rstrip("/").rpartition("/")[2]
    with command_errors(), _bar(session, own) as meter:
        done = _run(session, place, read_delta(path, meter), name or own, message, dry_run=dry_run)
    say(session, done, dry_run=dry_run)


def _run(session: Session, place: str, source: SourceTable, name: str, message: str, *, dry_run: bool) -> Imported:
    with Connection(session.connect(), place, None) as lake:
        return import_table(lake, source, name, message=message, dry_run=dry_run)


@contextmanager
def _bar(session: Session, name: str) -> Iterator[Meter]:
    """Show a progress bar of the metadata files that are read."""
    meter = Meter()
    if session.settings.quiet or not progress_bars.is_wanted():
        yield meter
        return
    with progress_bars.line(f"import {name}, files of metadata", lambda: (meter.done, meter.total)):
        yield meter


def say(session: Session, done: Imported, *, dry_run: bool) -> None:
    answer = {**asdict(done), "dry_run": dry_run}
    what = (
        f"{done.files_added} files with {done.rows_added} rows added, {done.files_removed} removed, "
        f"{done.rows_hidden} rows hidden"
    )
    if dry_run:
        made = f"would create table {done.table}: " if done.created else f"{done.table}: "
        session.show_answer(answer, f"{made}{what}; nothing was done")
    elif done.changed:
        session.done(f"imported snapshot {done.snapshot} into {done.table}, version {done.version}: {what}", answer)
    else:
        session.done(f"nothing new: {done.table}, version {done.version}, has all of snapshot {done.snapshot}", answer)
