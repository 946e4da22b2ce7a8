"""One thread that decides, one group at a time: it runs the waiting jobs, makes them durable with one sync, then
answers all.

A job is a function that the decider runs. Its result, or the MetaError that it raised, goes to the job's sink after the
sync, never before. A long job raises `Again` when its turn is over and continues in the next group, so that it doesn't
delay the others. Any other exception is a broken invariant and ends the process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, cast

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.metrics import DeciderMetrics
from metaservice.service.decider.group_commit_delay import GroupCommitDelay
from metaservice.service.decider.state import State
from metaservice.store.port import StoreFailed, StoreUnusable

T = TypeVar("T")
Answer = tuple[Any, object]
Sink = Callable[[Sequence[Answer]], object]
Job = tuple[Sink, Any, Callable[[], object]]


class Stamped:
    """A job that notes its times for traces, in nanoseconds of `time.perf_counter_ns`; 0: it did not come to that."""

    __slots__ = ("begun_ns", "decided_ns", "jobs", "note", "requested_ns", "run", "sync_ns", "synced_ns", "turns")

    def __init__(self, run: Callable[[], object], note: Callable[[Stamped], object]) -> None:
        """`note` is called when it is decided, on the decider's thread."""
        self.run = run
        self.note = note
        self.requested_ns = time.perf_counter_ns()
        self.begun_ns = self.decided_ns = self.sync_ns = self.synced_ns = 0
        self.turns = 0
        self.jobs = 0  # of the group that decided it

    def __call__(self) -> object:
        self.begun_ns = self.begun_ns or time.perf_counter_ns()
        self.turns += 1
        try:
            answer = self.run()
        except MetaError:
            self._decided()
            raise
        self._decided()
        return answer

    def _decided(self) -> None:
        self.decided_ns = time.perf_counter_ns()
        self.note(self)

    def goes_on(self, run: Callable[[], object] | None) -> Stamped:
        """The same job in its next turn."""
        self.run = run or self.run
        return self


class ContinueNextGroup(Exception):  # noqa: N818 - no error: a job goes on in the next group
    """Raised by a job whose turn is over, before it has changed anything that others may see.

    `run` continues it; None: the job itself does. `alone`: until it has ended no other job runs but for those that are
    `Apart` from its tables.
    """

    def __init__(self, run: Callable[[], object] | None = None, *, alone: bool = False) -> None:
        super().__init__()
        self.run = run
        self.alone = alone


class Apart(Generic[T]):
    """A job that reads and changes nothing but its tables and its own transactions.

    `tables`: their ids, asked for on the decider's thread; None: it may be about more.
    """

    __slots__ = ("run", "tables")

    def __init__(self, run: Callable[[], T], tables: Callable[[State], Iterable[str] | None]) -> None:
        self.run = run
        self.tables = tables

    def __call__(self) -> T:
        return self.run()


class Mailbox(Generic[T]):
    """Many threads put, one takes; a lock is the doorbell."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._mutex = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._closed = False

    def put(self, items: Sequence[T]) -> bool:
        """Adds jobs; returns False if the mailbox is closed."""
        with self._mutex:
            if self._closed:
                return False
            was_empty = not self._items
            self._items += items
        if was_empty:
            self.ring()
        return True

    def close(self) -> list[T]:
        """Closes the mailbox; returns the jobs inside."""
        with self._mutex:
            self._closed = True
            items, self._items = self._items, []
        return items

    def ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def __len__(self) -> int:
        return len(self._items)

    def take(self, timeout_s: float = -1) -> list[T]:
        """The waiting jobs, in order; may be empty."""
        self._bell.acquire(timeout=timeout_s)
        with self._mutex:
            items, self._items = self._items, []
        return items


class PendingJob(Generic[T]):
    """A submitted job; its durable answer can be waited for, once."""

    __slots__ = ("_answer", "_done")

    def __init__(self) -> None:
        self._done = threading.Lock()
        self._done.acquire()
        self._answer: object = None

    def put(self, given: Sequence[Answer]) -> None:
        self._answer = given[0][1]
        self._done.release()

    def wait(self) -> T:
        """The result; raises the refusal if the job was refused."""
        self._done.acquire()
        if isinstance(self._answer, MetaError):
            raise self._answer
        return cast(T, self._answer)


class Decider:
    """Owns the state's thread."""

    def __init__(
        self,
        reopen: Callable[[], State],
        tick: Callable[[], None],
        fail_stop: Callable[[BaseException], None],
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        """`ring` is called after every group; it must return quickly."""
        self._inbox: Mailbox[Job] = Mailbox()
        self._unfinished: list[Job] = []
        self._alone: Job | None = None  # the unfinished one that others wait for
        self._postponed: list[Job] = []  # those that do, in their order
        self._postponed_sinks: set[Sink] = set()
        self._reopen = reopen
        self._tick = tick
        self._fail_stop = fail_stop
        self._ring = ring
        self._stopping = False
        self._sync_since_s = 0.0
        self._gathering = GroupCommitDelay()
        self.groups = 0
        self.jobs = 0
        self.metrics = DeciderMetrics()
        self.may_not_answer: Callable[[], MetaError | None] = lambda: None  # asked after each sync
        self.stamp: Callable[[Callable[[], object]], Callable[[], object]] | None = None  # of jobs that are traced
        self.stamped: list[Stamped] = []  # those that this group has decided
        self.state = reopen()
        self._thread = threading.Thread(target=self._run, name="decider", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Submits jobs. Every job is answered, with a refusal when the service stops."""
        if not self._inbox.put(jobs):
            _refuse(jobs, MetaError(ErrorKind.UNAVAILABLE, "STOPPING"))

    def ask(self, run: Callable[[], T]) -> PendingJob[T]:
        """Submits one job; the jobs of one thread run in order."""
        pending: PendingJob[T] = PendingJob()
        self.submit([(pending.put, None, run if self.stamp is None else self.stamp(run))])
        return pending

    def call(self, run: Callable[[], T]) -> T:
        """Runs one job and waits for its durable answer."""
        return self.ask(run).wait()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Answers the waiting jobs, then ends the thread; whether that was done in time. The store stays open."""
        self._stopping = True
        self._inbox.ring()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def syncing_s(self) -> float:
        """For how long the group has waited for its sync; 0: it doesn't."""
        since_s = self._sync_since_s
        return time.monotonic() - since_s if since_s else 0.0

    def _run(self) -> None:
        try:
            while True:
                jobs = self._inbox.take(timeout_s=0 if self._is_at_work else 0.2)
                while not self._stopping and (left_s := self._gathering.left_s(len(jobs), time.monotonic())):
                    jobs += self._inbox.take(left_s)
                self._group(jobs)
                if self._stopping and not jobs:
                    self._group(self._inbox.close())
                    while self._is_at_work:
                        self._group([])
                    return
        except BaseException as error:  # noqa: BLE001 - whatever it is, the log is the truth: the next start reads it
            self._fail_stop(error)

    @property
    def _is_at_work(self) -> bool:
        return bool(self._unfinished or self._postponed)

    def _group(self, jobs: list[Job]) -> None:
        waiting, postponed = self._unfinished, self._postponed
        self._unfinished, self._postponed, self._postponed_sinks = [], [], set()
        # who judged first in the last group does so last in this one
        jobs = waiting[1:] + waiting[:1] + postponed + jobs
        self.state.judging_left = limits.JUDGE_TURN
        answers: dict[Sink, list[Answer]] = {}
        begun_ns = time.perf_counter_ns()
        try:
            for job in jobs:
                if self._postpones(job):
                    continue
                sink, token, run = job
                try:
                    result: object = run()
                except ContinueNextGroup as more:
                    self._note_unfinished(job, more)
                    continue
                except MetaError as refusal:
                    result = refusal
                    self.metrics.count_refusal(refusal.reason)
                answers.setdefault(sink, []).append((token, result))
            if self._alone is None:
                self._tick()
            sync_ns = time.perf_counter_ns()
            self._sync_since_s = time.monotonic()
            self.state.make_durable()
            self._sync_since_s = 0.0
        except StoreFailed:
            self._sync_since_s = 0.0
            self._after_failure(jobs)
            return
        if self.stamped:
            self._note_sync(sync_ns, len(jobs))
        if (why := self.may_not_answer()) is not None:
            answers = {sink: [(token, why) for token, _ in given] for sink, given in answers.items()}
        answered = len(jobs) - len(self._unfinished) - len(self._postponed)
        if answered:
            sync_s = (time.perf_counter_ns() - sync_ns) / 1e9
            self._gathering.group_ended(answered, len(self._inbox), sync_s, time.monotonic())
        self.groups += bool(jobs)
        self.jobs += answered
        for sink, given in answers.items():
            sink(given)
        if jobs:
            self._ring()
        self._measure(answered, begun_ns)

    def _note_unfinished(self, job: Job, more: ContinueNextGroup) -> None:
        sink, token, run = job
        following = run.goes_on(more.run) if isinstance(run, Stamped) else more.run or run
        self._unfinished.append((sink, token, following))
        if more.alone:
            self._alone = self._unfinished[-1]

    def _postpones(self, job: Job) -> bool:
        """Whether a job waits until the one that is alone has ended. That one never does: it begins its next turn."""
        if self._alone is None:
            return False
        if job is self._alone:
            self._alone = None
            return False
        sink, _, run = job
        run = run.run if isinstance(run, Stamped) else run
        if isinstance(run, Apart) and sink not in self._postponed_sinks:  # jobs of one sink run in order
            tables = run.tables(self.state)
            if tables is not None and self.state.are_apart(tables):
                return False
        self._postponed.append(job)
        self._postponed_sinks.add(sink)
        return True

    def note_decided(self, job: Stamped) -> None:
        self.stamped.append(job)

    def _note_sync(self, sync_ns: int, jobs: int) -> None:
        stamped, self.stamped = self.stamped, []
        synced_ns = time.perf_counter_ns()
        for stamp in stamped:
            stamp.sync_ns, stamp.synced_ns, stamp.jobs = sync_ns, synced_ns, jobs

    def _measure(self, jobs: int, begun_ns: int) -> None:
        """Runs after the answers, so that no caller waits for it."""
        state = self.state
        ended, state.txns.ended_now = state.txns.ended_now, []
        self.metrics.count_group(jobs, ended, (time.perf_counter_ns() - begun_ns) / 1e9)

    def _after_failure(self, jobs: list[Job]) -> None:
        """After a failed write its effect is unknown: every caller is told to ask again."""
        lost = MetaError(
            ErrorKind.UNAVAILABLE, "STORE_FAILED", "the store failed and is being reopened: ask again under the same id"
        )
        _refuse(jobs, lost)
        self._unfinished, self._postponed, self._alone = [], [], None
        self.stamped = []
        self.state = self._reopen()


def _refuse(jobs: Sequence[Job], refusal: MetaError) -> None:
    for sink, token, _ in jobs:
        sink([(token, refusal)])


def as_refusal(error: Exception) -> Exception:
    """A store's failure as a refusal; any other error unchanged."""
    if isinstance(error, StoreFailed):
        return MetaError(ErrorKind.UNAVAILABLE, "STORE_FAILED", "the store is being reopened: ask again")
    if isinstance(error, StoreUnusable):
        facts: dict[str, object] = dict(error.facts)
        return MetaError(ErrorKind.CORRUPT, error.reason, "", **facts)
    return error
