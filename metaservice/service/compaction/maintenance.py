"""Table services: waiting tasks, the workers that claim them, and the transactions that end them.

Every method runs on the decider's thread. A task is checked again when it is handed out: its inputs are the worthwhile
ones at the head, and it is cancelled if there are none. A lost claim ends the transaction begun under it in the same
step, so that a late worker is refused at its commit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from metaservice.core import limits
from metaservice.core.commit.judge import Judging
from metaservice.core.commit.judged_change import JudgedChange
from metaservice.core.commit.transaction import CLAIM_LOST, Txn, TxnState
from metaservice.core.compaction.plans import TaskPlan
from metaservice.core.compaction.refreshing import refreshed
from metaservice.core.compaction.tasks import (
    LEASE_RAN_OUT,
    Task,
    TaskState,
    cancelled,
    check_claim,
    claim_lost,
    claimed,
    done,
    failed,
    given_back,
    next_task,
)
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.model import Change, Conflict, Live, Operation, Principal
from metaservice.core.table.schedule import is_open
from metaservice.service.commit.judging import look_at_compaction
from metaservice.service.commit.requests import Begin, CommitRequest
from metaservice.service.commit.transactions import Transactions
from metaservice.service.compaction.taskqueue import TaskQueue, bucket_at_head, table_at_head
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.service.decider.taskbook import TaskBook, lost_to
from metaservice.shared.log import TASK_ALARM
from metaservice.store import keys
from metaservice.store.live_layout import row_order_of
from metaservice.store.records.tasks import decode_task

Inputs = dict[tuple[str, int], list[Live]]


@dataclass(frozen=True, slots=True)
class Claim:
    """A worker's request for a task."""

    claim_id: str
    worker: Principal
    operations: frozenset[Operation] = frozenset()
    table_ids: frozenset[str] = frozenset()
    knows_inlined: bool = True


@dataclass(frozen=True, slots=True)
class TaskRenewed:
    """The new lease, or why to stop."""

    lease_ms: int
    cancelled: bool = False
    doomed: Conflict | None = None
    reason: str = ""


class Maintenance:
    """The use cases of MaintenanceService, without planning and the purge."""

    def __init__(
        self,
        decider: Decider,
        transactions: Transactions,
        clocks: Clocks,
        tasks_max: int,
        keep_ms: int,
        make_id: Callable[[], str],
        report: Callable[..., None],
        halted: Callable[[], bool] = lambda: False,
    ) -> None:
        """`halted` says that the wall clock is not trusted: nothing is forgotten for its age."""
        self._decider = decider
        self._transactions = transactions
        self._clocks = clocks
        self._tasks_max = tasks_max
        self._keep_ms = keep_ms
        self._report = report
        self._halted = halted
        self.queue = TaskQueue(decider, clocks, make_id, transactions.check_room, self.get)
        self._upkeep_ms = 0
        self._looks: dict[tuple[str, int], Judging] = {}
        self._looks_of = decider.state

    @property
    def _state(self) -> State:
        return self._decider.state

    @property
    def _book(self) -> TaskBook:
        return self._decider.state.tasks

    @property
    def lease_ms(self) -> int:
        return self._transactions.lease_ms

    # -- claims --------------------------------------------------------------------------------------------------------

    def claim(self, claim: Claim) -> Task | None:
        """Hands the task with the highest rank to the worker."""
        self._book.note_worker(claim.worker.name, self._clocks.mono_ms())
        claimed = self._book.of_claim(claim.claim_id)
        if claimed is not None:
            return claimed
        self._transactions.check_room()
        if self._book.count(TaskState.CLAIMED) >= self._tasks_max:
            return None
        now_us = self._clocks.now_us()
        closed, full = self._held_back(now_us)
        for _ in range(limits.TASKS_PER_REQUEST_MAX):
            waiting = [task for task in self._book.tasks.values() if claim.knows_inlined or self._has_files(task)]
            task = next_task(waiting, now_us, claim.operations, claim.table_ids, closed, full)
            if task is None:
                return None
            taken = self._hand_out(task, claim, now_us)
            if taken is not None:
                return taken
        return None

    def _has_files(self, task: Task) -> bool:
        """Whether a worker that doesn't know inlined rows finds the files of all inputs."""
        table = self._state.tables.get(task.table_id)
        return table is None or not table.inlined.rows

    def _held_back(self, now_us: int) -> tuple[frozenset[str], frozenset[str]]:
        """Tables outside their windows, and tables that run their maximum."""
        closed, full = set(), set()
        for table_id in self._book.tables():
            table = self._state.tables.get(table_id)
            if table is None:
                continue
            policy = self.queue.policy(table.meta)
            if not (is_open(policy.windows, now_us) and policy.enabled):
                closed.add(table_id)
            if self._book.claimed(table_id) >= policy.tasks:
                full.add(table_id)
        return frozenset(closed), frozenset(full)

    def _hand_out(self, task: Task, claim: Claim, now_us: int) -> Task | None:
        table = self._state.tables.get(task.table_id)
        plan = self._refresh(table, task) if table is not None else None
        if table is None or plan is None:
            why = "TABLE_DROPPED" if table is None else "NOT_NEEDED: nothing is left to be done there"
            self._book.put(cancelled(task, why, now_us), self._state.batch)
            return None
        taken = claimed(task, plan, table.head, claim.worker, claim.claim_id, now_us)
        self._book.put(taken, self._state.batch)
        self._book.lease(taken.task_id, self._clocks.mono_ms() + self.lease_ms)
        return taken

    def _refresh(self, table: TableState, task: Task) -> TaskPlan | None:
        policy = self.queue.policy(table.meta)
        at_head = table_at_head(self._state, table)
        buckets = {group.place: bucket_at_head(at_head, group.place, policy) for group in task.groups}
        return refreshed(at_head, policy, task, buckets)

    def inputs(self, task: Task) -> Inputs:
        """The live entries of the task's buckets at its read version: its inputs, and the delete sets that hide their
        rows.
        """
        by_place: Inputs = {}
        table = self._state.tables.get(task.table_id)
        if table is None or task.state is not TaskState.CLAIMED:
            return by_place
        snapshots = self._state.snapshots(table)
        for group in task.groups:
            live = snapshots.live(task.read_version, group.partition, group.bucket)
            paths = set(group.inputs)
            by_place[group.place] = [
                candidate for candidate in live if candidate.entry.is_delete_set or candidate.entry.path in paths
            ]
        return by_place

    def renew(self, task_id: str, fence: int, progress: float) -> TaskRenewed:
        task = self.get(task_id)
        if task.fence != fence:
            raise claim_lost(task_id, fence, task.fence, task.state)
        if task.state is TaskState.DONE:
            return TaskRenewed(self.lease_ms)
        if task.state is not TaskState.CLAIMED:
            return TaskRenewed(0, cancelled=True, reason=task.error or CLAIM_LOST)
        self._book.lease(task_id, self._clocks.mono_ms() + self.lease_ms)
        self._book.note_progress(replace(task, progress=progress))
        lost = self._doomed(task)
        if lost is None:
            return TaskRenewed(self.lease_ms)
        self._fail(task, lost_to(lost))
        return TaskRenewed(0, cancelled=True, doomed=lost, reason=lost_to(lost))

    def _doomed(self, task: Task) -> Conflict | None:
        """A conflict that the task already has, as far as a short check can tell."""
        table = self._state.get_table(task.table_id)
        if table.head == task.read_version:
            return None
        if self._looks_of is not self._state:  # one that was opened again
            self._looks, self._looks_of = {}, self._state
        judging = self._looks.get((task.task_id, task.fence))
        if judging is None:
            change = Change(task.table_id, task.operation, task.read_version, groups=task.groups)
            judging = Judging(JudgedChange(change, table.meta, self._state.snapshots(table)))
            self._looks = {key: kept for key, kept in self._looks.items() if self._book.is_claimed(*key)}
            self._looks[task.task_id, task.fence] = judging
        return look_at_compaction(self._state, judging)

    def finish(self, task_id: str, fence: int, txn_id: str, error: str, *, give_back: bool) -> Task:
        """Ends an attempt; a repeat finds it recorded."""
        if sum((bool(txn_id), bool(error), give_back)) != 1:
            raise invalid("FINISH_EMPTY", task_id=task_id)
        task = self.get(task_id)
        if task.fence != fence:
            raise claim_lost(task_id, fence, task.fence, task.state)
        if task.state is not TaskState.CLAIMED:
            if txn_id and task.state is not TaskState.DONE:
                raise claim_lost(task_id, fence, task.fence, task.state)
            return task
        if txn_id:
            return self._finish_with(task, txn_id)
        if give_back:
            self._let_go(task, given_back(task))
        else:
            self._fail(task, error)
        return self.get(task_id)

    def _finish_with(self, task: Task, txn_id: str) -> Task:
        """Ends a task by a transaction that was begun without the claim."""
        txn = self._state.get_txn(txn_id)
        txn_table = txn.tables.get(task.table_id)
        if txn.state is not TxnState.COMMITTED or txn_table is None or txn_table.operation is not task.operation:
            raise MetaError(
                ErrorKind.BLOCKED,
                "TASK_NOT_COMMITTED",
                txn_id=txn_id,
                state=txn.state.name.lower(),
                task_id=task.task_id,
            )
        ended = done(task, txn_id, self._clocks.now_us())
        self._let_go(task, ended)
        return ended

    def cancel(self, task_id: str, reason: str) -> Task:
        task = self.get(task_id)
        if task.state is TaskState.DONE:
            raise MetaError(ErrorKind.BLOCKED, "TASK_ENDED", task_id=task_id, state="done")
        if task.state is TaskState.CANCELLED:
            return task
        ended = cancelled(task, reason or "CANCELLED", self._clocks.now_us())
        self._let_go(task, ended)
        return ended

    def _fail(self, task: Task, error: str) -> None:
        self._let_go(task, failed(task, error, self._clocks.now_us(), self._book.backoff_ms))

    def _let_go(self, task: Task, after: Task) -> None:
        """Ends the claim, and a transaction that was begun under it."""
        self._book.put(after, self._state.batch)
        if task.txn_id and task.txn_id in self._state.open:
            self._transactions.abort(task.txn_id, CLAIM_LOST)

    # -- transactions under a claim ------------------------------------------------------------------------------------

    def begin(self, request: Begin, task_id: str, fence: int) -> Txn:
        """Begins a transaction that works for a task; one at a time."""
        if self._state.find_txn(request.txn_id) is not None:
            return self._transactions.begin(request)
        task = self.get(task_id)
        check_claim(task, fence)
        intent = request.tables[0]
        if len(request.tables) != 1 or (intent.table_id, intent.operation) != (task.table_id, task.operation):
            raise invalid(
                "TASK_MISMATCH", "the transaction must have only the task's table and operation", task_id=task_id
            )
        if intent.read_version is None:
            intent.read_version = task.read_version
        if intent.read_version != task.read_version:
            raise invalid(
                "TASK_MISMATCH",
                "the transaction must begin at the task's read version",
                task_id=task_id,
                read=task.read_version,
            )
        txn = self._transactions.begin(request)
        before = task.txn_id
        self._book.put(replace(task, txn_id=txn.txn_id), self._state.batch)
        if before in self._state.open:
            self._transactions.abort(before, CLAIM_LOST)
        return txn

    def commit(self, request: CommitRequest) -> Txn:
        """Commits; a transaction that works for a task must do what the task says."""
        task_id = self._book.by_txn.get(request.txn_id)
        if task_id is not None:
            txn = self._state.get_txn(request.txn_id)
            self._check_work(self._book.tasks[task_id], request, txn)
        return self._transactions.commit(request)

    def _check_work(self, task: Task, request: CommitRequest, txn: Txn) -> None:
        places = {group.place for group in task.groups}
        for change in request.changes:
            for group in change.groups:
                if group.place not in places:
                    raise invalid(
                        "TASK_MISMATCH",
                        "the transaction changes a bucket that the task doesn't name",
                        partition=group.partition,
                    )
            row_order = task.options.row_order
            staged = txn.tables[change.table_id].staged if change.table_id in txn.tables else {}
            for entry in [*staged.values(), *change.adds] if row_order else []:
                if row_order_of(entry) != row_order:
                    raise invalid("ROW_ORDER_MISSING", path=entry.path, wanted=row_order)

    # -- looking, and housekeeping -------------------------------------------------------------------------------------

    def get(self, task_id: str) -> Task:
        task = self._book.tasks.get(task_id)
        if task is not None:
            return task
        place = self._book.ended.get(task_id)
        raw = None
        if place is not None:
            self._state.flush()
            raw = self._state.store.get(keys.ended_task_key(place.end_us, keys.uuid_bytes(task_id)))
        if raw is None:
            raise MetaError(ErrorKind.NOT_FOUND, "TASK_UNKNOWN", task_id=task_id)
        return decode_task(raw)

    def list(self, table_id: str, states: frozenset[TaskState], after: str, count: int) -> list[Task]:
        """Lists tasks by id, which is by age; without states those that have not ended."""
        book = self._book
        task_ids = [
            task.task_id
            for task in book.tasks.values()
            if (not states or task.state in states) and table_id in ("", task.table_id) and task.task_id > after
        ]
        task_ids += [
            task_id
            for task_id, place in book.ended.items()
            if place.state in states and table_id in ("", place.table_id) and task_id > after
        ]
        return [self.get(task_id) for task_id in sorted(task_ids)[:count]]

    def name_of(self, table_id: str) -> str:
        table = self._state.tables.get(table_id)
        return table.meta.name if table is not None else ""

    def tick(self) -> None:
        """Takes tasks from silent workers; from time to time whatever else is due."""
        book, now_ms = self._book, self._clocks.mono_ms()
        book.start_leases(now_ms + self.lease_ms)
        for task in book.ran_out(now_ms):
            self._fail(task, f"{LEASE_RAN_OUT}: {task.worker.name or 'a worker'} was silent")
        alarms, book.alarms = book.alarms, []
        for task in alarms:
            self._report(TASK_ALARM, task_id=task.task_id, table=self.name_of(task.table_id), error=task.error)
        if now_ms < self._upkeep_ms:
            return
        self._upkeep_ms = now_ms + limits.SCHEDULE_MS
        now_us = self._clocks.now_us()
        keep_from_us = 0 if self._halted() else now_us - self._keep_ms * 1000
        book.forget_ended(keep_from_us, self._state.batch)
        for table_id in [table for table in book.tables() if table not in self._state.tables]:
            self.queue.forget(table_id)
            for task in book.of_table(table_id):
                self._let_go(task, cancelled(task, "TABLE_DROPPED", now_us))
