"""The command `laketx`: its commands, in the order in which help shows them. Each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from metaservice.cli.command import Group, group
from metaservice.cli.plugins import added_commands, merge
from metaservice.cli.settings import version

# Each is a module of this package, which declares it as `run` or, where it has commands of its own, as `GROUP`; or it
# is of another package.
SECTIONS: Final = {
    "Tables and rows": "namespace table view periodic head count load ingest export import sql",
    "Versions": "versions show files changes diff watch tag cursor pins branch",
    "Commits and conflicts": "txn why explain",
    "Compaction, and what is deleted": "compaction worker purge fsck check-keys warehouse",
    "The service": "serve ping health status console clock backup restore check store step-down events bench",
    "Who may do what": "whoami can grant revoke grants token storage-key",
    "Other programs": "iceberg spark-jar completion help",
}
TITLE_OF: Final = {name: title for title, names in SECTIONS.items() for name in names.split()}
BY_OTHERS: Final = (
    *("head", "count", "load", "ingest", "export", "import", "sql", "fsck", "check-keys"),
    *("warehouse", "iceberg", "console", "spark-jar"),
)
IN_ACCESS: Final = ("whoami", "can", "grant", "revoke", "grants")  # one module has them all
COMPLETE: Final = "__complete"


class Root(Group):
    """Commands of this package and those that other packages add."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Lists the existing commands in the order of the sections; any other comes last."""
        added = [each.name or "" for each in added_commands()]
        return [name for name in dict.fromkeys((*TITLE_OF, *added)) if name in added or is_own(name)]

    def title_of(self, name: str) -> str:
        return TITLE_OF.get(name, "More")

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            command = own_command(cmd_name)
            if command is None or isinstance(command, Group):
                command = merge(command, [each for each in added_commands() if each.name == cmd_name])
            if command is not None:
                self.add_command(command, cmd_name)
        return self.commands.get(cmd_name)


def is_own(name: str) -> bool:
    """Whether it is of this package."""
    return name in TITLE_OF and name not in BY_OTHERS


def own_command(name: str) -> click.Command | None:
    if not is_own(name) and name != COMPLETE:
        return None
    if name in IN_ACCESS:
        in_access: click.Command = getattr(import_module("metaservice.cli.access"), name)
        return in_access
    module = import_module(f"metaservice.cli.{name.removeprefix('__').replace('-', '_')}")
    command: click.Command = module.GROUP if hasattr(module, "GROUP") else module.run
    return command


def show_version(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(f"laketx {version()}")
        context.exit()


def build_root() -> Group:
    shows_version = click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show_version,
        help="Show the version of this command and end.",
    )
    return group("laketx", "Look at tables and transactions of LakeTX, and run the service.", Root, [shows_version])
