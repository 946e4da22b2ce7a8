"""What commands are made of: Click's parts with the options that every command has, our help and our refusals.

A command is a function with decorators. Its docstring is its help: the first line says what it does; lines that begin
with `laketx` are examples; the others become paragraphs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

import click

from metaservice.cli.failures import CommandError, did_you_mean, usage_failure
from metaservice.cli.kinds import FILE, OneOf, name_of, seconds, session_of, whole
from metaservice.cli.settings import SERVER, TIMEOUT_S

# commands as other systems' tools call them, by what they are here
_WORDS: Final = {
    "compaction run": "optimize compact rewrite-data-files zorder",
    "purge run": "vacuum expire expire-snapshots remove-orphan-files clean cleanup gc",
    "versions": "history snapshots commits log",
    "table show": "describe desc detail schema info spec properties location uuid",
    "table list": "list ls tables list-tables show-tables",
    "table create": "create create-table",
    "table alter": "alter alter-table",
    "table rename": "rename rename-table",
    "table drop": "drop drop-table",
    "table undrop": "undrop undrop-table",
    "namespace list": "namespaces databases schemas list-namespaces",
    "tag list": "tags refs list-refs",
    "head": "cat scan preview",
    "sql": "query select shell",
    "load": "insert append copy",
    "import": "convert register",
    "serve": "server start",
    "fsck": "repair verify",
}


def keep(context: click.Context, option: click.Parameter, value: object) -> None:
    """An option of every command may stand before it or after it: what comes last counts."""
    if value is not None and value is not False:
        setattr(session_of(context).settings, option.name, value)


def show_help(context: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not context.resilient_parsing:
        click.echo(context.get_help())
        context.exit()


_shared = partial(click.Option, expose_value=False, is_eager=True, callback=keep)
SHARED: Final = (
    _shared(
        ["--server"],
        metavar="ADDR",
        help=f"Address of the service, or of its processes with commas; laketxs://host:port with TLS "
        f"(LAKETX_SERVER; default {SERVER}).",
    ),
    _shared(["--folder"], type=FILE, help="An embedded folder; starts its service if needed (LAKETX_FOLDER)."),
    _shared(
        ["-o", "--output"],
        type=OneOf(["table", "json"]),
        help="Tables for people or JSON for programs (default table).",
    ),
    _shared(
        ["--branch"],
        metavar="BRANCH",
        help="The branch on which tables are whose names say none (docs/branches.md), for commands that take tables.",
    ),
    _shared(["--user"], metavar="NAME", help="Name that the history shows (LAKETX_USER; default: the system's user)."),
    _shared(
        ["--timeout", "timeout_s"],
        type=seconds(0.1, 86_400),
        help=f"Seconds to wait and retry (default {TIMEOUT_S:g}).",
    ),
    _shared(
        ["--width"], type=whole(20, 10_000), help="Columns of text (default: the terminal's width; no limit in a pipe)."
    ),
    _shared(["--no-color"], is_flag=True, help="No colours (NO_COLOR)."),
    _shared(["-q", "--quiet"], is_flag=True, help="Print data and errors only."),
    _shared(["-h", "--help"], is_flag=True, callback=show_help, help="Show this help and end."),
)
PASSED_ON: Final = ("server", "folder", "user", "branch")  # to a program that a command becomes


class Command(click.Command):
    """A command."""

    begins_with: ClassVar[Sequence[click.Parameter]] = SHARED
    takes_branch: ClassVar[bool] = False  # whether it uses `--branch` otherwise than for a table's name
    allow_extra_args = True  # refused by `parse_args`, in our words

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            raise refusal_of(error, error.ctx or ctx) from error
        if not ctx.resilient_parsing:
            refuse_options_as_values(ctx)
            if rest and not isinstance(self, click.Group):
                raise refuse(ctx, f"{ctx.command_path} takes no `{rest[0]}`")
        return rest

    def invoke(self, ctx: click.Context) -> object:
        if not isinstance(self, click.Group):  # what a group runs may have such options still
            session = session_of(ctx)
            session.settings.settle(session.environment)
            if session.settings.branch and not session.settings.branch_used and not self.takes_branch:
                raise refuse(
                    ctx,
                    f"{ctx.command_path}: --branch is for commands that take the name of a table, view or namespace",
                )
        return super().invoke(ctx)

    # ---------------------------------------------------------------------------------------------------------- help

    def get_short_help_str(self, limit: int = 0) -> str:
        """What it does, however long that is."""
        return paragraphs(self.help)[0]

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """With the options that can't be left out."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        return [*super().collect_usage_pieces(ctx), *(each.get_help_spec(ctx) for each in options if each.required)]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        before = ""
        with formatter.indentation():
            for each in paragraphs(self.help):
                if not (is_example(each) and is_example(before)):
                    formatter.write_paragraph()
                formatter.write_text(f"\b\n{each}" if is_example(each) else each)
                before = each

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What is the same everywhere comes last."""
        options = [each for each in self.params if isinstance(each, click.Option)]
        own = [each for each in options if each not in SHARED]
        shared = [each for each in options if each in SHARED]
        for title, listed in (("Options", own), ("Options of every command", shared)):
            if listed:
                with formatter.section(title):
                    formatter.write_dl([(each.get_help_spec(ctx), each.help or "") for each in listed])


class BranchedCommand(Command):
    """A command that works on the branch of `--branch` without the name of a table."""

    takes_branch = True


class Passing(Command):
    """All that follows its name goes to another program unread, --help too, behind the options that stood before it."""

    begins_with = (click.Argument(["options"], nargs=-1, type=FILE),)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = session_of(ctx).settings
        values = {name: getattr(given, name) for name in PASSED_ON}
        before = [word for name, value in values.items() if value for word in (f"--{name}", value)]
        ctx.params["options"] = (*before, *args)
        return []

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[OPTIONS]..."]


class Group(Command, click.Group):
    """Several commands; by itself it does nothing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Lists commands in the order of their declaration."""
        return list(self.commands)

    def list_visible(self, ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                yield name, command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """While a line is completed, an unknown command takes no arguments."""
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise refusal_of(error, ctx) from error
        return name, command or click.Command(None, add_help_option=False), rest

    def title_of(self, name: str) -> str:
        """The heading under which the help shows a command."""
        return "Commands"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, each in self.list_visible(ctx):
            sections.setdefault(self.title_of(name), []).append((name, each.get_short_help_str()))
        for title, listed in sections.items():
            with formatter.section(title):
                formatter.write_dl(listed)
        super().format_options(ctx, formatter)


@click.pass_context
def needs_command(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        raise refuse(context, f"{context.command_path} needs a command", usage=False)


def group(name: str, text: str, kind: type[Group] = Group, params: Sequence[click.Parameter] = ()) -> Group:
    return kind(
        name,
        help=text,
        params=[*params, *SHARED],
        callback=needs_command,
        invoke_without_command=True,
        add_help_option=False,
        subcommand_metavar="COMMAND",
    )


def command(
    name: str, within: Group | None = None, *, text: str | None = None, kind: type[Command] = Command
) -> Callable[[Callable[..., object]], Command]:
    """Decorates what a command runs: a function of the session and of its own arguments and options."""

    def declare(run: Callable[..., object]) -> Command:
        declared = click.command(
            name,
            cls=kind,
            help=text,
            params=list(kind.begins_with),
            add_help_option=False,
            hidden=name.startswith("_"),
        )(click.pass_obj(run))
        if within is not None:
            within.add_command(declared)
        return declared

    return declare


def paragraphs(text: str | None) -> list[str]:
    """Split a help text into paragraphs, which end at an empty line; an example stays on its own line."""
    merged = [""]
    for line in inspect.cleandoc(text or "").splitlines():
        if not line or is_example(line) or is_example(merged[-1]):
            merged.append(line)
        else:
            merged[-1] = f"{merged[-1]} {line}".strip()
    return [paragraph for paragraph in merged if paragraph] or [""]


def is_example(paragraph: str) -> bool:
    return paragraph.startswith("laketx ")


def find_context(root: click.Context, words: Sequence[str]) -> click.Context:
    """Return the context of a command, by its words."""
    context = root
    for word in words:
        command = context.command.get_command(context, word) if isinstance(context.command, click.Group) else None
        if command is None:
            raise refusal_of(click.NoSuchCommand(word), context)
        context = click.Context(command, info_name=word, parent=context)
    return context


# ------------------------------------------------------------------------------------------------------------- refusals


def refusal_of(error: click.UsageError, context: click.Context) -> CommandError:
    """Convert a refusal of Click to our error, with the nearest existing word as a hint."""
    path = context.command_path
    match error:
        case click.NoSuchCommand(command_name=word):
            names = context.command.list_commands(context) if isinstance(context.command, Group) else []
            meant = command_meant(word, path, names)
            hint = f"did you mean `{meant}`?" if meant else did_you_mean(word, names)
            message = f"{path} has no command `{word}`" if context.parent else f"there is no command `{word}`"
            return refuse(context, message, hint, usage=False)
        case click.NoSuchOption(option_name=word):
            return refuse(context, f"{path} takes no `{word}`", did_you_mean(word, option_names(context)))
        case click.MissingParameter():
            return refuse(context, f"{path} needs {name_of(error.param)}")
        case click.BadOptionUsage(option_name=word):
            is_flag = any(word in each.opts and getattr(each, "is_flag", False) for each in context.command.params)
            return refuse(context, f"{word} takes no value" if is_flag else f"{word} needs a value")
        case click.BadParameter():
            return refuse(context, f"{name_of(error.param)}: {error.message}")
        case _:
            return refuse(context, error.message)


def refuse(context: click.Context, message: str, hint: str = "", *, usage: bool = True) -> CommandError:
    shown = context.get_usage() if usage else ""
    return usage_failure(message, usage=shown, next_step=hint or f"{context.command_path} --help")


def refuse_options_as_values(context: click.Context) -> None:
    """`--comment --yes` lacks a comment; Click would take `--yes` for it."""
    names = option_names(context)
    for each in context.command.params:
        value = context.params.get(each.name)
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(each, click.Option) and isinstance(text, str) and text in names:
                raise refuse(context, f"{name_of(each)} needs a value")


def option_names(context: click.Context) -> list[str]:
    options = [each for each in context.command.params if isinstance(each, click.Option)]
    return [name for each in options for name in each.opts]


COMMAND_OF: Final = {word: command for command, words in _WORDS.items() for word in words.split()}


def command_meant(word: str, path: str, names: Collection[str]) -> str:
    """Return the whole command for a word of another tool in a group, such as `laketx versions`; or "".

    A group's own command comes first: `laketx view describe` means `laketx view show`.
    """
    command = COMMAND_OF.get(word.lower().replace("_", "-"))
    if command is None:
        return ""
    last = command.split()[-1]
    root, *groups = path.split()
    if groups and last in names:
        return f"{path} {last}"
    return f"{root} {command}" if groups in ([], ["table"]) else ""
