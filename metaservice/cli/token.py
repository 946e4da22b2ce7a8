"""`laketx token`: what services show to say who they are."""

from __future__ import annotations

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.kinds import whole
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks
from metaservice.cli.values import when
from protos.laketx.v1 import access_pb2

DAY_MS = 24 * 3_600_000
COLUMNS = (
    Column("token"),
    Column("principal"),
    Column("groups", rank=2),
    Column("expires (UTC)"),
    Column("made by", rank=1),
    Column("made (UTC)", rank=3),
)

GROUP = group("token", "Make, list and revoke the tokens of services.")


@command("create", GROUP)
@click.argument("principal", help="The principal of the token.")
@click.option("--group", "groups", multiple=True, help="A group of the principal; may be repeated.")
@click.option("--days", type=whole(0, 3_650), default=90, help="Days until it expires (default 90); 0: never.")
def run_create(session: Session, principal: str, groups: tuple[str, ...], days: int) -> None:
    """Make a token and print it. It is shown only once.

    laketx token create nightly-load --days 30 > nightly-load.token
    """
    made = session.client.create_token(principal, groups=groups, valid_ms=days * DAY_MS)
    until = f"until {when(made.token.expire_time_us)}" if made.token.expire_time_us else "until it is revoked"
    if session.as_json:
        session.show_json(made)
        return
    session.note(
        f"token {made.token.token_id} of {principal}, valid {until}; set it as LAKETX_TOKEN, or LAKETX_TOKEN_FILE"
    )
    click.echo(made.secret)


@command("list", GROUP)
def run_list(session: Session) -> None:
    """List the tokens, without their secrets.

    laketx token list
    """
    session.show_list(COLUMNS, session.client.list_tokens(), row)


def row(token: access_pb2.Token) -> Row:
    until = when(token.expire_time_us) if token.expire_time_us else "never"
    return token.token_id, token.principal, ", ".join(token.groups), until, token.created_by, when(token.create_time_us)


@command("revoke", GROUP)
@click.argument("token_id", metavar="TOKEN", help="Id of the token, as `laketx token list` shows it.")
@asks
def run_revoke(session: Session, token_id: str, yes: bool, dry_run: bool) -> None:
    """Revoke a token: the next call with it is refused.

    laketx token revoke 01a20627-651c-7231-9a3c-e4eb132cf76f
    """
    token = next((listed for listed in session.client.list_tokens() if listed.token_id == token_id), None)
    if token is None:
        raise CommandError(
            Exit.NOT_FOUND, "TOKEN_UNKNOWN", "there is no such token", {"token": token_id}, "laketx token list"
        )
    if session.agreed("revoke", f"the token {token_id} of {token.principal}", token, yes=yes, dry_run=dry_run):
        session.client.revoke_token(token_id)
        session.done(f"revoked token {token_id}", token)
