"""The command itself: options that all commands share, and how an error ends it."""

from __future__ import annotations

import sys

import click

from metaservice.cli.output import Session
from metaservice.cli.serve import serve
from metaservice.cli.tables import tables
from metaservice.cli.txn import txn
from metaservice.cli.versions import versions
from metaservice.cli.why import why
from metaservice.client import ErrorKind, LakeTXError, MetaServiceError

RETRY_BUDGET_S = 5.0


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--server",
    envvar="LAKETX_SERVER",
    default="127.0.0.1:7070",
    show_default=True,
    show_envvar=True,
    help="Address of the service.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables for people or JSON for programs.",
)
@click.pass_context
def laketx(context: click.Context, server: str, output: str) -> None:
    """Looks at tables and transactions of LakeTX, and runs the service."""
    context.obj = context.with_resource(Session(server, as_json=output == "json", retry_budget_s=RETRY_BUDGET_S))


for command in (serve, tables, txn, versions, why):
    laketx.add_command(command)


def main() -> None:
    """Ends with 0, with 1 where the service refuses, with 2 where the command is misspelt."""
    try:
        laketx(prog_name="laketx")
    except MetaServiceError as error:
        facts = "".join(f"\n  {name}: {value}" for name, value in sorted(error.facts.items()))
        advice = "is the service running there?" if error.kind is ErrorKind.UNAVAILABLE else error.kind.value
        click.echo(f"{error.reason}: {error.message or error.kind.value}{facts}\n  what to do: {advice}", err=True)
        sys.exit(1)
    except LakeTXError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
