"""`laketx check`: whether the log and the index of the store say the same, online or on a folder."""

from __future__ import annotations

from metaservice.cli.backup import become
from metaservice.cli.command import FILE, TABLE, Arguments, Command, Parser
from metaservice.cli.failures import Exit, usage_failure
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from protos.laketx.v1 import admin_pb2

SAID_EVERY_ENTRIES = 100_000


def arguments(parser: Parser) -> None:
    parser.add("table", nargs="?", metavar="TABLE", help="Only this one, by name or id; default: all.", completes=TABLE)
    parser.add("--data", metavar="PATH", help="A data folder that no service runs on, as a whole.", completes=FILE)


def run(session: Session, args: Arguments) -> Exit:
    if args.data is not None:
        if args.table is not None:
            raise usage_failure("--data checks a folder as a whole: leave TABLE out")
        become("check", "--data", args.data)
    table_id = find_table(session.client, args.table).table_id if args.table is not None else ""
    found, said = 0, 0
    last = admin_pb2.CheckResponse()
    for last in session.client.check(table_id):
        found += len(last.problems)
        if session.as_json:
            session.show_json_lines([last])
        else:
            for problem in last.problems:
                session.say(problem)
        if last.entries_read >= said + SAID_EVERY_ENTRIES:
            said = last.entries_read
            session.note(f"{last.tables_checked} tables, {last.entries_read} entries …")
    if not session.as_json:
        session.done(f"{last.tables_checked} tables, {last.entries_read} entries, {found} problems")
    return Exit.CORRUPT if found else Exit.DONE


COMMAND = Command(
    "check",
    "Check the store: replay its log against its index; ends with 7 where they differ.",
    run,
    arguments,
    details=(
        "laketx check\n"
        "laketx check --data data\n"
        "With --data it ends with 1 where it finds something, with 74 where the folder can't be used. What is found:\n"
        "a word and facts, see docs/operations.md. With `-o json` a document a line, as the check goes on."
    ),
)
