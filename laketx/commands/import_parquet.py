"""`laketx import`: Parquet files become a table's files where they are."""

from __future__ import annotations

from laketx.commands.sql import warehouse_for
from laketx.connection import connect
from laketx.lake import import_files
from metaservice.cli.output import Session
from worker.services.commands import command_errors, lake_of


def run_import(session: Session, path: str, table: str, warehouse: str | None, message: str) -> None:
    files = warehouse_for(session, warehouse)
    with command_errors(), connect(lake_of(session), user=session.settings.user, warehouse=files) as lake:
        done = import_files(lake, path, table, message=message)
    answer = {"table": done.table, "version": done.version, "rows": done.rows_staged}
    session.done(f"imported {done.rows_staged} rows into {done.table}, version {done.version}", answer)
