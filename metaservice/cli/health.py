"""`laketx health`: whether the service takes work; for probes and start scripts."""

from __future__ import annotations

from metaservice.cli.command import Arguments, Command, Parser, seconds
from metaservice.cli.failures import Exit
from metaservice.cli.output import Session
from metaservice.client.health import ask_health


def arguments(parser: Parser) -> None:
    parser.add("--wait", type=seconds(0, 86_400), metavar="S", help="Wait so long for a service that is starting.")


def run(session: Session, args: Arguments) -> Exit:
    settings = session.settings
    wait_s = args.wait
    status = ask_health(session.address(), wait_s or settings.timeout_s, wait=bool(wait_s))
    if session.as_json:
        session.show_json({"server": settings.place, "status": status.lower()})
    else:
        session.say(f"{settings.place} is {status.lower().replace('_', ' ')}")
    return Exit.DONE if status == "SERVING" else Exit.UNAVAILABLE


COMMAND = Command("health", "Say whether the service takes work; ends with 3 where it does not.", run, arguments)
