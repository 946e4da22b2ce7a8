"""`laketx ping`: how long a call takes."""

from __future__ import annotations

import time
from statistics import median

from metaservice.cli.command import Arguments, Command, Parser, seconds, whole
from metaservice.cli.output import Session


def arguments(parser: Parser) -> None:
    parser.add("--count", "-c", type=whole(1, 1_000_000), default=5, metavar="N", help="So many calls (default 5).")
    parser.add("--interval", type=seconds(0, 3_600), default=0.0, metavar="S", help="Seconds between them (default 0).")


def run(session: Session, args: Arguments) -> None:
    with session.connect(use_session=True) as client:
        client.ping()  # the first call pays for the connection
        took_ms = []
        for number in range(args.count):
            if number:
                time.sleep(args.interval)
            began_s = time.monotonic()
            client.ping(b"laketx")
            took_ms.append((time.monotonic() - began_s) * 1_000)
    if session.as_json:
        session.show_json(
            {
                "server": session.settings.place,
                "calls": len(took_ms),
                "min_ms": round(min(took_ms), 3),
                "median_ms": round(median(took_ms), 3),
                "max_ms": round(max(took_ms), 3),
            }
        )
        return
    session.say(
        f"{session.settings.place} answers: {len(took_ms)} calls, "
        f"{min(took_ms):.2f} / {median(took_ms):.2f} / {max(took_ms):.2f} ms (min / median / max)"
    )


COMMAND = Command("ping", "Say whether the service answers, and how fast.", run, arguments)
