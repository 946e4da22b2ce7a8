"""`laketx clock`: whether the service believes its wall clock; say that it is right."""

from __future__ import annotations

from metaservice.cli.command import command, group
from metaservice.cli.output import Session
from metaservice.cli.parameters import asks

GROUP = group("clock", "Confirm the wall clock of the service's machine after it jumped.")


@command("confirm", GROUP)
@asks
def run_confirm(session: Session, yes: bool, dry_run: bool) -> None:
    """Confirm that the clock is right, so that retention, which stopped at the jump, resumes.

    laketx clock confirm
    Check the clock of the machine first (`date -u`): if it runs ahead, the service retires versions that are still
    needed. `laketx status` shows the size of the jump, since the last run or in this one. A service that was off for
    more than a day, and whose machine was booted in that time, reports a jump too. If nobody confirms the clock, the
    service trusts it after running for a day.
    """
    held = session.client.confirm_clock(validate_only=True)
    answer = {"reason": held.reason, "off_ms": held.off_ms, "confirmed": False}
    if dry_run or not held.reason:
        text = f"would confirm the clock; {held.reason}" if held.reason else "nothing to confirm"
        session.show_answer(answer, text)
        return
    session.confirm(f"Is the clock of the service's machine right? {held.reason[0].upper()}{held.reason[1:]}.", yes=yes)
    session.client.confirm_clock()
    session.done("confirmed the clock", {**answer, "confirmed": True})
