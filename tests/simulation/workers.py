"""Workers of table services: they claim, pause beyond their lease, die, come back, and finish late."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from metaservice.core.compaction.policy import policy_of
from metaservice.core.compaction.tasks import Task
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Change, FileKind, Operation, Principal
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.compaction.maintenance import Claim, TaskRenewed
from metaservice.service.compaction.taskqueue import Wish
from tests.simulation.clients import WHO, Writer
from tests.simulation.logs import Spec, check
from tests.simulation.world import Play, Request, World, outcome

WORKER = Principal("worker", "simulation")
OPERATIONS = (Operation.MINOR_COMPACT, Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT)
PAUSE_MAX = 12


def play_task(world: World) -> Play:
    """Ask for a task now and then, take one, and do it or not."""
    if world.rng.random() < 0.6:
        yield ask(world, world.rng.choice(world.specs), world.rng.choice(OPERATIONS))
    claim = Claim(world.uuid(), WORKER)
    task = yield Request("claim", "", lambda: claimed(world, claim))
    if not isinstance(task, Task):
        return
    world.tasks.take(task)
    spec = next(one for one in world.specs if one.table_id == task.table_id)
    yield from play_pauses(world)
    if world.rng.random() < 0.12:
        return  # it dies
    dice = world.rng.random()
    if dice < 0.15:
        yield finish(world, task, "", "out of memory")
    elif dice < 0.25:
        cancelled_by = world.rng.choice((task.task_id, *world.tasks.fences))
        yield Request("cancel", "", lambda: refusable(lambda: world.maintenance.cancel(cancelled_by, "sim").state))
    else:
        yield from play_work(world, spec, task)


def play_pauses(world: World) -> Play:
    for _ in range(world.rng.choice((0, 0, 1, 3, PAUSE_MAX))):
        yield Request("pause", "", lambda: None)


def play_work(world: World, spec: Spec, task: Task) -> Play:
    writer = Writer(world)
    writer.meant.paths.setdefault(spec.table_id, set())
    begin = Begin(writer.txn_id, (Intent(spec.table_id, task.operation),), WHO, "", b"begin")

    def begin_it() -> object:
        txn = world.maintenance.begin(copy.deepcopy(begin), task.task_id, task.fence)
        return {table_id: mine.read_version for table_id, mine in txn.tables.items()}

    begun = yield Request("begin", writer.txn_id, begin_it)
    if not isinstance(begun, dict):
        return
    check(begun[spec.table_id] == task.read_version, "a task's transaction reads the task's version", task.task_id)
    world.tasks.txns[writer.txn_id] = (task.task_id, task.fence)
    change = compacted(world, writer, spec, task)
    if change is None:
        yield writer.abort()
        return
    yield from play_pauses(world)
    while world.rng.random() < 0.4:
        renewed = yield Request("renew task", "", lambda: refusable(lambda: renew(world, task)))
        if isinstance(renewed, TaskRenewed) and renewed.cancelled and world.rng.random() < 0.7:
            return  # the others commit all the same, and must be refused
    yield commit(world, writer, change)
    if world.rng.random() < 0.6:
        yield finish(world, task, writer.txn_id, "")


def ask(world: World, spec: Spec, operation: Operation) -> Request:
    request_id = world.uuid()

    def run() -> object:
        table = world.reads.get_table(table_id=spec.table_id)
        plans = world.layouts.plan_all(table, policy_of(table.meta).wanting(operation), (), frozenset())
        wish = Wish(request_id, b"wish", spec.table_id, operation, WHO, 100, None)
        made, _ = world.maintenance.queue.request(wish, plans)
        return [task.task_id for task in made]

    return Request("ask", "", run)


def claimed(world: World, claim: Claim) -> Task | None:
    task = world.maintenance.claim(claim)
    if task is not None:
        inputs = world.maintenance.inputs(task)
        for group in task.groups:
            there = {live.entry.path for live in inputs[group.place]}
            check(set(group.inputs) <= there, "a claimed task's inputs are live", task.task_id, group)
    return task


def renew(world: World, task: Task) -> TaskRenewed:
    return world.maintenance.renew(task.task_id, task.fence, 0.5)


def refusable(run: Callable[[], object]) -> object:
    """What a late worker is told is checked where it matters: at its commit."""
    try:
        return run()
    except MetaError as refusal:
        check(
            refusal.reason in ("TASK_CLAIM_LOST", "TASK_ENDED", "TASK_NOT_COMMITTED", "TASK_UNKNOWN"),
            "a late worker is told so",
            refusal,
        )
        return refusal.reason


def finish(world: World, task: Task, txn_id: str, error: str) -> Request:
    def run() -> object:
        done = lambda: world.maintenance.finish(task.task_id, task.fence, txn_id, error, give_back=False).state  # noqa: E731
        return refusable(done)

    return Request("finish", "", run)


def commit(world: World, writer: Writer, change: Change) -> Request:
    def run() -> object:
        request = CommitRequest(writer.txn_id, (copy.deepcopy(change),), ((None, None),), b"commit")
        return outcome(world.maintenance.commit(request))

    return Request("commit", writer.txn_id, run)


def compacted(world: World, writer: Writer, spec: Spec, task: Task) -> Change | None:
    """The rows that win among a group's inputs, in one file."""
    table = world.reads.get_table(table_id=spec.table_id)
    if task.read_version < table.oldest:
        return None
    live = {entry.path for entry in world.reads.list_files(table, task.read_version)}
    groups, adds = [], []
    for group in task.groups:
        rows: dict[object, object] = {}
        for path in group.inputs:  # by data version, as the task says
            check(path in live, "a task's inputs are live at its version", path)
            rows.update(world.checker.rows[path])
        kind = FileKind.DELTA if task.operation is Operation.MINOR_COMPACT else FileKind.BASE
        output = writer.file(spec, group.partition, group.bucket, rows, kind)
        output.carries_row_ids = not spec.keyed
        adds.append(output)
        groups.append(replace(group, outputs=(output.path,)))
    return Change(spec.table_id, task.operation, 0, adds=adds, groups=tuple(groups))


def drain(world: World, steps: int = 400) -> None:
    """With one sound worker left every task ends."""
    for _ in range(steps):
        if not world.decider.state.tasks.tasks:
            return
        world.clock.ms += 700
        world.clock.us += 20_000_000  # a wall clock that went back an hour delays back-offs by as much
        world.group([(lambda _: None, None, lambda: do_one(world))])
    check(
        False,
        "every task ends",
        [(t.state.name, t.attempts, t.error) for t in world.decider.state.tasks.tasks.values()],
    )


def do_one(world: World) -> object:
    task = claimed(world, Claim(world.uuid(), WORKER))
    if task is None:
        return None
    world.tasks.take(task)
    spec = next(one for one in world.specs if one.table_id == task.table_id)
    writer = Writer(world)
    writer.meant.paths.setdefault(spec.table_id, set())
    begin = Begin(writer.txn_id, (Intent(spec.table_id, task.operation),), WHO, "", b"begin")
    world.maintenance.begin(begin, task.task_id, task.fence)
    world.tasks.txns[writer.txn_id] = (task.task_id, task.fence)
    change = compacted(world, writer, spec, task)
    check(change is not None, "a claimed task's version is kept")
    answer = commit(world, writer, change).run()  # type: ignore[arg-type]
    world.checker.hear("commit", writer.txn_id, answer, world.clock.ms)
    return answer
