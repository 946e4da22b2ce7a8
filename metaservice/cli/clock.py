"""`laketx clock`: whether the service believes its wall clock; say that it is right."""

from __future__ import annotations

from metaservice.cli.command import Arguments, Command, Parser, add_yes
from metaservice.cli.output import Session


def confirm_arguments(parser: Parser) -> None:
    add_yes(parser)


def run_confirm(session: Session, args: Arguments) -> None:
    held = session.client.confirm_clock(validate_only=True)
    if args.dry_run or not held.reason:
        if session.as_json:
            session.show_json({"reason": held.reason, "off_ms": held.off_ms, "confirmed": False})
        else:
            session.say(f"would confirm the clock; {held.reason}" if held.reason else "nothing to confirm")
        return
    session.confirm(
        f"Is the clock of the service's machine right? {held.reason[0].upper()}{held.reason[1:]}.", yes=args.yes
    )
    session.client.confirm_clock()
    if session.as_json:
        session.show_json({"reason": held.reason, "off_ms": held.off_ms, "confirmed": True})
    session.done("the clock is confirmed")


COMMAND = Command(
    "clock",
    "Say that the wall clock of the service's machine is right, after it jumped.",
    commands=(
        Command(
            "confirm",
            "Let outcomes, old versions and files go again, which are held since the clock jumped.",
            run_confirm,
            confirm_arguments,
            details="Look at the clock of the machine first (`date -u`): under one that runs ahead, what is still "
            "wanted would be retired. `laketx status` says by how much it jumped, since the last run or in this one. "
            "A service that was off for more than a day while its machine was booted says so too. Without a word it "
            "believes the clock once it has run for a day.",
        ),
    ),
)
