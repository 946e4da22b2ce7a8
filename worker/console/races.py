"""Races: which operations lost to which, one race with its winner, its rule and the advice, and who may lose next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metaservice.cli.find import TABLE_ID
from metaservice.cli.txn import with_typed_partition
from metaservice.cli.values import to_second
from metaservice.cli.why import ADVICE, winner_of
from metaservice.client import DeniedError, MetaClient, NotFoundError
from protos.laketx.v1 import common_pb2, transaction_pb2
from worker.console.charts import WIDTH, Bar, heat, scaled, stacked_bars
from worker.console.race_rules import rules_of
from worker.console.visits import LIVE_SERVICE, PageError, Shown, TableNames, Visit, taken

LOOKED_AT_MAX: Final = 2_000
PAGE_SIZE: Final = 500
SHOWN: Final = 50
OPEN_MAX: Final = 100
OPEN_LOOKED_AT: Final = 20  # each costs a call
HOUR_US: Final = 3_600_000_000
HOURS: Final = 24
BAR_HEIGHT: Final = 18
BAR_ROWS: Final = (8, 40)
LABEL_WIDTH: Final = 96
LOST, OPEN = transaction_pb2.TRANSACTION_STATE_CONFLICT, transaction_pb2.TRANSACTION_STATE_OPEN


@dataclass(frozen=True, slots=True)
class Cell:
    """How many races an operation lost to another, and its step on the colour scale."""

    loser: int
    winner: int
    count: int
    step: int


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Operations that lost by row, those that won by column."""

    losers: Sequence[int]
    winners: Sequence[int]
    rows: Sequence[Sequence[Cell]]


@dataclass(slots=True)
class Waste:
    """Transactions that lost in an hour: how long they were open, and what they wrote for nothing."""

    name: str
    count: int = 0
    seconds: float = 0.0
    files: int = 0
    rows: int = 0
    size: int = 0


def wasted(lost: Sequence[transaction_pb2.Transaction], now_us: int) -> list[Waste]:
    """By the hour of their end, oldest first; the last hour is the one of now. Adopted files were not for nothing."""
    first = now_us // HOUR_US - HOURS + 1
    hours = [Waste(to_second((first + at) * HOUR_US)[11:16]) for at in range(HOURS)]
    for each in lost:
        at = each.end_time_us // HOUR_US - first
        if 0 <= at < HOURS:
            hour = hours[at]
            hour.count += 1
            hour.seconds += max(each.end_time_us - each.begin_time_us, 0) / 1_000_000
            if not each.adopted_by:
                hour.files += each.lost.files if each.HasField("lost") else each.registered_files
                hour.rows += each.lost.rows
                hour.size += each.lost.bytes
    return hours


def looked_at(client: MetaClient, txn: transaction_pb2.Transaction) -> transaction_pb2.Transaction:
    """An open transaction with its lease, and the conflict that it would lose to; without them if it is gone."""
    return transaction_or_none(client, txn.txn_id) or txn


def heat_map(conflicts: Sequence[common_pb2.Conflict]) -> HeatMap:
    counts = Counter((each.operation, each.winner_operation) for each in conflicts)
    losers, winners = (sorted({pair[at] for pair in counts}) for at in (0, 1))
    highest = max(counts.values(), default=0)
    rows = [
        [Cell(loser, winner, counts[loser, winner], heat(counts[loser, winner], highest)) for winner in winners]
        for loser in losers
    ]
    return HeatMap(losers, winners, rows)


def show_all(visit: Visit) -> Shown:
    client, table_id = visit.client, visit.text("table")
    if table_id and not TABLE_ID.fullmatch(table_id):
        raise PageError(400, "The table's id is not one", "Choose the table on the page Tables.")
    table = client.get_table(table_id=table_id) if table_id else None
    lost, has_more = taken(client.list_transactions(state=LOST, table_id=table_id, page_size=PAGE_SIZE), LOOKED_AT_MAX)
    is_open, more_open = taken(client.list_transactions(state=OPEN, table_id=table_id, page_size=OPEN_MAX), OPEN_MAX)
    is_open = [looked_at(client, each) for each in is_open[:OPEN_LOOKED_AT]] + is_open[OPEN_LOOKED_AT:]
    waste = wasted(lost, visit.now_us)
    bars, top = stacked_bars([(hour.name, [("lost", round(hour.seconds, 2))]) for hour in waste])
    loser, winner = visit.number("loser"), visit.number("winner")
    chosen = [
        each
        for each in lost
        if loser in (None, each.conflict.operation) and winner in (None, each.conflict.winner_operation)
    ]
    facts = {
        "table": table,
        "heat_map": heat_map([each.conflict for each in lost]),
        "looked_at": len(lost),
        "has_more": has_more,
        "races": chosen[:SHOWN],
        "chosen": len(chosen),
        "loser": loser,
        "winner": winner,
        "waste": waste,
        "bars": bars,
        "top": top,
        "lost_seconds": sum(hour.seconds for hour in waste),
        "lost_files": sum(hour.files for hour in waste),
        "lost_rows": sum(hour.rows for hour in waste),
        "lost_bytes": sum(hour.size for hour in waste),
        "open": is_open,
        "more_open": more_open,
        "names": TableNames(client),
        "now_us": visit.now_us,
        "tab": "races",
    }
    return Shown("races.html", facts, live=f"/live/tables/{table_id}" if table_id else LIVE_SERVICE)


def show(visit: Visit) -> Shown:
    """How a transaction ended, as `laketx why` explains it, and when both were open."""
    txn_id = visit.part("txn_id")
    if not TABLE_ID.fullmatch(txn_id):
        raise no_transaction()
    try:
        loser = visit.client.get_transaction(txn_id)
    except (NotFoundError, DeniedError) as error:
        raise no_transaction() from error
    names = TableNames(visit.client)
    facts: dict[str, object] = {"txn": loser, "names": names, "now_us": visit.now_us, "conflict": None, "bars": []}
    if loser.state != LOST:
        return Shown("race.html", facts, live=LIVE_SERVICE if loser.state == OPEN else "")
    table = names.table(loser.conflict.table_id)
    winner = transaction_or_none(visit.client, loser.conflict.winner_txn_id)
    facts |= {
        "conflict": with_typed_partition(loser.conflict, table),
        "table": table,
        "winner": winner,
        "commit": winner_of(visit.client, loser.conflict) if table is not None else None,
        "advice": ADVICE.get(loser.conflict.advice, ""),
        "bars": bars_of(loser, winner),
        "rules": rules_of(loser.conflict, table.profile if table is not None else ""),
    }
    return Shown("race.html", facts)


def no_transaction() -> PageError:
    return PageError(404, "There is no such transaction", "It was forgotten, or you have no right to read its tables.")


def transaction_or_none(client: MetaClient, txn_id: str) -> transaction_pb2.Transaction | None:
    """None: it is forgotten, or the caller may not see it."""
    try:
        return client.get_transaction(txn_id) if txn_id else None
    except (NotFoundError, DeniedError):
        return None


def bars_of(loser: transaction_pb2.Transaction, winner: transaction_pb2.Transaction | None) -> list[Bar]:
    """From begin to end on one axis, the loser above the winner, which is a point if only its commit is known."""
    conflict = loser.conflict
    winner_end = conflict.winner_commit_time_us
    winner_begin = min(winner.begin_time_us, winner_end) if winner is not None else winner_end
    spans = ((loser.begin_time_us, loser.end_time_us, "lost"), (winner_begin, winner_end, "committed"))
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    wide = WIDTH - LABEL_WIDTH
    bars = []
    for (begin, end, kind), y, who in zip(spans, BAR_ROWS, ("lost", "won"), strict=True):
        x, right = scaled(begin, first, last, wide), scaled(end, first, last, wide)
        bars.append(Bar(LABEL_WIDTH + x, y, max(right - x, 3.0), BAR_HEIGHT, kind, who))
    return bars
