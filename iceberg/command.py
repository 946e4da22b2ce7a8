"""`laketx iceberg export`. No Spark here."""

from __future__ import annotations

from dataclasses import asdict
from typing import Unpack

from iceberg.export import export
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from metaservice.cli.parameters import AsOf
from worker.base.connection import Connection
from worker.base.table_view import TableView
from worker.files.commands import told, warehouse_of


def run_export(
    session: Session, table: str, to: str | None, form: str, warehouse: str | None, **as_of: Unpack[AsOf]
) -> None:
    place = warehouse_of(session, warehouse)
    with Connection(session.connect(), place, None) as lake:
        view = TableView(lake, find_table(lake.client, table))
        version = lake.client.resolve_version(view.table_id, **as_of).version
        with told():
            done = export(view, version, form=int(form), folder=to or "")
    session.show_answer({"table": view.name, **asdict(done)}, done.metadata)
