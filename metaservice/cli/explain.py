"""`laketx explain`: what a commit would answer if it were decided at once."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from google.protobuf import json_format

from metaservice.cli.command import command
from metaservice.cli.failures import Exit, usage_failure
from metaservice.cli.find import find_transaction, table_name
from metaservice.cli.kinds import FILE, OPEN_TRANSACTION
from metaservice.cli.output import Session
from metaservice.cli.why import show_conflict, show_passed
from protos.laketx.v1 import common_pb2, transaction_pb2


@command("explain")
@click.argument("txn_id", metavar="TXN", type=OPEN_TRANSACTION, help="Id of an open transaction.")
@click.option(
    "--changes",
    "changes_file",
    type=FILE,
    metavar="FILE",
    help='What would be committed: {"changes": [...]} as JSON (docs/api.md, Change); `-` is stdin. '
    "Default: the registered files and nothing else, as an INSERT commits.",
)
def run(session: Session, txn_id: str, changes_file: str | None) -> Exit:
    """Show how a commit would end now, without changing anything; ends with 4 if it would lose.

    laketx explain 01a20627-6675
    """
    client = session.client
    transaction = find_transaction(client, txn_id)
    if changes_file is not None:
        changes = read_changes(changes_file)
    else:
        changes = [common_pb2.Change(table_id=intent.table_id) for intent in transaction.tables]
    answer = client.explain(transaction.txn_id, changes)
    loses = answer.HasField("conflict")
    if session.as_json:
        session.show_json(answer)
    elif loses:
        show_conflict(session, answer.conflict)
    else:
        for table in answer.committed.tables:
            rebased = f", rebased over {table.rebased_over}" if table.rebased_over else ""
            name = table_name(client, table.table_id)
            session.say(f"would commit to {name} as version {table.version}{rebased}")
        show_passed(session, answer.committed)
    return Exit.CONFLICT if loses else Exit.DONE


def read_changes(path: str) -> list[common_pb2.Change]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        request = json_format.Parse(text, transaction_pb2.ExplainTransactionRequest())
    except (OSError, UnicodeError, json_format.ParseError) as error:
        raise usage_failure(
            f"--changes: {error}", next_step='{"changes": [{"table_id": "…"}]} is the least that a change says'
        ) from error
    return list(request.changes)
