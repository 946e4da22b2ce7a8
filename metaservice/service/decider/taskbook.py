"""The tasks of a state, with their holders and leases. The decider's thread changes it; any thread can read it.

Tasks are durable, their leases are not: these start anew with the service. What a transaction's end means for its task
is written in the same batch, so that a task is done exactly where its transaction committed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.compaction.tasks import Task, TaskState, done, failed
from metaservice.core.table.model import Conflict
from metaservice.store import keys
from metaservice.store.port import Batch, StoreCursor, prefix_end
from metaservice.store.records.tasks import decode_task, encode_task

NEVER_MS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Ended:
    """Where an ended task is stored, and the facts that lists filter by."""

    end_us: int
    table_id: str
    state: TaskState
    fence: int


class TaskBook:
    """Open tasks by id, and where ended ones are stored."""

    def __init__(self, cursor: StoreCursor, backoff_ms: int = limits.TASK_BACKOFF_MS) -> None:
        self.tasks: dict[str, Task] = {}
        self.ended: OrderedDict[str, Ended] = OrderedDict()
        self.by_txn: dict[str, str] = {}
        self.leases: dict[str, int] = {}
        self.done = self.failures = self.cancelled = 0  # since the start
        self.alarms: list[Task] = []
        self.backoff_ms = backoff_ms
        self._due_ms = NEVER_MS
        self._leases_started = False
        self._requests: dict[str, list[str]] = {}
        self._request_ids: dict[str, str] = {}
        self._by_table: dict[str, dict[str, None]] = {}
        self._last_request_ms: OrderedDict[str, int] = OrderedDict()  # when each worker asked for a task last
        for _, raw in cursor.scan(keys.ENDED_TASKS, prefix_end(keys.ENDED_TASKS)):
            self._keep(decode_task(raw))
        for _, raw in cursor.scan(keys.TASKS, prefix_end(keys.TASKS)):
            self._show(decode_task(raw))

    def put(self, task: Task, batch: Batch) -> None:
        """Stores a task; an ended task moves to the ended ones."""
        raw = keys.uuid_bytes(task.task_id)
        if task.ended:
            batch.delete(keys.task_key(raw))
            batch.put(keys.ended_task_key(task.end_us, raw), encode_task(task))
            self._hide(task.task_id)
            self._keep(task)
            self.done += task.state is TaskState.DONE
            self.cancelled += task.state is TaskState.CANCELLED
            return
        before = self.tasks.get(task.task_id)
        if before is not None and task.attempts > before.attempts:
            self.failures += 1
            if task.state is TaskState.FAILED:
                self.alarms.append(task)
        batch.put(keys.task_key(raw), encode_task(task))
        self._show(task)

    def note_progress(self, task: Task) -> None:
        """Records progress in memory, which isn't worth a write."""
        self.tasks[task.task_id] = task

    def _show(self, task: Task) -> None:
        self._forget_txn(task.task_id)
        self.tasks[task.task_id] = task
        self._by_table.setdefault(task.table_id, {})[task.task_id] = None
        if task.txn_id:
            self.by_txn[task.txn_id] = task.task_id
        if task.request_id:
            self._remember_request(task)
        if task.state is not TaskState.CLAIMED:
            self.leases.pop(task.task_id, None)

    def _hide(self, task_id: str) -> None:
        self._forget_txn(task_id)
        self.leases.pop(task_id, None)
        task = self.tasks.pop(task_id, None)
        if task is not None:
            held = self._by_table[task.table_id]
            del held[task_id]
            if not held:
                del self._by_table[task.table_id]

    def _keep(self, task: Task) -> None:
        self.ended[task.task_id] = Ended(task.end_us, task.table_id, task.state, task.fence)
        if task.request_id:
            self._remember_request(task)

    def _forget_txn(self, task_id: str) -> None:
        before = self.tasks.get(task_id)
        if before is not None and before.txn_id:
            self.by_txn.pop(before.txn_id, None)

    def _remember_request(self, task: Task) -> None:
        of_request = self._requests.setdefault(task.request_id, [])
        if task.task_id not in of_request:
            of_request.append(task.task_id)
            self._request_ids[task.task_id] = task.request_id

    def of_request(self, request_id: str) -> list[str]:
        return list(self._requests.get(request_id, ()))

    def of_claim(self, claim_id: str) -> Task | None:
        """The task that a claim holds."""
        return next((task for task in self.tasks.values() if task.claim_id == claim_id), None)

    def of_table(self, table_id: str) -> list[Task]:
        tasks = (self.tasks.get(task_id) for task_id in list(self._by_table.get(table_id, ())))
        return [task for task in tasks if task is not None]

    def tables(self) -> list[str]:
        return list(self._by_table)

    def busy(self, table_id: str, *, by_partition: bool) -> frozenset[tuple[str, int]]:
        """Places where a task waits or runs; with `by_partition` all buckets of a partition count as -1."""
        groups = (group for task in self.of_table(table_id) for group in task.groups)
        return frozenset((group.partition, -1 if by_partition else group.bucket) for group in groups)

    def note_worker(self, name: str, mono_ms: int) -> None:
        """A worker asked for a task. Those that asked long ago are forgotten."""
        self._last_request_ms[name] = mono_ms
        self._last_request_ms.move_to_end(name)
        if len(self._last_request_ms) > limits.WORKERS_SEEN_MAX:
            self._last_request_ms.popitem(last=False)

    def workers(self, mono_ms: int) -> int:
        """Returns the number of workers that asked for a task recently, or run one."""
        recent = {
            name for name, at_ms in list(self._last_request_ms.items()) if mono_ms - at_ms < limits.WORKER_SEEN_MS
        }
        holders = {task.worker.name for task in list(self.tasks.values()) if task.state is TaskState.CLAIMED}
        return len(recent | holders)

    def count(self, *states: TaskState) -> int:
        return sum(task.state in states for task in list(self.tasks.values()))

    def oldest_us(self) -> int:
        return min((task.create_us for task in list(self.tasks.values())), default=0)

    def claimed(self, table_id: str) -> int:
        return sum(task.state is TaskState.CLAIMED for task in self.of_table(table_id))

    def is_claimed(self, task_id: str, fence: int) -> bool:
        task = self.tasks.get(task_id)
        return task is not None and (task.state, task.fence) == (TaskState.CLAIMED, fence)

    def holds(self, table_id: str, version: int) -> bool:
        """Whether a running task reads a version."""
        return any(task.state is TaskState.CLAIMED and task.read_version == version for task in self.of_table(table_id))

    def held(self) -> Iterable[tuple[str, int]]:
        """Versions that tasks read, by table."""
        held = (task for task in self.tasks.values() if task.state is TaskState.CLAIMED)
        return [(task.table_id, task.read_version) for task in held]

    def transaction_ended(self, txn: Txn, batch: Batch) -> None:
        """Records the end of a task's transaction, in the batch that ends it."""
        task_id = self.by_txn.get(txn.txn_id)
        if task_id is None:
            return
        task = self.tasks[task_id]
        if txn.state is TxnState.COMMITTED:
            self.put(done(task, txn.txn_id, txn.end_us), batch)
        elif txn.conflict is not None:
            self.put(failed(task, lost_to(txn.conflict), txn.end_us, self.backoff_ms), batch)
        else:
            self.put(replace(task, txn_id=""), batch)  # its worker may begin another one

    def lease(self, task_id: str, until_ms: int) -> None:
        self.leases[task_id] = until_ms
        self._due_ms = min(self._due_ms, until_ms)

    def start_leases(self, until_ms: int) -> None:
        """Restarts every lease, after a start."""
        if self._leases_started:
            return
        self._leases_started = True
        for task in self.tasks.values():
            if task.state is TaskState.CLAIMED:
                self.lease(task.task_id, until_ms)

    def forget_leases(self) -> None:
        """Leases restart with the next `start_leases`."""
        self.leases.clear()
        self._leases_started = False

    def ran_out(self, now_ms: int) -> list[Task]:
        """Returns tasks of silent workers, a bounded number. Costs nothing before the first lease can have ended."""
        if now_ms < self._due_ms:
            return []
        over = [task_id for task_id, until_ms in self.leases.items() if until_ms <= now_ms]
        expired = [self.tasks[task_id] for task_id in over[: limits.TICK_ITEMS_MAX]]
        left = [until_ms for until_ms in self.leases.values() if until_ms > now_ms]
        self._due_ms = now_ms if len(over) > len(expired) else min(left, default=NEVER_MS)
        return expired

    def forget_ended(self, before_us: int, batch: Batch) -> None:
        """Removes ended tasks that are too old or too many, a bounded number."""
        for _ in range(limits.TICK_ITEMS_MAX):
            task_id = next(iter(self.ended), "")
            if not task_id:
                return
            place = self.ended[task_id]
            if place.end_us >= before_us and len(self.ended) <= limits.TASKS_ENDED_MAX:
                return
            del self.ended[task_id]
            batch.delete(keys.ended_task_key(place.end_us, keys.uuid_bytes(task_id)))
            self._forget_request(task_id)

    def _forget_request(self, task_id: str) -> None:
        request_id = self._request_ids.pop(task_id, "")
        task_ids = self._requests.get(request_id, [])
        if task_id in task_ids:
            task_ids.remove(task_id)
            if not task_ids:
                del self._requests[request_id]


def lost_to(conflict: Conflict) -> str:
    """The error text of an attempt that lost a race."""
    winner = conflict.winner
    return f"{conflict.rule.name}: lost to {winner.operation.name}, version {winner.version}"
