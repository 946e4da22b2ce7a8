"""The queue of tasks: the way in for planned tasks and operators' requests. Runs on the decider's thread."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from metaservice.core import limits
from metaservice.core.compaction.plans import Bucket, GroupPlan, TaskPlan
from metaservice.core.compaction.policy import Options, Policy, policy_of
from metaservice.core.compaction.refreshing import TableNow, sound_group
from metaservice.core.compaction.tasks import Task
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Group, Operation, Principal
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.service.decider.taskbook import TaskBook
from metaservice.store import keys
from metaservice.store.live_layout import bucket_of_live


@dataclass(frozen=True, slots=True)
class Wish:
    """An operator's request: for some partitions or all, or for the operator's own groups."""

    request_id: str
    digest: bytes
    table_id: str
    operation: Operation
    principal: Principal
    priority: int | None
    options: Options | None
    groups: tuple[Group, ...] = ()
    partitions: Collection[str] = ()


class TaskQueue:
    """Creates tasks, as far as there is room and no task works there."""

    def __init__(
        self,
        decider: Decider,
        clocks: Clocks,
        make_id: Callable[[], str],
        check_room: Callable[[], None],
        get: Callable[[str], Task],
    ) -> None:
        self._decider = decider
        self._clocks = clocks
        self._make_id = make_id
        self._check_room = check_room
        self._get = get
        self._policies: dict[str, tuple[TableMeta, Policy]] = {}

    @property
    def _state(self) -> State:
        return self._decider.state

    @property
    def _book(self) -> TaskBook:
        return self._decider.state.tasks

    def policy(self, meta: TableMeta) -> Policy:
        cached = self._policies.get(meta.table_id)
        if cached is None or cached[0] is not meta:
            cached = self._policies[meta.table_id] = meta, policy_of(meta)
        return cached[1]

    def forget(self, table_id: str) -> None:
        """Removes a dropped table."""
        self._policies.pop(table_id, None)

    def enqueue(self, table_id: str, plans: Sequence[TaskPlan]) -> int:
        """Queues planned tasks, as far as there is room and no task works there; returns how many."""
        table = self._state.tables.get(table_id)
        if table is None:
            return 0
        policy = self.policy(table.meta)
        made = self._queue(table, [(plan, policy.options) for plan in plans], policy, policy.priority)
        return len(made)

    def note_schedule(self, table_id: str, now_us: int) -> None:
        """Records that the table's schedule was evaluated up to now."""
        table = self._state.tables.get(table_id)
        if table is not None:
            self._state.batch.put(keys.schedule_key(table.raw_id), keys.encode_version(max(now_us, 0)))

    def request(self, wish: Wish, plans: Sequence[TaskPlan]) -> tuple[list[Task], int]:
        """Queues an operator's request; returns the tasks, and how many did not fit."""
        repeated = self.of_request(wish.request_id, wish.digest)
        if repeated:
            return repeated, 0
        table = self._state.get_table(wish.table_id)
        self._check_room()
        policy = self.policy(table.meta)
        options = wish.options or policy.options
        if wish.groups:
            plans = [self._own_plan(table, policy, wish)]
        elif len(self._book.tasks) >= limits.TASKS_MAX:
            raise MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_TASKS", tasks=len(self._book.tasks), most=limits.TASKS_MAX)
        chosen = [(plan, options) for plan in plans[: limits.TASKS_PER_REQUEST_MAX]]
        priority = limits.TASK_PRIORITY_REQUESTED if wish.priority is None else wish.priority
        made = self._queue(table, chosen, policy, priority, wish)
        return made, len(plans) - len(made)

    def of_request(self, request_id: str, digest: bytes) -> list[Task]:
        """Returns the tasks that an earlier call of the request created."""
        tasks = [self._get(task_id) for task_id in self._book.of_request(request_id)]
        if any(task.request_digest != digest for task in tasks):
            raise invalid("REQUEST_ID_REUSED", request_id=request_id)
        return tasks

    def _queue(
        self,
        table: TableState,
        plans: Sequence[tuple[TaskPlan, Options]],
        policy: Policy,
        priority: int,
        wish: Wish | None = None,
    ) -> list[Task]:
        book, table_id = self._book, table.meta.table_id
        busy = set(book.busy(table_id, by_partition=policy.by_partition))
        made: list[Task] = []
        for plan, options in plans:
            places = {(group.partition, -1 if policy.by_partition else group.bucket) for group in plan.groups}
            room = len(book.of_table(table_id)) < limits.TASKS_PER_TABLE_MAX and len(book.tasks) < limits.TASKS_MAX
            if busy & places or not room:
                continue
            busy |= places
            task = Task(
                task_id=self._make_id(),
                table_id=table_id,
                operation=plan.operation,
                groups=plan.groups,
                reason=plan.reason,
                gain=plan.gain,
                options=options,
                priority=priority,
                create_us=self._clocks.now_us(),
                read_version=table.head,
            )
            if wish is not None:
                task = replace(
                    task,
                    requested_by=wish.principal,
                    request_id=wish.request_id,
                    request_digest=wish.digest,
                    own_plan=bool(wish.groups),
                )
            book.put(task, self._state.batch)
            made.append(task)
        return made

    def _own_plan(self, table: TableState, policy: Policy, wish: Wish) -> TaskPlan:
        """An operator's plan, refused if a commit would refuse it or a task works there."""
        busy = self._book.busy(wish.table_id, by_partition=policy.by_partition)
        at_head = table_at_head(self._state, table)
        plans: list[GroupPlan] = []
        places: set[tuple[str, int]] = set()
        for group in wish.groups:
            place = group.place
            if place in places:
                raise invalid("GROUP_TWICE", partition=group.partition, bucket=group.bucket)
            places.add(place)
            if (group.partition, -1 if policy.by_partition else group.bucket) in busy:
                raise MetaError(ErrorKind.BLOCKED, "PARTITION_BUSY", partition=group.partition, bucket=group.bucket)
            if len(group.inputs) > limits.TASK_FILES_MAX:
                raise invalid("TASK_TOO_LARGE", files=len(group.inputs), most=limits.TASK_FILES_MAX)
            plans.append(
                sound_group(
                    at_head,
                    wish.operation,
                    group,
                    bucket_at_head(at_head, place, policy),
                )
            )
        if len({group.partition for group in wish.groups}) > 1 and policy.by_partition:
            raise invalid("TASK_SPANS_PARTITIONS", "this profile allows one task per partition: send one plan for each")
        return TaskPlan(wish.operation, tuple(plans))


def table_at_head(state: State, table: TableState) -> TableNow:
    return TableNow(table.meta, table.head, state.snapshots(table))


def bucket_at_head(table: TableNow, place: tuple[str, int], policy: Policy) -> Bucket:
    """A bucket at the head. Called for many places of one table: its removed entries are read once."""
    partition, bucket = place
    live = table.snapshots.live(table.head, partition, bucket)
    return bucket_of_live(partition, bucket, live, policy.options.row_order)
