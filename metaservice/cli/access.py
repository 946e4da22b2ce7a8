"""`laketx grant`, `revoke`, `grants`, `whoami`, `can`: who may do what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict, TypeVar, Unpack

import click

from metaservice.cli.command import command
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import find_table
from metaservice.cli.kinds import NAMESPACE, TABLE, OneOf
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import alone
from metaservice.cli.values import when
from protos.laketx.v1 import access_pb2

Run = TypeVar("Run", bound=Callable[..., object])
ROLES: Final = OneOf(["reader", "writer", "maintainer", "admin"])
COLUMNS: Final = (
    Column("who"),
    Column("role"),
    Column("on"),
    Column("granted by", rank=1),
    Column("since (UTC)", rank=2),
)
role_argument = click.argument("role", type=ROLES, help="The role: reader, writer, maintainer or admin.")
who_argument = click.argument("who", help="A user, or group:NAME; all are in group:everyone.")


class Where(TypedDict):
    """The values of `place_options`, at most one; none means the service."""

    table: str | None
    namespace: str | None


def place_options(run: Run) -> Run:
    run = click.option("--namespace", type=NAMESPACE, callback=alone, help="On a namespace and its tables.")(run)
    return click.option("--table", type=TABLE, callback=alone, help="On a table: its name or id.")(run)


def place(session: Session, where: Where) -> access_pb2.Place:
    table, namespace = where["table"], where["namespace"]
    table_id = find_table(session.client, table).table_id if table is not None else ""
    return access_pb2.Place(table_id=table_id, namespace=namespace or "")


def role_value(name: str) -> access_pb2.Role.ValueType:
    return access_pb2.Role.Value(f"ROLE_{name.upper()}")


def role_word(role: access_pb2.Role.ValueType) -> str:
    return access_pb2.Role.Name(role).removeprefix("ROLE_").lower() if role else "none"


def grantee(text: str) -> str:
    return text if text.startswith(("user:", "group:")) else f"user:{text}"


def place_text(grant: access_pb2.Grant) -> str:
    if grant.place.table_id:
        return grant.table_name or grant.place.table_id
    return f"{grant.place.namespace}.*" if grant.place.namespace else "the service"


def row(grant: access_pb2.Grant) -> Row:
    return grant.grantee, role_word(grant.role), place_text(grant), grant.granted_by, when(grant.create_time_us)


@command("grant")
@role_argument
@who_argument
@place_options
def grant(session: Session, role: str, who: str, **where: Unpack[Where]) -> None:
    """Grant a role on a table, a namespace, or the whole service.

    A role includes all smaller roles, and applies to everything below. It replaces the previous role there.

    laketx grant writer alice --table shop.orders

    laketx grant reader group:analysts --namespace shop
    """
    at = place(session, where)
    made = session.client.grant(grantee(who), role_value(role), namespace=at.namespace, table_id=at.table_id)
    session.done(f"granted {role} on {place_text(made)} to {made.grantee}", made)


@command("revoke")
@who_argument
@place_options
def revoke(session: Session, who: str, **where: Unpack[Where]) -> None:
    """Revoke a role on a table, a namespace, or the service.

    Roles on a larger scope or by a group stay: `laketx can` shows them.

    laketx revoke alice --table shop.orders
    """
    at = place(session, where)
    if not session.client.revoke(grantee(who), namespace=at.namespace, table_id=at.table_id):
        facts = {"who": grantee(who)}
        raise CommandError(Exit.NOT_FOUND, "GRANT_UNKNOWN", "there is no such grant", facts, "laketx grants")
    session.done(f"revoked the role of {grantee(who)} there", at)


@command("grants")
@click.option("--who", help="Only grants of a user, or of group:NAME.")
@place_options
def grants(session: Session, who: str | None, **where: Unpack[Where]) -> None:
    """List the grants: all, or those on a table or a namespace.

    laketx grants --table shop.orders
    """
    at = place(session, where) if where["table"] or where["namespace"] else None
    session.show_list(COLUMNS, session.client.list_grants(at, grantee=grantee(who) if who else ""), row)


@command("whoami")
def whoami(session: Session) -> None:
    """Show your identity as the service sees it, and how it was proved.

    laketx whoami
    """
    me = session.client.whoami()
    if session.as_json:
        session.show_json(me)
        return
    if not me.identity_required:
        session.show_pairs([("who", "anybody"), ("role", "admin: this service asks nobody who calls")])
        return
    session.show_pairs(
        [
            ("who", me.principal),
            ("groups", ", ".join(me.groups)),
            ("known by", me.how),
            ("until", when(me.expire_time_us) if me.expire_time_us else "revoked"),
            ("role on the service", role_word(me.role)),
        ]
    )


@command("can")
@role_argument
@click.option("--who", help="Another user, or group:NAME.")
@place_options
def can(session: Session, role: str, who: str | None, **where: Unpack[Where]) -> None:
    """Show whether you, or another user, have a role, and by which grant; ends with 1 if not.

    laketx can writer --table shop.orders --who alice
    """
    at = place(session, where)
    answer = session.client.can(
        role_value(role), namespace=at.namespace, table_id=at.table_id, grantee=grantee(who) if who else ""
    )
    by = f": {role_word(answer.grant.role)} on {place_text(answer.grant)}" if answer.HasField("grant") else ""
    by += f", granted to {answer.grant.grantee}" if by else ""
    if not answer.allowed:
        raise CommandError(Exit.REFUSED, "ROLE_MISSING", f"no{by}", {"role": role}, "")
    session.done(f"yes{by}", answer)
