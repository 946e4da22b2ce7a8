"""`laketx events`: commits, conflicts, failures and what happens to branches to a webhook."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from metaservice.cli.command import command, group
from metaservice.cli.event_delivery import Sender, Target, read_secret, read_token
from metaservice.cli.event_feed import Feed
from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.kinds import FILE, seconds, whole
from metaservice.cli.output import Session
from metaservice.client import ErrorKind, MetaServiceError

AWAY: Final = (ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED)
AWAY_S: Final = 2.0
KEEP_S: Final = 7 * 24 * 3_600
KEEP_S_MAX: Final = 366 * 24 * 3_600

GROUP = group("events", "Send commits, conflicts, failures and events of branches to other systems.")


@command("serve", GROUP)
@click.option("--to", "url", required=True, metavar="URL", help="Webhook that takes the events, an https address.")
@click.option(
    "--tables",
    default="",
    metavar="NAMES",
    help="Only these tables: names, ids or patterns such as 'shop.*', separated by commas (default all).",
)
@click.option("--name", default="events", metavar="NAME", help="Name of the cursors that store the position.")
@click.option(
    "--state",
    type=FILE,
    default="laketx-events.json",
    help="File that stores which conflicts and failed runs were sent.",
)
@click.option(
    "--from-start", is_flag=True, help="Begin with the oldest events that the service keeps; default: with new events."
)
@click.option("--secret-file", type=FILE, default="", help="File with the secret that signs the requests.")
@click.option("--ca", "ca_file", type=FILE, default="", help="Certificates that verify the receiver's.")
@click.option("--batch", type=whole(1, 1_000), default=1, help="Events in one request; 1 sends each separately.")
@click.option(
    "--poll", "poll_s", type=seconds(0.05, 3_600), default=1.0, help="Seconds between two checks for commits."
)
@click.option(
    "--receiver-timeout", "timeout_s", type=seconds(1, 600), default=30.0, help="How long to wait for the receiver."
)
@click.option(
    "--dead-letters", type=FILE, default="laketx-events-dead.jsonl", help="File for events that the receiver refuses."
)
@click.option(
    "--keep",
    "keep_s",
    type=seconds(60, KEEP_S_MAX),
    default=float(KEEP_S),
    help="How long the service keeps unsent commits while this command does not run (default a week).",
)
@click.option("--no-conflicts", is_flag=True, help="Send no conflicts.")
@click.option("--no-branches", is_flag=True, help="Send nothing of branches; --tables leaves them out, too.")
@click.option(
    "--openlineage",
    "lineage",
    metavar="NAMESPACE",
    default="",
    help="Send commits and failures alone, as events of OpenLineage.",
)
@click.option("--token-file", type=FILE, default="", help="File with a token that is sent as a bearer's.")
@click.option("--insecure", is_flag=True, help="Allow http to another machine.")
@click.option("--once", is_flag=True, help="End when everything up to now was sent.")
def run_serve(
    session: Session,
    url: str,
    tables: str,
    name: str,
    state: str,
    from_start: bool,
    secret_file: str,
    ca_file: str,
    batch: int,
    poll_s: float,
    timeout_s: float,
    dead_letters: str,
    keep_s: float,
    no_conflicts: bool,
    no_branches: bool,
    lineage: str,
    token_file: str,
    insecure: bool,
    once: bool,
) -> None:
    """Send commits, conflicts, failures and what happens to branches to a webhook as CloudEvents, each at least once.

    laketx events serve --to https://hooks.example.com/laketx --secret-file secret --tables 'shop.*'
    Commits of a table come in order. A repeated event has the same source and id. A cursor of each table stores the
    position and keeps unsent commits: run one such command for each receiver, each with a `--name` and a `--state`.
    laketx events serve --to https://lineage.example.com/api/v1/lineage --openlineage lake --name lineage
    """
    if lineage and batch > 1:
        raise usage_failure("--openlineage or --batch, not both: an event of OpenLineage is one request")
    token = read_token(token_file) if token_file else ""
    secret = read_secret(secret_file) if secret_file else b""
    target = Target(url, secret, ca_file, batch, timeout_s, dead_letters, insecure, token)
    with stopping() as stopped:
        sender = Sender(target, stopped, session.note, session.now_us)
        feed = Feed(
            session.client,
            sender,
            name,
            [each.strip() for each in tables.split(",") if each.strip()],
            Path(state),
            from_start=from_start,
            keep_ms=round(keep_s * 1_000),
            conflicts=not no_conflicts,
            branches=not no_branches,
            note=session.note,
            stopped=stopped,
            lineage=lineage,
        )
        session.note(f"sends to {url}; Ctrl-C ends it")
        try:
            follow(feed, session, stopped, poll_s, once=once)
        finally:
            sender.close()
        counts = sender.counts
        session.note(f"{counts.delivered} events sent, {counts.dead} refused")


def follow(feed: Feed, session: Session, stopped: threading.Event, poll_s: float, *, once: bool) -> None:
    """Deliver events until stopped; wait for an unavailable service or receiver."""
    while not stopped.is_set():
        try:
            sent = feed.round()
            if once and not sent:
                break
            if not sent:
                stopped.wait(poll_s)
        except MetaServiceError as error:
            if error.kind not in AWAY:
                raise
            session.note(f"the service is away: {error.reason}")
            stopped.wait(AWAY_S)
        except OSError as error:
            facts = {"found": str(error)}
            raise CommandError(Exit.REFUSED, "EVENTS_FILE_FAILED", "a file can't be written", facts) from error
    feed.flush()


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Set by SIGTERM and Ctrl-C; a second Ctrl-C ends the process at once."""
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
