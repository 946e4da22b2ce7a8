"""`laketx why`: one screen on how a transaction ended, and why it lost where it did."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from metaservice.cli.command import command
from metaservice.cli.find import Tables, find_transaction, table_or_none
from metaservice.cli.output import Session
from metaservice.cli.parameters import transaction_argument
from metaservice.cli.txn import outcome_of, with_typed_partition
from metaservice.cli.values import when, word
from metaservice.client import ErrorKind, MetaClient, MetaServiceError
from metaservice.shared.terminal import printable
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2

FRAMED_FROM = 64
MEANING = {
    transaction_pb2.TRANSACTION_STATE_OPEN: "What a commit would answer now: `laketx explain {txn}`.",
    transaction_pb2.TRANSACTION_STATE_EXPIRED: "Nobody renewed its lease in time: a writer that ended, or slept.",
}
ADVICE = {
    common_pb2.ADVICE_RESUBMIT: "Begin a new transaction with adopt_from: the staged files are still good.",
    common_pb2.ADVICE_RERUN: "Begin again at the head and compute again.",
    common_pb2.ADVICE_RELOAD: "Load the table again first: its schema or settings changed.",
    common_pb2.ADVICE_PLAN_AGAIN: "Nothing: plan the compaction anew, if it is still worth it.",
}


@command("why")
@transaction_argument
def run(session: Session, txn_id: str) -> None:
    """Explain how a transaction ended: the winner, the rule, the partition, what to do.

    laketx why 01a20627-6675
    """
    transaction = find_transaction(session.client, txn_id)
    if session.as_json:
        session.show_json(transaction)
        return
    if transaction.state == transaction_pb2.TRANSACTION_STATE_CONFLICT:
        show_conflict(session, transaction.conflict)
        if transaction.adopted_by:
            session.say(f"Its files were committed again: `laketx why {transaction.adopted_by}` says how that ended.")
        return
    state = word(transaction_pb2.TransactionState.Name, transaction.state)
    outcome = outcome_of(transaction, Tables(session.client))
    session.say(f"{transaction.txn_id} lost no race: it is {state}{f' ({outcome})' if outcome else ''}.")
    show_passed(session, transaction.committed)
    if transaction.adopt_from:
        session.say(f"It took the files of {transaction.adopt_from}, which had lost one: `laketx why` says to whom.")
    if transaction.state in MEANING:
        session.say(MEANING[transaction.state].format(txn=transaction.txn_id))


def show_passed(session: Session, committed: common_pb2.Committed) -> None:
    """A line for each commit that changed the same rows, and that this one passed by its columns."""
    for outcome in committed.tables:
        table = table_or_none(session.client, outcome.table_id) if outcome.passed else None
        for passed in outcome.passed:
            theirs, own = (_names(table, columns) for columns in (passed.columns, passed.own_columns))
            session.say(
                f"It passed version {passed.version} ({passed.txn_id}) of {table.name if table else outcome.table_id}, "
                f"which changed the same rows: that set {theirs}, this sets {own}."
            )


def _names(table: catalog_pb2.Table | None, columns: Sequence[int]) -> str:
    """The names of columns, of dropped ones their ids."""
    names = {column.column_id: column.name for column in table.columns} if table is not None else {}
    return ", ".join(names.get(number, f"column {number}") for number in columns)


def show_conflict(session: Session, conflict: common_pb2.Conflict) -> None:
    """One screen: framed on a terminal, plain in a pipe."""
    table = table_or_none(session.client, conflict.table_id)
    readable = with_typed_partition(conflict, table)
    name = table.name if table is not None else conflict.table_id
    winner = winner_of(session.client, conflict) if table is not None else None
    columns = [column.name for column in table.columns if column.column_id in conflict.columns] if table else []
    if session.is_terminal and session.width >= FRAMED_FROM:
        session.show(explained(readable, name, winner, columns))
    else:
        session.say(readable.message or "A race was lost.")
        session.show_pairs(facts(readable, name, winner, columns))


def winner_of(client: MetaClient, conflict: common_pb2.Conflict) -> read_pb2.Version | None:
    """Return the winner's commit; None if it is no longer kept."""
    number = conflict.winner_version
    matching = read_pb2.VersionFilter(from_version=number, to_version=number)
    try:
        return next(client.list_versions(conflict.table_id, matching=matching, page_size=1), None)
    except MetaServiceError as error:
        if error.kind is not ErrorKind.GONE:
            raise
        return None


def explained(
    conflict: common_pb2.Conflict, table: str, winner: read_pb2.Version | None = None, columns: Sequence[str] = ()
) -> RenderableType:
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts(conflict, table, winner, columns):
        if value:
            grid.add_row(Text(name, style="bold"), Text(printable(value)))
    message = Text(printable(conflict.message or "A race was lost."))
    return Panel(Group(message, Text(), grid), title="conflict", title_align="left", border_style="red")


def facts(
    conflict: common_pb2.Conflict, table: str, winner: read_pb2.Version | None = None, columns: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return the lines for a conflict. `columns` are those that the winner set and the loser sets or has read."""
    who = f"{word(common_pb2.Operation.Name, conflict.winner_operation)}, version {conflict.winner_version}"
    return [
        ("table", table),
        ("partition", conflict.partition or "(the whole table)"),
        ("file", conflict.path),
        ("rows", ", ".join(map(str, conflict.rows))),
        ("columns", ", ".join(columns)),
        ("mine", f"{word(common_pb2.Operation.Name, conflict.operation)}, read version {conflict.read_version}"),
        ("winner", f"{who} at {when(conflict.winner_commit_time_us)} UTC"),
        ("winner's user", conflict.winner_principal.name),
        ("winner's client", conflict.winner_principal.client),
        ("winner's message", winner.commit_message if winner is not None else ""),
        ("winner's files", f"+{winner.files_added} -{winner.files_removed}" if winner is not None else ""),
        ("winner's transaction", conflict.winner_txn_id),
        ("rule", word(common_pb2.ConflictRule.Name, conflict.rule)),
        ("what to do", ADVICE.get(conflict.advice, "")),
    ]
