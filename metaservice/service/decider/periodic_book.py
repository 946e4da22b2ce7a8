"""The periodic tasks of a state, and which worker runs one. The decider's thread changes it; any thread can read it.

Tasks are durable, the leases of their workers are not: a run that two workers have commits once all the same.
"""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.periodic_tasks import ScheduledStatement
from metaservice.service.decider.names import AnyCase
from metaservice.store import keys
from metaservice.store.port import Batch, StoreCursor, prefix_end
from metaservice.store.records.periodic_tasks import decode_periodic_task, encode_periodic_run, encode_periodic_task


class PeriodicBook:
    """Periodic tasks by name and by id."""

    def __init__(self, cursor: StoreCursor) -> None:
        self.tasks: AnyCase[ScheduledStatement] = AnyCase()
        self._names: dict[str, str] = {}
        self._leases: dict[str, tuple[str, int]] = {}
        self.runs: dict[str, int] = {}  # that ended since the start, by outcome
        for _, raw in cursor.scan(keys.PERIODIC_TASKS, prefix_end(keys.PERIODIC_TASKS)):
            self._show(decode_periodic_task(raw))

    def first_due_us(self) -> int:
        """When the first run or attempt is due that no worker has; 0: none ever is."""
        waiting = (task.next_us for task in list(self.tasks.values()) if not task.worker)
        return min((due_us for due_us in waiting if due_us), default=0)

    def find(self, name: str) -> ScheduledStatement | None:
        return self.tasks.find(name)

    def of_id(self, task_id: str) -> ScheduledStatement | None:
        name = self._names.get(task_id)
        return None if name is None else self.tasks.get(name)

    def put(self, task: ScheduledStatement, batch: Batch, cursor: StoreCursor) -> None:
        """Stores a task, and the run of it that has ended since. The oldest runs go. Earlier batches are written."""
        before = self.tasks.get(task.name)
        last = task.last
        if last is not None and (before is None or last != before.last):
            prefix = keys.periodic_runs_prefix(keys.uuid_bytes(task.task_id))
            ended = list(cursor.scan(prefix, prefix_end(prefix)))
            if last.skips > 1 and before is not None and before.last is not None:
                batch.delete(keys.periodic_run_key(keys.uuid_bytes(task.task_id), before.last.due_us))
            elif len(ended) >= limits.PERIODIC_RUNS_KEPT:
                batch.delete(ended[0][0])
            batch.put(keys.periodic_run_key(keys.uuid_bytes(task.task_id), last.due_us), encode_periodic_run(last))
            self.runs[last.outcome.name.lower()] = self.runs.get(last.outcome.name.lower(), 0) + 1
        if not task.run_us:
            self._leases.pop(task.task_id, None)
        batch.put(keys.periodic_task_key(task.name), encode_periodic_task(task))
        self._show(task)

    def drop(self, task: ScheduledStatement, batch: Batch, cursor: StoreCursor) -> None:
        """Drops a task with its runs."""
        batch.delete(keys.periodic_task_key(task.name))
        prefix = keys.periodic_runs_prefix(keys.uuid_bytes(task.task_id))
        for key, _ in cursor.scan(prefix, prefix_end(prefix)):
            batch.delete(key)
        del self.tasks[task.name]
        del self._names[task.task_id]
        self._leases.pop(task.task_id, None)

    def lease(self, task_id: str, worker: str, until_ms: int) -> None:
        """The worker has the task's run until then."""
        self._leases[task_id] = (worker, until_ms)

    def let_go(self, task_id: str) -> None:
        """No worker has the task's run."""
        self._leases.pop(task_id, None)

    def holder(self, task_id: str, now_ms: int) -> str:
        """The worker that has the task's run; empty: none."""
        worker, until_ms = self._leases.get(task_id, ("", 0))
        return worker if until_ms > now_ms else ""

    def _show(self, task: ScheduledStatement) -> None:
        self.tasks[task.name] = task
        self._names[task.task_id] = task.name
