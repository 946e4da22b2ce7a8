"""Proposals of compactions, by the table's policy or for an operator. Runs on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.compaction.plans import TaskPlan
from metaservice.core.compaction.policy import Options, Policy, policy_of
from metaservice.core.compaction.tasks import Task
from metaservice.core.errors import invalid
from metaservice.core.table.model import Operation
from metaservice.core.table.schedule import is_open
from metaservice.service.compaction.layouts import Busy, Layouts, inherited_tasks
from metaservice.service.compaction.taskqueue import TaskQueue, Wish
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.views import TableView


@dataclass(frozen=True, slots=True)
class Proposal:
    """The tasks, best first, as of a version. `held_back`: why the policy's tasks would not run now."""

    version: int
    tasks: list[TaskPlan]
    options: Options
    priority: int
    held_back: str


class Compactions:
    """Proposes compactions, and queues them for operators."""

    def __init__(self, decider: Decider, layouts: Layouts, queue: TaskQueue, clocks: Clocks) -> None:
        self._decider = decider
        self._layouts = layouts
        self._queue = queue
        self._clocks = clocks

    def propose(
        self,
        table: TableView,
        operation: Operation | None,
        partitions: Collection[str],
        options: Options | None = None,
        *,
        at_once: bool = False,
    ) -> Proposal:
        """Returns the tasks of an operator's operation, or those of the policy; without partitions all of them.

        `at_once` is for a caller that commits them all in one transaction.
        """
        policy, version = policy_of(table.meta), table.head
        busy = self._busy(table, policy)
        if operation is None:
            planned = self._layouts.all_tasks(table, self._clocks.now_us(), busy)
            tasks = [task for task in planned if not partitions or task.groups[0].partition in partitions]
            return Proposal(version, tasks, policy.options, policy.priority, self._held_back(policy))
        wanting = policy.wanting(operation, options)
        if at_once:
            wanting, busy = wanting.unbounded(), frozenset()
        tasks = self._layouts.plan_all(table, wanting, partitions, busy)
        return Proposal(version, tasks, wanting.options, limits.TASK_PRIORITY_REQUESTED, "")

    def propose_detaching(self, table: TableView, partitions: Collection[str], options: Options | None) -> Proposal:
        """What rewrites the files that a clone has of its base, for a caller that commits it all at once."""
        if table.fork is None or table.fork.branch:
            raise invalid("NOT_A_CLONE", table=table.meta.name)
        wanting = policy_of(table.meta).wanting(Operation.MAJOR_COMPACT, options).unbounded()
        cursor = self._decider.state.records.cursor()
        tasks = [] if table.fork.is_detached else inherited_tasks(cursor, table, table.fork, wanting, partitions)
        return Proposal(table.head, tasks, wanting.options, limits.TASK_PRIORITY_REQUESTED, "")

    def request(
        self, request_id: str, digest: bytes, wish_of: Callable[[], tuple[TableView, Wish]]
    ) -> tuple[list[Task], int]:
        """Queues an operator's request; returns the tasks, and how many did not fit.

        A repeated request gets the tasks of the first, even if its table has changed since: then nobody asks for its
        wish, which is read by the table's present schema.
        """
        repeated = self._decider.call(lambda: self._queue.of_request(request_id, digest))
        if repeated:
            return repeated, 0
        table, wish = wish_of()
        if wish.groups and wish.partitions:
            raise invalid("PLAN_AMBIGUOUS", "give either partitions or an explicit plan")
        policy = policy_of(table.meta)
        wanting = policy.wanting(wish.operation, wish.options)
        busy = self._busy(table, policy)
        plans = [] if wish.groups else self._layouts.plan_all(table, wanting, wish.partitions, busy)
        return self._decider.call(lambda: self._queue.request(wish, plans))

    def _busy(self, table: TableView, policy: Policy) -> Busy:
        return self._decider.state.tasks.busy(table.meta.table_id, by_partition=policy.by_partition)

    def _held_back(self, policy: Policy) -> str:
        if not policy.enabled:
            return "compaction.enabled is false"
        if not is_open(policy.windows, self._clocks.now_us()):
            return "outside compaction.windows"
        if policy.order_unknown:
            return f"compaction.cluster.order names {policy.order_unknown}, which the table hasn't got"
        return ""
