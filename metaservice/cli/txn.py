"""`laketx txn`: list, show, outcome, abort."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from metaservice.cli.output import Session, pass_session, when, word
from metaservice.cli.tables import find_table
from metaservice.client import MetaClient, NotFoundError
from protos.laketx.v1 import common_pb2, transaction_pb2

STATES = ["open", "committed", "conflict", "aborted", "expired"]


@click.group()
def txn() -> None:
    """Looks at transactions and ends them."""


@txn.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only in this state.")
@click.option("--table", "table_name", default="", help="Only of this table: its name or id.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@pass_session
def list_(session: Session, state: str | None, table_name: str, limit: int) -> None:
    """Lists transactions, newest first."""
    table_id = find_table(session.client, table_name).table_id if table_name else ""
    wanted = transaction_pb2.TransactionState.Value(f"TRANSACTION_STATE_{(state or 'unspecified').upper()}")
    pages = session.client.list_transactions(state=wanted, table_id=table_id, page_size=min(limit, 500))
    found = [transaction for transaction, _ in zip(pages, range(limit), strict=False)]
    if session.as_json:
        session.show_json(found)
        return
    session.show_rows(
        ["transaction", "state", "operation", "who", "began (UTC)", "ended (UTC)", "outcome"],
        [
            (
                transaction.txn_id,
                word(transaction_pb2.TransactionState.Name, transaction.state),
                ", ".join(word(common_pb2.Operation.Name, intent.operation) for intent in transaction.tables),
                transaction.principal.name,
                when(transaction.begin_time_us),
                when(transaction.end_time_us),
                outcome_of(transaction),
            )
            for transaction in found
        ],
    )


@txn.command()
@click.argument("txn_id")
@pass_session
def show(session: Session, txn_id: str) -> None:
    """Shows all that is known of a transaction."""
    transaction = session.client.get_transaction(txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    grid = Table(show_header=False, box=None)
    for name, value in (
        ("transaction", transaction.txn_id),
        ("state", word(transaction_pb2.TransactionState.Name, transaction.state)),
        ("who", f"{transaction.principal.name} {transaction.principal.client}".strip()),
        ("what for", transaction.commit_message),
        ("began", when(transaction.begin_time_us)),
        ("ended", when(transaction.end_time_us)),
        ("files registered", str(transaction.registered_files)),
        ("took files from", transaction.adopt_from),
        ("files taken by", transaction.adopted_by),
        ("outcome", outcome_of(transaction)),
    ):
        if value:
            grid.add_row(Text(name, style="bold"), Text(value))
    session.show(grid)
    committed = {table.table_id: table for table in transaction.committed.tables}
    session.show_rows(
        ["table", "operation", "read version", "version", "rebased over"],
        [
            (
                table_name(session.client, intent.table_id),
                word(common_pb2.Operation.Name, intent.operation),
                str(intent.read_version) if intent.HasField("read_version") else "",
                str(committed[intent.table_id].version) if intent.table_id in committed else "",
                str(committed[intent.table_id].rebased_over) if intent.table_id in committed else "",
            )
            for intent in transaction.tables
        ],
    )


@txn.command()
@click.argument("txn_id")
@pass_session
def outcome(session: Session, txn_id: str) -> None:
    """Says how a transaction ended, in one line."""
    transaction = session.client.get_transaction(txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    state = word(transaction_pb2.TransactionState.Name, transaction.state)
    click.echo(f"{state}: {outcome_of(transaction)}" if outcome_of(transaction) else state)


@txn.command()
@click.argument("txn_id")
@click.option("--reason", default="aborted by an operator", show_default=True, help="Shown to who asks.")
@pass_session
def abort(session: Session, txn_id: str, reason: str) -> None:
    """Ends an open transaction without effect."""
    session.client.abort(txn_id, reason)
    if session.as_json:
        session.show_json(session.client.get_transaction(txn_id))
    else:
        click.echo(f"{txn_id} is aborted")


def outcome_of(transaction: transaction_pb2.Transaction) -> str:
    match transaction.state:
        case transaction_pb2.TRANSACTION_STATE_COMMITTED:
            return ", ".join(f"version {table.version}" for table in transaction.committed.tables)
        case transaction_pb2.TRANSACTION_STATE_CONFLICT:
            return transaction.conflict.message or word(common_pb2.ConflictRule.Name, transaction.conflict.rule)
        case transaction_pb2.TRANSACTION_STATE_ABORTED:
            return transaction.abort_reason
        case _:
            return ""


def table_name(client: MetaClient, table_id: str) -> str:
    """The id stays where the table is gone."""
    try:
        return client.get_table(table_id=table_id).name
    except NotFoundError:
        return table_id
