"""`laketx health`: whether the service takes work; for probes and start scripts."""

from __future__ import annotations

import click

from metaservice.cli.command import command
from metaservice.cli.failures import Exit
from metaservice.cli.kinds import seconds
from metaservice.cli.output import Session
from metaservice.client.health import ask_health


@command("health")
@click.option("--wait", "wait_s", type=seconds(0, 86_400), help="Seconds to wait for a service that is starting.")
def run(session: Session, wait_s: float | None) -> Exit:
    """Show whether the service accepts work; ends with 3 if it does not.

    laketx health --server meta:7070
    """
    settings = session.settings
    status = ask_health(session.address(), wait_s or settings.timeout_s, wait=bool(wait_s))
    text = f"{settings.place} is {status.lower().replace('_', ' ')}"
    session.show_answer({"server": settings.place, "status": status.lower()}, text)
    return Exit.DONE if status == "SERVING" else Exit.UNAVAILABLE
