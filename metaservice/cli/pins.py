"""`laketx pins`: who keeps which versions readable; make a pin, keep it, end it."""

from __future__ import annotations

import click

from metaservice.cli.command import command, group
from metaservice.cli.cursor import left_text
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_pin, find_table, table_name
from metaservice.cli.kinds import PIN, TABLE, seconds
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks
from metaservice.cli.values import duration_text, to_second
from protos.laketx.v1 import admin_pb2, catalog_pb2, read_pb2

COLUMNS = (
    Column("table"),
    Column("version", right=True),
    Column("who", rank=1),
    Column("client", rank=5),
    Column("since (UTC)", rank=4),
    Column("age", rank=2, right=True),
    Column("lease left", rank=3, right=True),
    Column("held by", is_id=True),
)


GROUP = group("pins", "List pins, tags and cursors, which keep old versions readable; make and end pins.")
pin_argument = click.argument("pin_id", metavar="PIN", type=PIN, help="Id of the pin.")
lease_option = click.option(
    "--lease", type=seconds(1, 86_400), help="Length of the lease; the service may grant less (default: its own lease)."
)


@command("list", GROUP)
def run_list(session: Session) -> None:
    """List what keeps old versions readable: pins (oldest first, a line for each version), tags, cursors and branches.

    A branch keeps all versions of its tables since it left: `laketx branch show BRANCH --held` shows the files.

    laketx pins list
    """
    pins, tags = list(session.client.list_pins()), list(session.client.list_tags())
    cursors, branches = list(session.client.list_cursors()), list(session.client.list_branches())
    if session.as_json:
        session.show_json([*pins, *tags, *cursors, *branches])
        return
    tables, now_us = Tables(session.client), session.now_us()
    rows = [pin_row(pin, tables.name(pin.table_id)) for pin in pins]
    rows += [mark_row(tag, f"tag {tag.name}", tables.name(tag.table_id), now_us, "for good") for tag in tags]
    rows += [
        mark_row(each, f"cursor {each.name}", tables.name(each.table_id), now_us, left_text(each)) for each in cursors
    ]
    rows += [branch_row(branch, now_us) for branch in branches]
    session.show_rows(COLUMNS, rows)


def branch_row(branch: catalog_pb2.Branch, now_us: int) -> Row:
    who, tables = branch.principal, ", ".join(branch.tables) or "all"
    age = duration_text(max(now_us - branch.time_us, 0) // 1_000)
    left = duration_text(max(branch.expire_time_us - now_us, 0) // 1_000) if branch.expire_time_us else "for good"
    return tables, "", who.name, who.client, to_second(branch.time_us), age, left, f"branch {branch.name}"


def pin_row(pin: admin_pb2.Pin, table: str) -> Row:
    who, age, left = pin.principal, duration_text(pin.age_ms), duration_text(pin.lease_left_ms)
    return (table, pin.version, who.name, who.client, to_second(pin.begin_time_us), age, left, pin.pin_id)


def mark_row(mark: read_pb2.Tag | read_pb2.Cursor, what: str, table: str, now_us: int, left: str) -> Row:
    who, since_us = mark.principal, mark.create_time_us
    age = duration_text(max(now_us - since_us, 0) // 1_000)
    return (table, mark.version, who.name, who.client, to_second(since_us), age, left, what)


@command("create", GROUP)
@click.argument(
    "tables",
    metavar="TABLE[@VERSION]...",
    nargs=-1,
    required=True,
    type=TABLE,
    help="Names or ids of tables; without a version the newest, all as of one instant.",
)
@lease_option
def run_create(session: Session, tables: tuple[str, ...], lease: float | None) -> None:
    """Pin versions of tables for a time, all as of one instant.

    laketx pins create shop.orders shop.items@7 --lease 600
    """
    versions = [pinned(session, text) for text in tables]
    pin = session.client.pin(versions, lease_ms=round((lease or 0) * 1_000))
    if session.as_json:
        session.show_json(pin)
        return
    held = ", ".join(f"{table_name(session.client, each.table_id)}@{each.version}" for each in pin.tables)
    session.say(f"created pin {pin.pin_id}: it holds {held} for {duration_text(pin.lease_ms)}")


def pinned(session: Session, text: str) -> read_pb2.TableVersion:
    name, _, version = text.rpartition("@")  # a branch is no number
    is_given = bool(name) and version.isdecimal()
    table = find_table(session.client, name if is_given else text)
    return read_pb2.TableVersion(table_id=table.table_id, version=int(version[:19]) if is_given else None)


@command("renew", GROUP)
@pin_argument
@lease_option
def run_renew(session: Session, pin_id: str, lease: float | None) -> None:
    """Keep a pin for another lease.

    laketx pins renew 01a20627-6675 --lease 600
    """
    pin_id = find_pin(session.client, pin_id)
    lease_ms = session.client.renew_pin(pin_id, lease_ms=round((lease or 0) * 1_000))
    answer = {"pin_id": pin_id, "lease_ms": lease_ms}
    session.done(f"renewed pin {pin_id}: it holds for {duration_text(lease_ms)}", answer)


@command("end", GROUP)
@pin_argument
@asks
def run_end(session: Session, pin_id: str, yes: bool, dry_run: bool) -> None:
    """End a pin.

    laketx pins end 01a20627-6675
    """
    pin_id = find_pin(session.client, pin_id)
    held = [pin for pin in session.client.list_pins() if pin.pin_id == pin_id]
    if not held:
        facts, hint = {"pin_id": pin_id}, "laketx pins list"
        raise CommandError(Exit.NOT_FOUND, "PIN_UNKNOWN", "there is no such pin, or no longer", facts, hint)
    who = held[0].principal.name or "somebody"
    what = f"the pin of {who} on {', '.join(what_is_held(session, pin) for pin in held)}"
    warning = " Its versions may go then."
    if session.agreed("end", what, held, yes=yes, dry_run=dry_run, warning=warning):
        session.client.unpin(pin_id)
        session.done(f"ended pin {pin_id}", held)


def what_is_held(session: Session, pin: admin_pb2.Pin) -> str:
    return f"{table_name(session.client, pin.table_id)}@{pin.version}"
