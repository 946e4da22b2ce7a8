"""`laketx step-down`: another process leads."""

from __future__ import annotations

from metaservice.cli.command import command
from metaservice.cli.output import Session
from metaservice.cli.parameters import asks


@command("step-down")
@asks
def run(session: Session, yes: bool, dry_run: bool) -> None:
    """Let a standby lead: the leader stops, gives its lease back and ends with exit code 75.

    laketx step-down
    A supervisor must start the process again; it is a standby then. Without a standby no process leads until then. See
    docs/high-availability.md.
    """
    leader = session.client.get_status().leader
    epoch = session.client.step_down(validate_only=True)
    if dry_run:
        session.show_answer({"leader": leader, "lease_epoch": epoch, "stepped_down": False}, f"would stop {leader}")
        return
    session.confirm(f"Stop the leader {leader}, so that a standby leads?", yes=yes)
    session.client.step_down()
    session.done(
        f"stopped leader {leader}: it gives its lease back",
        {"leader": leader, "lease_epoch": epoch, "stepped_down": True},
    )
