"""`laketx head` and `laketx count`, and what all commands that read rows have in common. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypedDict, Unpack

import pyarrow as pa

from laketx.table import Table
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import find_table, refused_condition
from metaservice.cli.output import Session
from metaservice.cli.parameters import AsOf
from metaservice.client.conditions import ConditionError
from worker.arrow.scan.scanner import ArrowScan
from worker.base.errors import InputError
from worker.connection.lake_connection import Connection
from worker.formats.text_values import ROWS_AT_ONCE, cells, columns_of, json_lines
from worker.services.commands import command_errors, warehouse_of


class Selection(TypedDict):
    """The columns and the condition of the rows that a command reads."""

    columns: str | None
    where: str | None


def run_head(
    session: Session,
    table: str,
    columns: str | None,
    where: str | None,
    limit: int,
    warehouse: str | None,
    **as_of: Unpack[AsOf],
) -> None:
    with open_table(session, table, warehouse) as opened:
        scan = scan_of(opened, Selection(columns=columns, where=where), as_of, limit)
        if session.as_json:
            for batch in batches(opened, scan):
                session.write(json_lines(batch).rstrip("\n"))
        else:
            rows = (row for batch in batches(opened, scan) for row in cells(batch))
            session.show_rows(columns_of(scan.schema), rows)


def run_count(session: Session, table: str, where: str | None, warehouse: str | None, **as_of: Unpack[AsOf]) -> None:
    with open_table(session, table, warehouse) as opened:
        scan = scan_of(opened, Selection(columns=None, where=where), as_of)
        with reading(opened):
            rows = scan.count()
        session.show_answer({"table": opened.name, "version": scan.version, "rows": rows}, str(rows))


@contextmanager
def open_table(session: Session, name: str, warehouse: str | None) -> Iterator[Table]:
    """The table, by its name or id."""
    place = warehouse_of(session, warehouse)
    with Connection(session.connect(), place, None) as lake:
        yield Table(lake, find_table(lake.client, name))


def scan_of(table: Table, selection: Selection, as_of: AsOf, limit: int | None = None) -> ArrowScan:
    version = table.view.client.resolve_version(table.table_id, **as_of).version
    names = selection["columns"]
    columns = None if names is None else [name.strip() for name in names.split(",")]
    with command_errors():
        try:
            return table.scanner(columns=columns, where=selection["where"], version=version, limit=limit)
        except InputError as error:
            if isinstance(error.__cause__, ConditionError):
                raise refused_condition(error.__cause__, "--where") from error
            raise


def batches(table: Table, scan: ArrowScan) -> Iterator[pa.RecordBatch]:
    """The rows, so many at once that their texts are small too."""
    with reading(table):
        for batch in scan.to_batches():
            for at in range(0, len(batch), ROWS_AT_ONCE):
                yield batch.slice(at, ROWS_AT_ONCE)


@contextmanager
def reading(table: Table) -> Iterator[None]:
    """Convert errors of files to errors of the command line."""
    try:
        with command_errors():
            yield
    except (OSError, pa.ArrowException) as error:
        next_step = f"is --warehouse right? `laketx fsck {table.name}` looks at the files"
        raise CommandError(Exit.REFUSED, "FILE_UNREADABLE", str(error), next_step=next_step) from error
