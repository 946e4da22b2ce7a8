"""What must hold of tasks: the newest claim alone commits, once, and a task is done exactly then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metaservice.core.compaction.tasks import Task, TaskState
from tests.simulation.logs import check

if TYPE_CHECKING:
    from tests.simulation.world import World


class Tasks:
    """Fences by task as workers were told them, and whom each transaction works for."""

    def __init__(self) -> None:
        self.fences: dict[str, int] = {}
        self.txns: dict[str, tuple[str, int]] = {}

    def take(self, task: Task) -> None:
        before = self.fences.get(task.task_id, 0)
        check(task.fence >= before, "a claim's fence grows", task.task_id, task.fence, before)
        self.fences[task.task_id] = task.fence

    def check_commit(self, txn_id: str) -> None:
        if txn_id in self.txns:
            task_id, fence = self.txns[txn_id]
            check(fence == self.fences[task_id], "only the newest claim commits", task_id, fence)

    def check_end(self, world: World) -> None:
        book = world.decider.state.tasks
        for txn_id, answer in world.checker.final.items():
            if txn_id not in self.txns or answer[0] != "COMMITTED":
                continue
            task_id, _ = self.txns[txn_id]
            task = world.maintenance.get(task_id)
            check(task.state is TaskState.DONE and task.txn_id == txn_id, "who commits ends the task", task_id)
        done = [task_id for task_id, place in book.ended.items() if place.state is TaskState.DONE]
        for task_id in done:
            txn = world.decider.state.get_txn(world.maintenance.get(task_id).txn_id)
            check(txn.state.name == "COMMITTED", "a task that is done was committed", task_id)
        check(set(book.leases) <= set(book.tasks), "only what is held has a lease")
        for task in book.tasks.values():
            check(not task.ended, "what has ended is not in the queue", task.task_id)
            bound = task.txn_id and task.state is not TaskState.CLAIMED
            check(not bound, "only a claimed task has a transaction", task.task_id)
