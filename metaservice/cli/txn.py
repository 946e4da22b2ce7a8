"""`laketx txn`: list, show, outcome, abort."""

from __future__ import annotations

from itertools import islice

import click

from metaservice.cli.command import command, group
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_table, find_transaction, table_name
from metaservice.cli.kinds import OPEN_TRANSACTION, OneOf
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.parameters import asks, limit_option, table_option, transaction_argument
from metaservice.cli.values import duration_text, to_second, typed_partition_text, types_of, when, word
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

STATES = ["open", "committed", "conflict", "aborted", "expired"]
COLUMNS = (
    Column("state"),
    Column("operation"),
    Column("began (UTC)", rank=1),
    Column("ended (UTC)", rank=4),
    Column("who", rank=3),
    Column("outcome", rank=2, folds=True),
    Column("transaction", is_id=True),
)
TABLE_COLUMNS = (
    Column("table"),
    Column("operation"),
    Column("read version", right=True),
    Column("version", right=True),
    Column("rebased over", rank=1, right=True),
)


GROUP = group("txn", "List, show and abort transactions.")


@command("list", GROUP)
@click.option("--state", type=OneOf(STATES), help="Only in this state.")
@table_option
@limit_option()
def run_list(session: Session, state: str | None, table: str | None, limit: int) -> None:
    """List transactions, newest first.

    laketx txn list --table shop.orders --state open
    """
    table_id = find_table(session.client, table).table_id if table else ""
    state_value = transaction_pb2.TransactionState.Value(f"TRANSACTION_STATE_{(state or 'unspecified').upper()}")
    pages = session.client.list_transactions(state=state_value, table_id=table_id, page_size=min(limit, 500))
    tables = Tables(session.client)
    session.show_list(COLUMNS, islice(pages, limit), lambda transaction: row(transaction, tables))


def row(transaction: transaction_pb2.Transaction, tables: Tables) -> Row:
    return (
        word(transaction_pb2.TransactionState.Name, transaction.state),
        ", ".join(word(common_pb2.Operation.Name, intent.operation) for intent in transaction.tables),
        to_second(transaction.begin_time_us),
        to_second(transaction.end_time_us),
        transaction.principal.name,
        outcome_of(transaction, tables),
        transaction.txn_id,
    )


@command("show", GROUP)
@transaction_argument
def run_show(session: Session, txn_id: str) -> None:
    """Show all details of a transaction.

    laketx txn show 01a20627-6675
    """
    transaction = find_transaction(session.client, txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    session.show_pairs(
        [
            ("transaction", transaction.txn_id),
            ("state", word(transaction_pb2.TransactionState.Name, transaction.state)),
            ("who", transaction.principal.name),
            ("client", transaction.principal.client),
            ("what for", transaction.commit_message),
            ("began", when(transaction.begin_time_us)),
            ("ended", when(transaction.end_time_us)),
            ("files registered", transaction.registered_files),
            ("lease left", duration_text(transaction.lease_left_ms) if transaction.HasField("lease_left_ms") else ""),
            ("doomed", transaction.doomed.message),
            ("took files from", transaction.adopt_from),
            ("files taken by", transaction.adopted_by),
            ("outcome", outcome_of(transaction, Tables(session.client))),
        ]
    )
    committed = {table.table_id: table for table in transaction.committed.tables}
    session.show_rows(
        TABLE_COLUMNS,
        [
            (
                table_name(session.client, intent.table_id),
                word(common_pb2.Operation.Name, intent.operation),
                intent.read_version if intent.HasField("read_version") else "",
                committed[intent.table_id].version if intent.table_id in committed else "",
                committed[intent.table_id].rebased_over if intent.table_id in committed else "",
            )
            for intent in transaction.tables
        ],
    )


@command("outcome", GROUP)
@transaction_argument
def run_outcome(session: Session, txn_id: str) -> None:
    """Show in one line how a transaction ended.

    laketx txn outcome 01a20627-6675
    """
    transaction = find_transaction(session.client, txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    state = word(transaction_pb2.TransactionState.Name, transaction.state)
    outcome = outcome_of(transaction, Tables(session.client))
    session.say(f"{state}: {outcome}" if outcome else state)


@command("abort", GROUP)
@click.argument("txn_id", metavar="TXN", type=OPEN_TRANSACTION, help="Id of the transaction.")
@click.option("--reason", default="aborted by an operator", help="Shown with the outcome.")
@asks
def run_abort(session: Session, txn_id: str, reason: str, yes: bool, dry_run: bool) -> None:
    """Abort an open transaction: nothing of it is committed.

    laketx txn abort 01a20627-6675 --reason "wrong input"
    """
    client = session.client
    transaction = find_transaction(client, txn_id)
    txn_id = transaction.txn_id
    if transaction.state != transaction_pb2.TRANSACTION_STATE_OPEN:
        state = word(transaction_pb2.TransactionState.Name, transaction.state)
        facts, hint = {"txn_id": txn_id}, f"laketx txn show {txn_id}"
        raise CommandError(Exit.REFUSED, "TRANSACTION_ENDED", f"it is not open: it is {state}", facts, hint)
    who = transaction.principal.name or "somebody"
    what = f"transaction {txn_id} of {who}, with {transaction.registered_files} files"
    if session.agreed("abort", what, transaction, yes=yes, dry_run=dry_run):
        client.abort(txn_id, reason)
        session.done(f"aborted transaction {txn_id}", client.get_transaction(txn_id) if session.as_json else None)


def outcome_of(transaction: transaction_pb2.Transaction, tables: Tables) -> str:
    match transaction.state:
        case transaction_pb2.TRANSACTION_STATE_COMMITTED:
            return ", ".join(f"version {table.version}" for table in transaction.committed.tables)
        case transaction_pb2.TRANSACTION_STATE_CONFLICT:
            conflict = transaction.conflict
            table = tables[conflict.table_id] if conflict.partition else None
            readable = with_typed_partition(conflict, table)
            return readable.message or word(common_pb2.ConflictRule.Name, conflict.rule)
        case transaction_pb2.TRANSACTION_STATE_ABORTED:
            return transaction.abort_reason
        case _:
            return ""


def with_typed_partition(conflict: common_pb2.Conflict, table: catalog_pb2.Table | None) -> common_pb2.Conflict:
    """A copy whose partition has dates and times where the wire has days and microseconds."""
    readable = common_pb2.Conflict()
    readable.CopyFrom(conflict)
    if table is None or not conflict.partition:
        return readable
    readable.partition = typed_partition_text(conflict.partition, types_of(table))
    in_words = f"in partition {conflict.partition}"
    readable.message = conflict.message.replace(in_words, f"in partition {readable.partition}")
    return readable
