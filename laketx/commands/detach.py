"""`laketx table detach`: a clone gets files of its own."""

from __future__ import annotations

from laketx.lake import Lake
from metaservice.cli.failures import Exit
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from worker.services.commands import command_errors, warehouse_of


def run_detach(session: Session, table: str, warehouse: str | None, message: str) -> Exit:
    clone, place = find_table(session.client, table), warehouse_of(session, warehouse)
    with command_errors(), Lake(session.connect(), place, None, user=session.settings.user) as lake:
        commit = lake.table(clone.name).detach(message=message)
    if session.as_json:
        session.show_json({"table": clone.name, "version": None if commit is None else commit.version})
    if commit is None:
        session.done(f"{clone.name} has files of its own alone")
    else:
        session.done(f"{clone.name} has files of its own alone since version {commit.version}")
    return Exit.DONE
