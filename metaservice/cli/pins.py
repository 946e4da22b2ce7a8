"""`laketx pins`: who keeps which versions readable; make a pin, keep it, end it."""

from __future__ import annotations

from metaservice.cli.command import PIN, TABLE, Arguments, Command, Parser, add_yes, seconds
from metaservice.cli.cursor import left_text
from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.find import find_table, table_name
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import duration_text, when
from protos.laketx.v1 import admin_pb2, read_pb2

COLUMNS = (
    Column("pin"),
    Column("table"),
    Column("version", right=True),
    Column("who", rank=1),
    Column("client", rank=5),
    Column("since (UTC)", rank=4),
    Column("age", rank=2, right=True),
    Column("lease left", rank=3, right=True),
)


def run_list(session: Session, args: Arguments) -> None:
    del args
    pins, tags = list(session.client.list_pins()), list(session.client.list_tags())
    cursors = list(session.client.list_cursors())
    if session.as_json:
        session.show_json([*pins, *tags, *cursors])
        return
    held = {each.table_id for found in (pins, tags, cursors) for each in found}
    names = {table_id: table_name(session.client, table_id) for table_id in held}
    now_us = session.now_us()
    rows = [pin_row(pin, names[pin.table_id]) for pin in pins]
    rows += [mark_row(tag, f"tag {tag.name}", names[tag.table_id], now_us, "for good") for tag in tags]
    rows += [mark_row(each, f"cursor {each.name}", names[each.table_id], now_us, left_text(each)) for each in cursors]
    session.show_rows(COLUMNS, rows)


def pin_row(pin: admin_pb2.Pin, table: str) -> Row:
    who, age, left = pin.principal, duration_text(pin.age_ms), duration_text(pin.lease_left_ms)
    return (pin.pin_id, table, pin.version, who.name, who.client, when(pin.begin_time_us), age, left)


def mark_row(mark: read_pb2.Tag | read_pb2.Cursor, what: str, table: str, now_us: int, left: str) -> Row:
    who, since_us = mark.principal, mark.create_time_us
    age = duration_text(max(now_us - since_us, 0) // 1_000)
    return (what, table, mark.version, who.name, who.client, when(since_us), age, left)


def create_arguments(parser: Parser) -> None:
    parser.add(
        "tables",
        nargs="+",
        metavar="TABLE[@VERSION]",
        help="Names or ids of tables; without a version the newest, all as of one instant.",
        completes=TABLE,
    )
    add_lease(parser)


def add_lease(parser: Parser) -> None:
    parser.add(
        "--lease", type=seconds(1, 86_400), default=0.0, metavar="S", help="How long; the service may grant less."
    )


def run_create(session: Session, args: Arguments) -> None:
    wanted = [pinned(session, text) for text in args.tables]
    pin = session.client.pin(wanted, lease_ms=round(args.lease * 1_000))
    if session.as_json:
        session.show_json(pin)
        return
    held = ", ".join(f"{table_name(session.client, each.table_id)}@{each.version}" for each in pin.tables)
    session.say(f"{pin.pin_id} holds {held} for {duration_text(pin.lease_ms)}")


def pinned(session: Session, text: str) -> read_pb2.TableVersion:
    name, at, version = text.partition("@")
    if at and not version.isdecimal():
        raise usage_failure(f"`{text}` is not TABLE@VERSION", next_step="such as: shop.orders@41")
    table = find_table(session.client, name)
    return read_pb2.TableVersion(table_id=table.table_id, version=int(version[:19]) if at else None)


def pin_argument(parser: Parser) -> None:
    parser.add("pin_id", metavar="PIN", help="Id of the pin.", completes=PIN)


def renew_arguments(parser: Parser) -> None:
    pin_argument(parser)
    add_lease(parser)


def run_renew(session: Session, args: Arguments) -> None:
    lease_ms = session.client.renew_pin(args.pin_id, lease_ms=round(args.lease * 1_000))
    if session.as_json:
        session.show_json({"pin_id": args.pin_id, "lease_ms": lease_ms})
    session.done(f"{args.pin_id} holds for {duration_text(lease_ms)} from now on")


def end_arguments(parser: Parser) -> None:
    pin_argument(parser)
    add_yes(parser)


def run_end(session: Session, args: Arguments) -> None:
    held = [pin for pin in session.client.list_pins() if pin.pin_id == args.pin_id]
    if not held:
        facts = {"pin_id": args.pin_id}
        raise CommandError(
            Exit.NOT_FOUND, "PIN_UNKNOWN", "there is no such pin, or no longer", facts, "laketx pins list"
        )
    who = held[0].principal.name or "somebody"
    what = f"the pin of {who} on {', '.join(what_is_held(session, pin) for pin in held)}"
    if args.dry_run:
        if session.as_json:
            session.show_json(held)
        else:
            session.say(f"would end {what}")
        return
    session.confirm(f"End {what}? Its versions may go then.", yes=args.yes)
    session.client.unpin(args.pin_id)
    if session.as_json:
        session.show_json(held)
    session.done(f"{args.pin_id} has ended")


def what_is_held(session: Session, pin: admin_pb2.Pin) -> str:
    return f"{table_name(session.client, pin.table_id)}@{pin.version}"


COMMAND = Command(
    "pins",
    "Look at what keeps old versions readable, make pins and end them.",
    commands=(
        Command(
            "list",
            "List what keeps old versions: pins, oldest first, a line for each version held; tags; cursors.",
            run_list,
        ),
        Command(
            "create",
            "Pin versions of tables, all at one instant, for a time.",
            run_create,
            create_arguments,
            details="laketx pins create shop.orders shop.items@7 --lease 600",
        ),
        Command("renew", "Keep a pin for another lease.", run_renew, renew_arguments),
        Command("end", "End a pin.", run_end, end_arguments),
    ),
)
