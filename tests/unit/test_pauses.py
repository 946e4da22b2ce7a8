"""A service that stood still gives every lease anew: nobody could renew one meanwhile."""

from __future__ import annotations

import pytest

from metaservice.core import limits
from metaservice.core.commit.transaction import TxnState
from metaservice.core.compaction.plans import Gain
from metaservice.core.compaction.policy import Options
from metaservice.core.compaction.tasks import Task, TaskState
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Change, Operation
from metaservice.service.decider.clocks import StallDetector
from metaservice.service.decider.taskbook import TaskBook
from metaservice.service.retention.housekeeping import Keeping
from metaservice.shared.log import LEASES_RENEWED
from metaservice.store.engines.memory import MemoryStore
from metaservice.store.port import Batch
from tests.retention.rig import LEASE_MS, Rig


class PausingRig(Rig):
    """As the service is wired: what notices a pause ticks before what expires."""

    def start(self) -> None:
        super().start()
        self.pauses = StallDetector(self.decider, self.clock, self._report)

    def tick(self) -> None:
        self.pauses.tick()
        super().tick()

    def run(self, ms: int) -> None:
        """Nobody says anything, and the service ticks."""
        for _ in range(ms // 200):
            self.clock.advance(200)
            self.decider._group([])


@pytest.fixture
def rig() -> PausingRig:
    return PausingRig(keeping=Keeping(delay_ms=0))


@pytest.mark.parametrize("pause_ms", [limits.PAUSE_MS, LEASE_MS, 100 * LEASE_MS])
def test_after_a_pause_transactions_and_pins_have_full_leases(rig: PausingRig, pause_ms: int) -> None:
    txn_id = rig.begin(Operation.INSERT)
    pin_id = rig.pin(0, lease_ms=LEASE_MS)
    rig.run(LEASE_MS // 2)
    rig.clock.advance(pause_ms)
    rig.run(LEASE_MS - 1_000)
    assert pin_id in rig.decider.state.pins.pins
    assert rig.commit(txn_id, Change(rig.table_id, Operation.INSERT, 0)).state is TxnState.COMMITTED
    assert LEASES_RENEWED in rig.events
    rig.run(2_000)
    assert pin_id not in rig.decider.state.pins.pins, "its holder has been silent for a whole lease"


def test_leases_of_the_silent_run_out_while_the_service_runs(rig: PausingRig) -> None:
    txn_id = rig.begin(Operation.INSERT)
    pin_id = rig.pin(0, lease_ms=LEASE_MS)
    rig.run(LEASE_MS + 1_000)
    assert pin_id not in rig.decider.state.pins.pins
    with pytest.raises(MetaError, match="TRANSACTION_EXPIRED"):
        rig.commit(txn_id, Change(rig.table_id, Operation.INSERT, 0))
    assert LEASES_RENEWED not in rig.events


def test_claims_of_tasks_have_full_leases() -> None:
    book = TaskBook(MemoryStore().cursor())
    task_id = "00000000-0000-7000-8000-000000000001"
    task = Task(
        task_id, "", Operation.MINOR_COMPACT, (), "", Gain(0, 0, 0), Options(1), 0, 0, 0, state=TaskState.CLAIMED
    )
    book.put(task, Batch())
    book.lease(task_id, 1_000)
    book.forget_leases()
    book.start_leases(5_000)
    assert book.ran_out(4_999) == []
    assert [one.task_id for one in book.ran_out(5_000)] == [task_id]
