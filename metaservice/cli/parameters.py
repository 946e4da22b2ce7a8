"""Arguments and options that several commands have, each declared once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict, TypeVar

import click

from metaservice.cli.failures import usage_failure
from metaservice.cli.kinds import FILE, PAIR, TABLE, TAG, TIME, TRANSACTION, VERSION, OneOf, name_of, whole
from metaservice.client import PROFILE_NAMES

COMMITS_AGO_MAX: Final = 10_000
PROFILES: Final = OneOf(list(PROFILE_NAMES))
PROFILES_TEXT: Final = (
    f"{PROFILES.choices[0]} (the default), {', '.join(PROFILES.choices[1:-1])} or {PROFILES.choices[-1]}"
)
Run = TypeVar("Run", bound=Callable[..., object])


class AsOf(TypedDict):
    """The values of `version_options`, at most one; none means the newest version."""

    version: int | None
    time_us: int | None
    commits_ago: int | None
    tag: str | None


table_argument = click.argument("table", type=TABLE, help="Name or id of the table.")
one_table = click.argument("table", type=TABLE, required=False, help="Only this table: its name or id.")
table_option = click.option("--table", type=TABLE, help="Only this table: its name or id.")
transaction_argument = click.argument("txn_id", metavar="TXN", type=TRANSACTION, help="Id of the transaction.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
yes_option = click.option("--yes", "-y", is_flag=True, help="Don't ask for confirmation.")
comment_option = click.option("--comment", default="", help="A comment for people.")
message_option = click.option("--message", "-m", default="", help="Commit message, shown in the history.")
property_option = click.option(
    "--property", "properties", multiple=True, type=PAIR, help="A property, such as user.owner=ana; may be repeated."
)
warehouse_option = click.option(
    "--warehouse", type=FILE, help="Folder or URI that contains the data files (LAKETX_WAREHOUSE; default: --folder)."
)


def alone(context: click.Context, option: click.Parameter, value: object) -> object:
    """The callback of options of which a command takes one."""
    if value is not None and value is not False:
        first: click.Parameter = context.meta.setdefault("laketx.alone", option)
        if first is not option:
            raise usage_failure(f"{name_of(first)} or {name_of(option)}, not both", usage=context.get_usage())
    return value


def asks(run: Run) -> Run:
    """Adds the options of a command that destroys something."""
    return yes_option(dry_run_option(run))


def limit_option(default: int = 50) -> Callable[[Run], Run]:
    return click.option(
        "--limit", type=whole(1, 100_000), default=default, help=f"Show at most this many (default {default})."
    )


def version_options(run: Run) -> Run:
    """A version of a table."""
    run = click.option("--tag", type=TAG, callback=alone, help="The version that a tag names.")(run)
    run = click.option(
        "--ago",
        "commits_ago",
        type=whole(0, COMMITS_AGO_MAX),
        callback=alone,
        help="This many logical commits back; compactions and ALTERs don't count.",
    )(run)
    run = click.option(
        "--at", "time_us", type=TIME, callback=alone, help='A time: "2026-11-21 15:04:05" (UTC), "10m ago", "now".'
    )(run)
    return click.option("--version", type=VERSION, callback=alone, help="An ID version; default: the newest.")(run)


def range_options(run: Run) -> Run:
    """From a version to another."""
    run = click.option("--to", "to_version", type=VERSION, help="End at this version; default: the newest.")(run)
    return click.option("--from", "from_version", type=VERSION, required=True, help="After this version.")(run)
