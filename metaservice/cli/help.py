"""`laketx help`: the help of a command."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from metaservice.cli.command import Group, command, find_context
from metaservice.cli.failures import CommandError
from metaservice.cli.output import Session


class CommandWord(click.ParamType[str, str]):
    """A word of a command."""

    name = "cmd"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            context = find_context(ctx.find_root(), ctx.params.get(param.name) or ())
        except CommandError:
            return []
        return context.command.shell_complete(context, incomplete) if isinstance(context.command, Group) else []


@command("help")
@click.argument("words", metavar="[CMD]...", nargs=-1, type=CommandWord(), help="Words of the command.")
def run(session: Session, words: tuple[str, ...]) -> None:
    """Show the help of a command.

    laketx help table create
    """
    del session
    click.echo(find_context(click.get_current_context().find_root(), words).get_help())
