"""The life of a transaction: every event in every state."""

import pytest

from metaservice.core.commit.transaction import NEXT, Txn, TxnEvent, TxnState, end, next_state
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Principal

LIFE = """
state      USE      COMMIT     WIN        LOSE      ABORT    EXPIRE
OPEN       OPEN     OPEN       COMMITTED  CONFLICT  ABORTED  EXPIRED
COMMITTED  -        COMMITTED  -          -         -        -
CONFLICT   -        CONFLICT   -          -         -        -
ABORTED    -        -          -          -         ABORTED  -
EXPIRED    -        -          -          -         EXPIRED  -
"""
REFUSALS = {
    TxnState.COMMITTED: "TRANSACTION_ENDED",
    TxnState.CONFLICT: "TRANSACTION_ENDED",
    TxnState.ABORTED: "TRANSACTION_ABORTED",
    TxnState.EXPIRED: "TRANSACTION_EXPIRED",
}
HEAD, *ROWS = [line.split() for line in LIFE.strip().splitlines()]
PAIRS = [
    (TxnState[row[0]], TxnEvent[name], after) for row in ROWS for name, after in zip(HEAD[1:], row[1:], strict=True)
]


def test_the_table_says_something_of_every_pair() -> None:
    assert {pair[:2] for pair in PAIRS} == {(state, event) for state in TxnState for event in TxnEvent}
    assert NEXT.keys() == set(TxnState)


@pytest.mark.parametrize(("state", "event", "after"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_an_event_leads_on_or_is_refused(state: TxnState, event: TxnEvent, after: str) -> None:
    txn = Txn("id", {}, Principal(), "", {}, 0, b"", state=state)
    if after == "-":
        with pytest.raises(MetaError) as refused:
            end(txn, event, 7)
        assert (refused.value.reason, txn.state, txn.end_us) == (REFUSALS[state], state, 0)
    else:
        assert next_state(txn, event) is TxnState[after]


def test_what_has_ended_never_changes_its_state() -> None:
    for state in set(TxnState) - {TxnState.OPEN}:
        assert set(NEXT[state].values()) == {state}
