"""`laketx why`: one screen on how a transaction ended, and why it lost where it did."""

from __future__ import annotations

import click
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from metaservice.cli.output import Session, pass_session, when, word
from metaservice.cli.txn import outcome_of, table_name
from protos.laketx.v1 import common_pb2, transaction_pb2

ADVICE = {
    common_pb2.ADVICE_RESUBMIT: "Begin a new transaction with adopt_from: the staged files are still good.",
    common_pb2.ADVICE_RERUN: "Begin again at the head and compute again.",
    common_pb2.ADVICE_RELOAD: "Load the table again first: its schema or settings changed.",
    common_pb2.ADVICE_PLAN_AGAIN: "Nothing: plan the compaction anew, if it is still worth it.",
}


@click.command()
@click.argument("txn_id", metavar="TXN")
@pass_session
def why(session: Session, txn_id: str) -> None:
    """Explains how a transaction ended: the winner, the rule, the partition, what to do."""
    transaction = session.client.get_transaction(txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    if transaction.state == transaction_pb2.TRANSACTION_STATE_CONFLICT:
        session.show(explained(transaction.conflict, table_name(session.client, transaction.conflict.table_id)))
        return
    state = word(transaction_pb2.TransactionState.Name, transaction.state)
    outcome = outcome_of(transaction)
    click.echo(f"{txn_id} lost no race: it is {state}{f' ({outcome})' if outcome else ''}.")


def explained(conflict: common_pb2.Conflict, table: str) -> RenderableType:
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    winner = f"{word(common_pb2.Operation.Name, conflict.winner_operation)}, version {conflict.winner_version}"
    for name, value in (
        ("table", table),
        ("partition", conflict.partition or "(the whole table)"),
        ("file", conflict.path),
        ("mine", f"{word(common_pb2.Operation.Name, conflict.operation)}, read version {conflict.read_version}"),
        ("winner", f"{winner} at {when(conflict.winner_commit_time_us)} UTC"),
        ("winner's user", conflict.winner_principal.name),
        ("winner's transaction", conflict.winner_txn_id),
        ("rule", word(common_pb2.ConflictRule.Name, conflict.rule)),
        ("what to do", ADVICE.get(conflict.advice, "")),
    ):
        if value:
            grid.add_row(Text(name, style="bold"), Text(value))
    return Panel(grid, title=Text(conflict.message or "A race was lost."), title_align="left", border_style="red")
