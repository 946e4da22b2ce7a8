"""`laketx branch`: make, list, look at, compare, merge, refresh, extend and drop branches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial

import click
from google.protobuf.message import Message

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.kinds import BRANCH, VERSION_MAX, seconds, whole
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks, comment_option, dry_run_option, warehouse_option
from metaservice.cli.plugins import later
from metaservice.cli.values import duration_text, size_text, to_second, when
from metaservice.client import MetaServiceError
from metaservice.client.branch_diff import BranchedChanges, diff_branch
from metaservice.client.branch_holds import HeldFiles, branch_holds
from protos.laketx.v1 import catalog_pb2

KEEP_S_MAX = 366 * 86_400
COLUMNS = (
    Column("branch"),
    Column("parent"),
    Column("left at (UTC)", rank=1),
    Column("ends in", rank=2, right=True),
    Column("who", rank=3),
    Column("tables", rank=4, folds=True),
    Column("comment", rank=5, folds=True),
)
TABLE_COLUMNS = (
    Column("table"),
    Column("base", right=True),
    Column("version", right=True),
    Column("parent's", right=True),
    Column("on the branch"),
)
HELD_COLUMNS = (
    Column("table"),
    Column("version", right=True),
    Column("files", right=True),
    Column("size", right=True),
)
MERGE_COLUMNS = (
    Column("table"),
    Column("commits", right=True),
    Column("version", right=True),
    Column("merge", folds=True),
)
DIFF_COLUMNS = (
    Column("table"),
    Column("change"),
    Column("commits", right=True),
    Column("parent's", right=True),
    Column("rows", right=True),
    Column("files", right=True),
    Column("columns", folds=True),
)
REFRESH_COLUMNS = (*MERGE_COLUMNS[:-1], Column("refresh", folds=True))
EVENT_COLUMNS = (
    Column("number", right=True),
    Column("time (UTC)", rank=1),
    Column("what"),
    Column("branch"),
    Column("parent", rank=2),
    Column("by", rank=3),
)

GROUP = group("branch", "Make, merge and drop branches; their tables are named TABLE@BRANCH.")
branch_argument = click.argument("name", metavar="BRANCH", type=BRANCH, help="Name of the branch.")


@command("create", GROUP)
@click.argument(
    "names", metavar="BRANCH...", nargs=-1, required=True, help="Names of branches: letters, digits, `_` and `-`."
)
@click.option("--parent", type=BRANCH, default="", help="The branch that it leaves; default: the lake itself.")
@click.option("--keep", type=seconds(1, KEEP_S_MAX), help="How many seconds it lives (default a week).")
@click.option("--tables", multiple=True, help="Limit it to this table, or to NAMESPACE.*; may be repeated.")
@comment_option
def run_create(
    session: Session, names: tuple[str, ...], parent: str, keep: float | None, tables: tuple[str, ...], comment: str
) -> None:
    """Make branches: every table as it is now. Nothing is copied.

    laketx branch create etl --tables 'shop.*'
    Each branch is made by itself: one that is refused stops no other.
    """
    keep_ms = round((keep or 0) * 1_000)
    if len(names) == 1:
        made = session.client.create_branch(names[0], parent=parent, keep_ms=keep_ms, comment=comment, tables=tables)
        session.done(f"created branch {made.name}: its tables are named TABLE@{made.name}", made)
        return
    many = session.client.create_branches(names, parent=parent, keep_ms=keep_ms, comment=comment, tables=tables)
    show_each(session, "created", names, many)


def show_each(
    session: Session, verb: str, names: Iterable[str], outcomes: Sequence[Message | MetaServiceError]
) -> None:
    """Shows what became of each branch, and fails with the first refusal."""
    refusals = [outcome for outcome in outcomes if isinstance(outcome, MetaServiceError)]
    if session.as_json:
        session.show_json([outcome for outcome in outcomes if not isinstance(outcome, MetaServiceError)])
    for name, outcome in zip(names, outcomes, strict=True):
        if not isinstance(outcome, MetaServiceError):
            session.done(f"{verb} branch {name}")
        elif outcome is not refusals[0]:
            session.note(f"branch {name}: {outcome}")
    if refusals:
        raise refusals[0]


@command("list", GROUP)
def run_list(session: Session) -> None:
    """List branches, by name.

    laketx branch list
    """
    now_us = session.now_us()
    session.show_list(COLUMNS, session.client.list_branches(), lambda branch: row(branch, now_us))


@command("events", GROUP)
@click.option("--after", type=whole(0, VERSION_MAX), default=0, help="Only events after the one of this number.")
def run_events(session: Session, after: int) -> None:
    """List what happened to branches: created, merged, refreshed, dropped, expired.

    laketx branch events --after 41
    """
    session.show_list(EVENT_COLUMNS, session.client.list_branch_events(after=after), event_row)


def event_row(event: catalog_pb2.BranchEvent) -> Row:
    what = f"{event.kind}, and kept" if event.kept else event.kind
    return event.number, when(event.time_us), what, event.branch, event.parent or "main", event.principal.name or "-"


def row(branch: catalog_pb2.Branch, now_us: int) -> Row:
    left = duration_text(max(branch.expire_time_us - now_us, 0) // 1_000) if branch.expire_time_us else "never"
    tables = ", ".join(branch.tables) or "all"
    parent, since = branch.parent or "main", to_second(branch.time_us)
    return branch.name, parent, since, left, branch.principal.name, tables, branch.comment


@command("show", GROUP)
@branch_argument
@click.option("--held", is_flag=True, help="Show the files that the branch keeps and its parent has no more.")
def run_show(session: Session, name: str, held: bool) -> None:
    """Show a branch, and its tables that were asked for, made or dropped on it.

    With --held it lists the files of every table that has changed in the parent since the branch left.

    laketx branch show etl --held
    """
    shown = session.client.get_branch(name)
    if held:
        tables = branch_holds(session.client, shown)
        if session.as_json:
            session.show_json([asdict(table) for table in tables])
            return
        session.show_rows(HELD_COLUMNS, map(held_row, tables))
        files, size = sum(table.files for table in tables), sum(table.size_bytes for table in tables)
        session.say(f"{files} files of {len(tables)} tables, {size_text(size)}")
        return
    if session.as_json:
        session.show_json(shown)
        return
    session.show_rows(COLUMNS, [row(shown.branch, session.now_us())])
    names = ((name.name, "", "", "", what_changed(name)) for name in shown.names)
    session.show_rows(TABLE_COLUMNS, [*map(table_row, shown.tables), *names])


def held_row(table: HeldFiles) -> Row:
    return table.name, table.version, table.files, size_text(table.size_bytes)


def table_row(table: catalog_pb2.BranchTable) -> Row:
    above = table.parent_head_version if table.HasField("parent_head_version") else ""
    base = table.base_version if table.parent_table_id else ""
    return table.name, base, table.head_version, above, what_happened(table)


def what_happened(table: catalog_pb2.BranchTable) -> str:
    if table.dropped:
        return "dropped"
    if not table.parent_table_id:
        return "new"
    commits = table.head_version - table.base_version
    return f"{commits} commits" if commits > 1 else "1 commit" if commits else "unchanged"


def what_changed(name: catalog_pb2.BranchName) -> str:
    """Of a view or a namespace."""
    return f"{name.change} {name.kind}"


@command("diff", GROUP)
@branch_argument
def run_diff(session: Session, name: str) -> None:
    """Show what changed on a branch, and in its parent since the branch left.

    laketx branch diff etl
    Rows and files are sums over the branch's commits without compactions. Columns: `+` added, `-` dropped, `~` changed.
    """
    diffs, names = diff_branch(session.client, name), session.client.get_branch(name).names
    if session.as_json:
        session.show_json(
            [*map(diff_fields, diffs), *({name.kind: name.name, "change": name.change} for name in names)]
        )
    else:
        rows = ((name.name, what_changed(name), "", "", "", "", "") for name in names)
        session.show_rows(DIFF_COLUMNS, [*map(diff_row, diffs), *rows])


def diff_row(diff: BranchedChanges) -> Row:
    rows = f"+{diff.total('rows_added')} -{diff.total('rows_removed')}"
    files = f"+{diff.total('files_added')} -{diff.total('files_removed')}"
    above = "dropped" if diff.is_parent_dropped else len(diff.parent_commits)
    return diff.table.name, diff.change, len(diff.commits), above, rows, files, ", ".join(diff.columns)


def diff_fields(diff: BranchedChanges) -> dict[str, object]:
    totals = {count: diff.total(count) for count in ("rows_added", "rows_removed", "files_added", "files_removed")}
    return {
        "table": diff.table.name,
        "change": diff.change,
        "commits": diff.commits,
        "parent_commits": diff.parent_commits,
        "parent_dropped": diff.is_parent_dropped,
        "columns": diff.columns,
        **totals,
    }


@command("merge", GROUP)
@branch_argument
@click.option("--keep", is_flag=True, help="Keep the branch: the merge is its new fork point.")
@click.option(
    "--check",
    "checks",
    metavar="SQL",
    multiple=True,
    help="A query that must answer true on the branch; may be repeated.",
)
@warehouse_option
@dry_run_option
def run_merge(
    session: Session, name: str, keep: bool, checks: tuple[str, ...], warehouse: str | None, dry_run: bool
) -> None:
    """Commit to the parent what was committed on a branch, in one transaction over all tables, or not at all.

    laketx branch merge etl --dry-run
    laketx branch merge etl
    laketx --folder lake branch merge etl --check "SELECT count(*) = 0 FROM shop.orders WHERE amount < 0"
    The tables of a check are the branch's; DuckDB runs it. Checks of tables (the property merge.checks) run, too. If
    one does not hold, the branch stays as it is. A refused merge shows the first conflict of each table. Both change
    nothing and exit with 4.
    """
    run_check = partial(later("laketx.commands.branch_checks", "run_check", extra="arrow"), session, name, warehouse)
    for check in checks:
        run_check(check)
    dropped = [table.name for table in session.client.get_branch(name).tables if table.dropped]
    answer = session.client.merge_checked_branch(name, run_check, keep=keep, validate_only=dry_run)
    if session.as_json:
        session.show_json(answer)
    else:
        drops: list[Row] = [(table, "", "", "drops the table") for table in dropped] if answer.merged else []
        session.show_rows(MERGE_COLUMNS, [*merge_rows(answer.tables, answer.names), *drops])
        if answer.merged:
            outcome = "could be merged" if dry_run else "merged"
            lost = f", {len(drops)} dropped" if drops else ""
            session.note(f"{outcome}: {name}, {len(answer.tables)} tables{lost}{names_text(answer.names)}")
    if not answer.merged:
        raise refused_merge(name, answer.tables, answer.names)


@command("refresh", GROUP)
@branch_argument
@dry_run_option
def run_refresh(session: Session, name: str, dry_run: bool) -> None:
    """Move the fork point of a branch to now, with the branch's commits on top of the parent's newest versions.

    laketx branch refresh etl --dry-run
    laketx branch refresh etl
    The commits are judged as a merge judges them. A refused refresh shows the first conflict of each table, changes
    nothing, and exits with 4.
    """
    answer = session.client.refresh_branch(name, validate_only=dry_run)
    if session.as_json:
        session.show_json(answer)
    else:
        session.show_rows(REFRESH_COLUMNS, merge_rows(answer.tables, answer.names))
        if answer.refreshed:
            outcome = "could be refreshed" if dry_run else "refreshed"
            session.note(f"{outcome}: {name}, {len(answer.tables)} changed tables{names_text(answer.names)}")
    if not answer.refreshed:
        raise refused_merge(name, answer.tables, answer.names)


def refusals_of(tables: Iterable[catalog_pb2.MergedTable], names: Iterable[catalog_pb2.BranchName]) -> str:
    """All of a merge or a refresh."""
    lost = [f"{table.name}: {refusal_of(table)}" for table in tables if refusal_of(table)]
    return "; ".join([*lost, *(f"the {name.kind} {name.name}: {name.message}" for name in names if name.reason)])


def names_text(names: Sequence[catalog_pb2.BranchName]) -> str:
    return f", {len(names)} views and namespaces" if names else ""


def refused_merge(
    name: str, tables: Iterable[catalog_pb2.MergedTable], names: Iterable[catalog_pb2.BranchName]
) -> CommandError:
    lost = refusals_of(tables, names)
    hint = "make the changes again on a new branch, or in the parent"
    return CommandError(Exit.CONFLICT, "MERGE_REFUSED", lost, {"branch": name}, hint)


def merge_rows(tables: Iterable[catalog_pb2.MergedTable], names: Iterable[catalog_pb2.BranchName]) -> list[Row]:
    return [*map(merge_row, tables), *((name.name, "", "", name.message or what_changed(name)) for name in names)]


def merge_row(table: catalog_pb2.MergedTable) -> Row:
    refusal = refusal_of(table)
    outcome = refusal or ("as they are" if table.fast_forward else "judged against the parent's commits")
    return table.name, table.commits, table.version, outcome


def refusal_of(table: catalog_pb2.MergedTable) -> str:
    if table.HasField("conflict"):
        return f"version {table.branch_version} on the branch {table.conflict.message}"
    return table.message


@command("extend", GROUP)
@branch_argument
@click.option("--keep", type=seconds(1, KEEP_S_MAX), required=True, help="How many seconds it lives from now on.")
def run_extend(session: Session, name: str, keep: float) -> None:
    """Set how long a branch lives.

    laketx branch extend etl --keep 2592000
    """
    branch = session.client.extend_branch(name, round(keep * 1_000))
    session.done(f"extended branch {branch.name}: it ends at {to_second(branch.expire_time_us)} UTC", branch)


@command("drop", GROUP)
@click.argument("names", metavar="BRANCH...", nargs=-1, required=True, type=BRANCH, help="Names of branches.")
@asks
def run_drop(session: Session, names: tuple[str, ...], yes: bool, dry_run: bool) -> None:
    """Drop branches with what was committed on them.

    laketx branch drop etl
    Every name is checked before the first branch is dropped: a misspelt name drops nothing.
    """
    shown = [session.client.get_branch(name) for name in dict.fromkeys(names)]
    warning = "".join(map(changes_text, shown))
    if len(shown) == 1:
        branch = shown[0].branch.name
        if session.agreed("drop", f"branch {branch}", shown[0], yes=yes, dry_run=dry_run, warning=warning):
            answer = session.client.drop_branch(branch)
            session.done(f"dropped branch {branch}; transactions ended: {answer.ended_transactions}", answer)
        return
    branches = [each.branch.name for each in shown]
    if session.agreed("drop", f"branches {', '.join(branches)}", shown, yes=yes, dry_run=dry_run, warning=warning):
        show_each(session, "dropped", branches, session.client.drop_branches(branches))


def changes_text(shown: catalog_pb2.GetBranchResponse) -> str:
    """A warning about a branch that has changes."""
    changed = sum(what_happened(table) != "unchanged" for table in shown.tables)
    if not changed and not shown.names:
        return ""
    return f" {shown.branch.name} has changes of {changed} tables{names_text(shown.names)}."
