"""`laketx console`."""

from __future__ import annotations

from metaservice.cli.output import Session
from worker.console.serve import Served, serve
from worker.services.commands import told


def run_console(session: Session, listen: str, tls_cert: str, tls_key: str, warehouse: str | None) -> None:
    settings = session.settings
    place = warehouse or session.environment.get("LAKETX_WAREHOUSE", "") or settings.folder
    with told():
        serve(Served(listen, place, tls_cert, tls_key), settings.server, settings.folder, settings.user, session.say)
