"""Hidden tables that a client left: it was killed before it began to fill them."""

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.model import Operation
from metaservice.core.table.staged_names import is_unborn, next_look_ms
from metaservice.service.commit.requests import Begin, Intent
from tests.retention.rig import LEASE_MS, WHO, Rig

NAME = "shop._new_" + "0" * 32
STEP_MS = 500  # below what counts as a pause


def wait(rig: Rig, ms: int) -> None:
    for _ in range(ms // STEP_MS):
        rig.clock.advance(STEP_MS)
        rig.ask(lambda: None)


def is_there(rig: Rig, table_id: str) -> bool:
    return table_id in rig.decider.state.tables


@pytest.fixture
def rig() -> Rig:
    return Rig()


def hidden(rig: Rig, number: int) -> str:
    return rig.create(f"_new_{number:032x}", None)


def test_a_hidden_table_that_nobody_fills_is_dropped(rig: Rig) -> None:
    left, named = hidden(rig, 1), rig.create("_new_1", None)
    wait(rig, LEASE_MS - 5_000)
    assert is_there(rig, left)
    wait(rig, 6_000)
    assert (is_there(rig, left), is_there(rig, named)) == (False, True)
    rig.crash()
    assert not is_there(rig, left)
    assert not rig.decider.state.unborn
    with pytest.raises(MetaError, match="TABLE"):
        begin(rig, left)


def begin(rig: Rig, table_id: str) -> str:
    txn_id = rig.uuid()
    intent = Intent(table_id, Operation.OVERWRITE)
    rig.ask(lambda: rig.transactions.begin(Begin(txn_id, (intent,), WHO, "", b"begin")))
    return txn_id


def test_one_that_is_filled_stays(rig: Rig) -> None:
    table_id = hidden(rig, 1)
    txn_id = begin(rig, table_id)
    for _ in range(4):
        wait(rig, LEASE_MS // 2)
        rig.ask(lambda: rig.transactions.renew(txn_id))
    assert is_there(rig, table_id)


def test_a_restart_and_a_pause_give_the_client_time_anew(rig: Rig) -> None:
    table_id = hidden(rig, 1)
    wait(rig, LEASE_MS - 5_000)
    rig.crash()
    wait(rig, LEASE_MS - 5_000)
    rig.decider.state.start_leases()
    wait(rig, LEASE_MS - 5_000)
    assert is_there(rig, table_id)
    wait(rig, 6_000)
    assert not is_there(rig, table_id)


def test_when_to_look_again() -> None:
    assert next_look_ms(None, 10, 5, is_filled=False) == 15
    assert next_look_ms(12, 10, 5, is_filled=False) == 12
    assert next_look_ms(10, 10, 5, is_filled=True) == 15
    assert next_look_ms(10, 10, 5, is_filled=False) is None
    assert is_unborn(NAME)
    assert is_unborn(NAME.partition(".")[2])
    assert not is_unborn(NAME + "0")
    assert not is_unborn("shop.t" + NAME)
