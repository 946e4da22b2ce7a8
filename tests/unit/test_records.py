"""Records keep what is put into them."""

import random
from dataclasses import replace

from metaservice.core.commit.transaction import TableOutcome, Txn, TxnState, TxnTable, Written
from metaservice.core.table.model import (
    Change,
    Entry,
    FileKind,
    Footprint,
    Live,
    Operation,
    Principal,
    Removed,
    TableCommit,
)
from metaservice.store.records.commits import encode_commit, with_time
from metaservice.store.records.tables import decode_commit, decode_live, encode_added, encode_live
from metaservice.store.records.transactions import decode_txn, encode_txn

ROUNDS = 400


def flip(rng: random.Random) -> bool:
    return rng.random() < 0.5


def some_text(rng: random.Random) -> str:
    return rng.choice(["", "a", "bo"])


def an_entry(rng: random.Random, number: int) -> Entry:
    special = rng.random() < 0.2
    is_delete_set = special and flip(rng)
    low = rng.choice([-1, 5])
    return Entry(
        f"t/{number}",
        rng.choice(["", "p=1", "p=2"]),
        rng.randrange(3),
        rng.choice(list(FileKind)),
        rng.randrange(3),
        rng.randrange(300),
        rng.randbytes(rng.randrange(4)),
        flip(rng),
        is_delete_set=is_delete_set,
        carries_row_ids=special and flip(rng),
        external=special and flip(rng),
        first_row_id=rng.randrange(3),
        row_id_min=low,
        row_id_max=low,
        touches=("x",) if is_delete_set and flip(rng) else (),
    )


def a_commit(rng: random.Random) -> TableCommit:
    version = rng.randrange(1, 300)
    added = [Live(an_entry(rng, number), rng.choice([version, 1]), version) for number in range(rng.randrange(3))]
    removed = (Removed("r", "p=1", 0, 1, 1, 1, 1, False, True),) if rng.random() < 0.2 else ()
    footprint = Footprint(
        version,
        rng.randrange(9),
        "txn",
        rng.choice(list(Operation)),
        Principal(some_text(rng), some_text(rng)),
        frozenset(live.entry.partition for live in added),
        tuple((live.entry.path, live.entry.partition, live.entry.bucket) for live in added),
        removed,
        blind=flip(rng),
        app_ids=("app",) if rng.random() < 0.2 else (),
        hid_anywhere=frozenset(
            live.entry.partition for live in added if live.is_delete_set and live.data_version == version
        ),
    )
    change = Change("table", footprint.operation, rng.randrange(3), changes_data=flip(rng))
    return TableCommit(version, footprint.time_us, change, rng.randrange(2), footprint, added, [])


def a_txn(rng: random.Random) -> Txn:
    state = rng.choice([TxnState.OPEN, TxnState.COMMITTED, TxnState.COMMITTED, TxnState.ABORTED])
    tables = [TxnTable(f"table{n}", Operation.INSERT, rng.randrange(3), 1, adopted=rng.randrange(2)) for n in range(2)]
    tables = tables[: rng.choice([1, 1, 2])]
    won = state is TxnState.COMMITTED
    return Txn(
        some_text(rng),
        {one.table_id: one for one in tables},
        Principal(some_text(rng), some_text(rng)),
        some_text(rng),
        {"k": "v"} if rng.random() < 0.2 else {},
        rng.randrange(3),
        rng.randbytes(rng.randrange(3)),
        some_text(rng) if rng.random() < 0.2 else "",
        state,
        rng.randrange(1, 3) if state is not TxnState.OPEN else 0,
        rng.randbytes(rng.randrange(3)) if state is not TxnState.OPEN else b"",
        rng.randrange(3) if won else 0,
        tuple(TableOutcome(t.table_id, rng.randrange(3), flip(rng), rng.randrange(2), flip(rng)) for t in tables)
        if won
        else (),
        files=rng.randrange(3),
        one_call=won and len(tables) == 1 and flip(rng),
        lost=Written(rng.randrange(3), rng.randrange(3), rng.randrange(3)) if state is TxnState.ABORTED else None,
    )


def test_entries_and_commits_come_back() -> None:
    rng = random.Random(3)
    for _ in range(ROUNDS):
        commit, txn = a_commit(rng), a_txn(rng)
        added = encode_added(commit)
        assert [decode_live(raw) for raw in added] == [(live, 0) for live in commit.added]
        assert added == [encode_live(live) for live in commit.added]
        summary = decode_commit(encode_commit(commit, txn)[0])
        assert summary == decode_commit(with_time(encode_commit(commit, txn, timed=False)[0], commit.time_us))
        files = [live.entry for live in commit.added if not live.entry.is_delete_set]
        assert summary.footprint == replace(
            commit.footprint, added=tuple((e.path, e.partition, e.bucket) for e in files)
        )
        assert (summary.logical, summary.message) == (commit.change.logical, txn.message)
        assert (summary.read_version, summary.rebased_over) == (commit.change.read_version, commit.rebased_over)
        assert (summary.files_added, summary.rows_added) == (len(files), sum(e.rows for e in files))


def test_transactions_come_back() -> None:
    rng = random.Random(5)
    for _ in range(ROUNDS):
        txn = a_txn(rng)
        found = decode_txn(encode_txn(txn))
        if txn.one_call:  # of that, what can be told from the outcome is left out
            (outcome,) = txn.outcomes
            assert (found.outcomes, found.files, found.commit_time_us) == (txn.outcomes, txn.files, txn.commit_time_us)
            assert [table.read_version for table in found.tables.values()] == [
                outcome.version if outcome.already_applied else outcome.version - 1
            ]
        else:
            assert found == txn
