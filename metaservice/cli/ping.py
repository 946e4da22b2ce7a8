"""`laketx ping`: how long a call takes."""

from __future__ import annotations

import time
from statistics import median

import click

from metaservice.cli.command import command
from metaservice.cli.kinds import seconds, whole
from metaservice.cli.output import Session


@command("ping")
@click.option("--count", "-c", type=whole(1, 1_000_000), default=5, help="Number of calls (default 5).")
@click.option("--interval", type=seconds(0, 3_600), default=0.0, help="Seconds between calls (default 0).")
def run(session: Session, count: int, interval: float) -> None:
    """Show whether the service answers, and how fast.

    laketx ping --server meta:7070
    """
    with session.connect(use_session=True) as client:
        client.ping()  # the first call pays for the connection
        took_ms = []
        for number in range(count):
            if number:
                time.sleep(interval)
            began_s = time.monotonic()
            client.ping(b"laketx")
            took_ms.append((time.monotonic() - began_s) * 1_000)
    session.show_answer(
        {
            "server": session.settings.place,
            "calls": len(took_ms),
            "min_ms": round(min(took_ms), 3),
            "median_ms": round(median(took_ms), 3),
            "max_ms": round(max(took_ms), 3),
        },
        f"{session.settings.place} answers: {len(took_ms)} calls, "
        f"{min(took_ms):.2f} / {median(took_ms):.2f} / {max(took_ms):.2f} ms (min / median / max)",
    )
