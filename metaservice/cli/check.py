"""`laketx check`: whether the log and the index of the store say the same, online or on a folder."""

from __future__ import annotations

import click

from metaservice.cli.command import command
from metaservice.cli.failures import Exit, usage_failure
from metaservice.cli.find import find_table
from metaservice.cli.kinds import FILE
from metaservice.cli.output import Session
from metaservice.cli.parameters import one_table
from metaservice.cli.serve import become
from protos.laketx.v1 import admin_pb2

REPORT_EVERY_ENTRIES = 100_000


@command("check")
@one_table
@click.option("--data", type=FILE, help="Check a whole data folder or s3://bucket/path on which no service runs.")
def run(session: Session, table: str | None, data: str | None) -> Exit:
    """Check the store: replay its log against its index; ends with 7 if they differ.

    laketx check
    laketx check --data data
    With --data it ends with 1 if it finds something, with 74 if the folder can't be used. Each finding is a word and
    facts (docs/operations.md). With `-o json` it prints one document a line while the check runs.
    """
    if data is not None:
        if table is not None:
            raise usage_failure("--data checks a folder as a whole: leave TABLE out")
        become("metaservice", "check", "--data", data)
    table_id = find_table(session.client, table).table_id if table is not None else ""
    problems, noted = 0, 0
    last = admin_pb2.CheckResponse()
    for last in session.client.check(table_id):
        problems += len(last.problems)
        if session.as_json:
            session.show_json_lines([last])
        else:
            for problem in last.problems:
                session.say(problem)
        if last.entries_read >= noted + REPORT_EVERY_ENTRIES:
            noted = last.entries_read
            session.note(f"{last.tables_checked} tables, {last.entries_read} entries …")
    session.done(f"checked {last.tables_checked} tables, {last.entries_read} entries: {problems} problems")
    return Exit.CORRUPT if problems else Exit.DONE
