"""`laketx watch`: the commits of a table as they come; each may run a command."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import Final

import click

from metaservice.cli.command import command
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import find_table
from metaservice.cli.kinds import VERSION_MAX, whole
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import table_argument
from metaservice.cli.values import as_json, when, word
from metaservice.shared.terminal import json_text
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2

COLUMNS: Final = (
    Column("version", right=True),
    Column("committed (UTC)", rank=2),
    Column("operation"),
    Column("who", rank=1),
    Column("+files", right=True),
    Column("-files", right=True),
    Column("+rows", right=True),
    Column("-rows", right=True),
    Column("message", rank=3),
)
WIDTHS: Final = (7, 26, 13, 10, 6, 6, 9, 9, 10)


@command("watch")
@table_argument
@click.option(
    "--after",
    type=whole(-1, VERSION_MAX),
    help="Begin after this version; -1 begins with the table's creation; default: after the newest.",
)
@click.option("--count", "-c", type=whole(1, VERSION_MAX), help="Stop after this many commits.")
@click.option("--exec", "program", metavar="CMD", help="Shell command to run for each commit, one after the other.")
@click.option("--keep-going", is_flag=True, help="Continue if the command of --exec fails.")
def run(
    session: Session, table: str, after: int | None, count: int | None, program: str | None, keep_going: bool
) -> None:
    """Follow the commits of a table as they come, each once.

    laketx watch shop.orders --after 41 -o json
    laketx watch shop.orders --exec 'laketx changes $LAKETX_TABLE --from $((LAKETX_VERSION - 1)) --to $LAKETX_VERSION'
    The command of --exec gets LAKETX_TABLE, LAKETX_TABLE_ID, LAKETX_VERSION, LAKETX_OPERATION and LAKETX_TXN, and the
    commit as JSON on stdin. If the service stops or restarts, the watch waits for it within --timeout. Ctrl-C ends the
    watch; --after resumes it.
    """
    meta = find_table(session.client, table)
    with closing(session.client.watch(meta.table_id, after_version=after)) as stream:
        commits = islice(stream, count)
        if program is not None:
            for commit in commits:
                execute(session, meta, commit, program, keep_going=keep_going)
        elif session.as_json:
            session.show_json_lines(commits)
        else:
            session.show_each(COLUMNS, WIDTHS, rows(commits))


def rows(commits: Iterator[read_pb2.Version]) -> Iterator[Row]:
    for commit in commits:
        yield (
            commit.version,
            when(commit.commit_time_us),
            word(common_pb2.Operation.Name, commit.operation),
            commit.principal.name,
            commit.files_added,
            commit.files_removed,
            commit.rows_added,
            commit.rows_removed,
            commit.commit_message,
        )


def execute(
    session: Session, table: catalog_pb2.Table, commit: read_pb2.Version, command: str, *, keep_going: bool
) -> None:
    """The command gets the commit in its environment and as JSON on stdin."""
    operation = word(common_pb2.Operation.Name, commit.operation).replace(" ", "_")
    session.note(f"version {commit.version}: {operation} by {commit.principal.name or 'somebody'}")
    environment = {
        "LAKETX_TABLE": table.name,
        "LAKETX_TABLE_ID": table.table_id,
        "LAKETX_VERSION": str(commit.version),
        "LAKETX_OPERATION": operation,
        "LAKETX_TXN": commit.txn_id,
        **({"LAKETX_FOLDER": session.settings.folder} if session.settings.folder else {}),
        **({} if session.settings.folder else {"LAKETX_SERVER": session.settings.server}),
    }
    document = json_text(as_json(commit)) + "\n"
    done = subprocess.run(  # noqa: S602 - the user's own command line
        command, shell=True, check=False, env={**inherited(session), **environment}, input=document.encode()
    )
    if done.returncode == 0:
        return
    if done.returncode == -signal.SIGINT:  # Ctrl-C goes to both, and the command may be the quicker one
        raise KeyboardInterrupt
    if keep_going:
        session.note(f"the command failed with {done.returncode}; going on")
        return
    raise CommandError(
        Exit.REFUSED,
        "COMMAND_FAILED",
        "the command failed, so the watch ends",
        {"version": str(commit.version), "exit": str(done.returncode)},
        f"laketx watch {table.name} --after {commit.version - 1} --exec … goes on with it; --keep-going doesn't stop",
    )


def inherited(session: Session) -> dict[str, str]:
    """What this command was started with, a service of its own apart."""
    return {
        name: value for name, value in session.environment.items() if name not in ("LAKETX_SERVER", "LAKETX_FOLDER")
    }
