"""`laketx iceberg export` and `serve`. No Spark here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TypedDict, Unpack

from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from metaservice.cli.parameters import AsOf
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.iceberg.export import export
from worker.iceberg.rest.serve import Served, serve
from worker.iceberg.rest.tables import Showing
from worker.services.commands import command_errors, warehouse_of


class Listening(TypedDict):
    """Where the catalog listens, and to whom."""

    listen: str
    tls_cert: str
    tls_key: str
    token_file: str
    insecure: bool


def run_export(
    session: Session, table: str, to: str | None, form: str, warehouse: str | None, **as_of: Unpack[AsOf]
) -> None:
    place = warehouse_of(session, warehouse)
    with Connection(session.connect(), place, None) as lake:
        view = TableView(lake, find_table(lake.client, table))
        version = lake.client.resolve_version(view.table_id, **as_of).version
        with command_errors():
            done = export(view, version, form=int(form), folder=to or "")
    session.show_answer({"table": view.name, **asdict(done)}, done.metadata)


def run_serve(
    session: Session,
    warehouse: str | None,
    given: Sequence[tuple[str, str]],
    snapshots: int,
    hold_s: float,
    **listening: Unpack[Listening],
) -> None:
    place = warehouse_of(session, warehouse)
    served = Served(warehouse=place, config=dict(given), showing=Showing(snapshots, hold_s), **listening)
    with command_errors():
        serve(served, session.settings.server, session.settings.folder, session.say)
