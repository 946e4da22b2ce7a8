"""`laketx txn`: list, show, outcome, abort."""

from __future__ import annotations

from itertools import islice

from metaservice.cli.command import OPEN_TRANSACTION, TABLE, TRANSACTION, Arguments, Command, Parser, add_limit, add_yes
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import Tables, find_table, table_name
from metaservice.cli.output import Column, Row, Session
from metaservice.cli.values import typed_partition_text, types_of, when, word
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2

STATES = ["open", "committed", "conflict", "aborted", "expired"]
COLUMNS = (
    Column("transaction"),
    Column("state"),
    Column("operation", rank=1),
    Column("who", rank=2),
    Column("began (UTC)", rank=3),
    Column("ended (UTC)", rank=5),
    Column("outcome", rank=4, folds=True),
)
TABLE_COLUMNS = (
    Column("table"),
    Column("operation"),
    Column("read version", right=True),
    Column("version", right=True),
    Column("rebased over", rank=1, right=True),
)


def list_arguments(parser: Parser) -> None:
    parser.add("--state", choices=STATES, help="Only in this state.")
    parser.add("--table", metavar="TABLE", default="", help="Only of this table: its name or id.", completes=TABLE)
    add_limit(parser)


def run_list(session: Session, args: Arguments) -> None:
    table_id = find_table(session.client, args.table).table_id if args.table else ""
    wanted = transaction_pb2.TransactionState.Value(f"TRANSACTION_STATE_{(args.state or 'unspecified').upper()}")
    pages = session.client.list_transactions(state=wanted, table_id=table_id, page_size=min(args.limit, 500))
    listed = islice(pages, args.limit)
    if session.as_json:
        session.show_json(list(listed))
    else:
        tables = Tables(session.client)
        session.show_rows(COLUMNS, (row(transaction, tables) for transaction in listed))


def row(transaction: transaction_pb2.Transaction, tables: Tables) -> Row:
    return (
        transaction.txn_id,
        word(transaction_pb2.TransactionState.Name, transaction.state),
        ", ".join(word(common_pb2.Operation.Name, intent.operation) for intent in transaction.tables),
        transaction.principal.name,
        when(transaction.begin_time_us),
        when(transaction.end_time_us),
        outcome_of(transaction, tables),
    )


def txn_arguments(parser: Parser) -> None:
    parser.add("txn_id", metavar="TXN", help="Id of the transaction.", completes=TRANSACTION)


def run_show(session: Session, args: Arguments) -> None:
    transaction = session.client.get_transaction(args.txn_id)
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


def run_outcome(session: Session, args: Arguments) -> None:
    transaction = session.client.get_transaction(args.txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    state = word(transaction_pb2.TransactionState.Name, transaction.state)
    outcome = outcome_of(transaction, Tables(session.client))
    session.say(f"{state}: {outcome}" if outcome else state)


def abort_arguments(parser: Parser) -> None:
    parser.add("txn_id", metavar="TXN", help="Id of the transaction.", completes=OPEN_TRANSACTION)
    parser.add("--reason", default="aborted by an operator", help="Shown to who asks what became of it.")
    add_yes(parser)


def run_abort(session: Session, args: Arguments) -> None:
    client = session.client
    transaction = client.get_transaction(args.txn_id)
    if transaction.state != transaction_pb2.TRANSACTION_STATE_OPEN:
        state = word(transaction_pb2.TransactionState.Name, transaction.state)
        raise CommandError(
            Exit.REFUSED,
            "TRANSACTION_ENDED",
            f"it is not open: it is {state}",
            {"txn_id": args.txn_id},
            f"laketx txn show {args.txn_id}",
        )
    who = transaction.principal.name or "somebody"
    what = f"transaction {args.txn_id} of {who}, with {transaction.registered_files} files"
    if args.dry_run:
        if session.as_json:
            session.show_json(transaction)
        else:
            session.say(f"would abort {what}")
        return
    session.confirm(f"Abort {what}?", yes=args.yes)
    client.abort(args.txn_id, args.reason)
    if session.as_json:
        session.show_json(client.get_transaction(args.txn_id))
    session.done(f"{args.txn_id} is aborted")


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


COMMAND = Command(
    "txn",
    "Look at transactions and end them.",
    commands=(
        Command("list", "List transactions, newest first.", run_list, list_arguments),
        Command("show", "Show all that is known of a transaction.", run_show, txn_arguments),
        Command("outcome", "Say in one line how a transaction ended.", run_outcome, txn_arguments),
        Command("abort", "End an open transaction without effect.", run_abort, abort_arguments),
    ),
)
