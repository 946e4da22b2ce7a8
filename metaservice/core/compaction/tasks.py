"""The life of a task, pure: queued → claimed → done, and back to the queue after a failure.

    queued ──claim──► claimed ──commit──► done
      ▲                 │  │
      │   back-off      │  └──cancel, of no use any more──► cancelled
      └── fail, lost race, lease ran out

A claim has a fence number that grows with every claim; a worker with an older one is refused. After an attempt without
a commit the task backs off, longer each time. After `TASK_ATTEMPTS_ALARM` of them its state is FAILED, which raises an
alarm. It is still handed out, at the longest back-off, so it recovers by itself when the cause is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from metaservice.core import limits
from metaservice.core.commit.transaction import CLAIM_LOST
from metaservice.core.compaction.plans import Gain, TaskPlan
from metaservice.core.compaction.policy import Options
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import Group, Operation, Principal

LEASE_RAN_OUT: Final = "LEASE_RAN_OUT"

NOBODY: Final = Principal()


class TaskState(IntEnum):
    """Numbers are the wire's."""

    QUEUED = 1
    CLAIMED = 2
    DONE = 3
    FAILED = 4
    CANCELLED = 5


ENDED: Final = frozenset({TaskState.DONE, TaskState.CANCELLED})
WAITING: Final = frozenset({TaskState.QUEUED, TaskState.FAILED})


@dataclass(frozen=True, slots=True)
class Task:
    """A task; every change returns another value."""

    task_id: str
    table_id: str
    operation: Operation
    groups: tuple[Group, ...]
    reason: str
    gain: Gain
    options: Options
    priority: int
    create_us: int
    read_version: int
    requested_by: Principal | None = None
    request_id: str = ""
    request_digest: bytes = b""
    own_plan: bool = False
    state: TaskState = TaskState.QUEUED
    fence: int = 0
    progress: float = 0.0
    attempts: int = 0
    error: str = ""
    start_us: int = 0
    end_us: int = 0
    not_before_us: int = 0
    worker: Principal = NOBODY
    claim_id: str = ""
    txn_id: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def is_due(self, now_us: int) -> bool:
        """Whether it waits only for a worker; a wall clock that went back delays nothing forever."""
        early_us = self.not_before_us - now_us
        return self.state in WAITING and (early_us <= 0 or early_us > 2 * limits.TASK_BACKOFF_MS_MAX * 1000)


def claimed(task: Task, plan: TaskPlan, read_version: int, worker: Principal, claim_id: str, now_us: int) -> Task:
    """The task held by a worker, with inputs that are live at a version."""
    return replace(
        task,
        groups=plan.groups,
        gain=plan.gain,
        read_version=read_version,
        state=TaskState.CLAIMED,
        fence=task.fence + 1,
        progress=0.0,
        start_us=now_us,
        not_before_us=0,
        worker=worker,
        claim_id=claim_id,
        txn_id="",
    )


def failed(task: Task, error: str, now_us: int, backoff_ms: int) -> Task:
    """The task back in the queue, for later; with an alarm after repeated failures."""
    attempts = task.attempts + 1
    alarm = attempts >= limits.TASK_ATTEMPTS_ALARM
    wait_ms = min(backoff_ms << min(attempts - 1, 20), limits.TASK_BACKOFF_MS_MAX)
    return replace(
        _let_go(task),
        state=TaskState.FAILED if alarm else TaskState.QUEUED,
        attempts=attempts,
        error=error[: limits.TASK_ERROR_CHARS_MAX],
        not_before_us=now_us + wait_ms * 1000,
    )


def given_back(task: Task) -> Task:
    """The task back in the queue, without a failure."""
    alarm = task.attempts >= limits.TASK_ATTEMPTS_ALARM
    return replace(_let_go(task), state=TaskState.FAILED if alarm else TaskState.QUEUED)


def _let_go(task: Task) -> Task:
    return replace(task, progress=0.0, claim_id="", txn_id="")


def done(task: Task, txn_id: str, now_us: int) -> Task:
    return replace(task, state=TaskState.DONE, progress=1.0, txn_id=txn_id, end_us=now_us, error="")


def cancelled(task: Task, why: str, now_us: int) -> Task:
    return replace(task, state=TaskState.CANCELLED, error=why[: limits.TASK_ERROR_CHARS_MAX], end_us=now_us, txn_id="")


def check_claim(task: Task, fence: int) -> None:
    """Refuses a worker that doesn't hold the task."""
    if task.state is not TaskState.CLAIMED or task.fence != fence:
        raise claim_lost(task.task_id, fence, task.fence, task.state)


def claim_lost(task_id: str, fence: int, current: int, state: TaskState) -> MetaError:
    return MetaError(
        ErrorKind.STALE,
        CLAIM_LOST,
        "another worker has the task, or it has ended: stop",
        task_id=task_id,
        fence=fence,
        current=current,
        state=state.name.lower(),
    )


def next_task(
    tasks: Sequence[Task],
    now_us: int,
    operations: frozenset[Operation],
    table_ids: frozenset[str],
    closed: frozenset[str],
    full: frozenset[str],
) -> Task | None:
    """Return the task to hand out next: higher priority, higher score, longer waiting first.

    `closed` tables are outside their windows, so only operators' tasks are handed out; `full` tables run their maximum.
    """

    def may(task: Task) -> bool:
        return (
            task.is_due(now_us)
            and (not operations or task.operation in operations)
            and (not table_ids or task.table_id in table_ids)
            and task.table_id not in full
            and (task.requested_by is not None or task.table_id not in closed)
        )

    return min(
        filter(may, tasks),
        key=lambda candidate: (-candidate.priority, -candidate.gain.score, candidate.create_us, candidate.task_id),
        default=None,
    )
