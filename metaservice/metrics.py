"""Metrics (Prometheus). Only this module names them.

Only the decider's thread changes the decider's counters, so a commit costs a few additions and no lock; a scrape reads
them as they are. Counters that many threads change have a lock.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from metaservice.core.commit.transaction import Txn, TxnState
from metaservice.core.table.model import Operation, Rule


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, its kind, its meaning, and its labels."""

    name: str
    kind: str
    says: str
    labels: tuple[str, ...] = ()


COMMITS = Metric("laketx_commits_total", "counter", "Durable commits of tables, by operation.", ("operation",))
TRANSACTIONS = Metric("laketx_transactions_total", "counter", "Transactions that ended, by final state.", ("state",))
CONFLICTS = Metric("laketx_conflicts_total", "counter", "Transactions that lost a race, by rule.", ("rule",))
REBASED = Metric("laketx_rebased_commits_total", "counter", "Commits that were rebased over other commits.")
REBASED_OVER = Metric("laketx_rebased_over_total", "counter", "Commits over which other commits were rebased.")
JOBS = Metric("laketx_decider_jobs_total", "counter", "Jobs that the decider answered.")
REFUSALS = Metric(
    "laketx_decider_refusals_total",
    "counter",
    "Jobs that the decider refused, by reason: unary calls and calls on session streams.",
    ("reason",),
)
GROUP_JOBS = Metric("laketx_group_jobs", "histogram", "Jobs made durable by one sync.")
GROUP_SECONDS = Metric("laketx_group_seconds", "histogram", "Time from a group's first job to its durable answers.")
CALL_SECONDS = Metric(
    "laketx_call_seconds", "histogram", "Time of unary calls, from request to answer, by method.", ("method",)
)
CALL_ERRORS = Metric(
    "laketx_call_errors_total",
    "counter",
    "Calls and streams refused, by method and reason; under Session also each session call beyond the rate limit.",
    ("method", "reason"),
)
STREAMS = Metric("laketx_streams", "gauge", "Open streams, by method, including Session and Watch.", ("method",))
STREAMS_ENDED = Metric(
    "laketx_streams_ended_total",
    "counter",
    "Streams, and calls without a request, that the service ended, by lane (thread pool) and cause: idle, deadline.",
    ("lane", "why"),
)
TABLES = Metric("laketx_tables", "gauge", "Live tables.")
OPEN_TRANSACTIONS = Metric("laketx_open_transactions", "gauge", "Open transactions.")
STAGED_FILES = Metric("laketx_staged_files", "gauge", "Files that open transactions have staged.")
STAGED_BYTES = Metric("laketx_staged_bytes", "gauge", "Approximate memory of staged files.")
OLDEST_TRANSACTION_SECONDS = Metric(
    "laketx_oldest_open_transaction_seconds", "gauge", "Age of the oldest open transaction; 0: none is open."
)
PINS = Metric("laketx_pins", "gauge", "Open pins.")
OLDEST_PIN_SECONDS = Metric("laketx_oldest_pin_seconds", "gauge", "Age of the oldest pin; 0: no pin is open.")
BRANCHES = Metric("laketx_branches", "gauge", "Branches.")
OLDEST_BRANCH_SECONDS = Metric(
    "laketx_oldest_branch_seconds",
    "gauge",
    "Time since the branch that left its parent first did so; it keeps the versions since. 0: there is no branch.",
)
FORKS = Metric("laketx_forks", "gauge", "Tables on branches and clones, also dropped ones that are not purged yet.")
MERGES = Metric(
    "laketx_merges_total",
    "counter",
    "Merges and refreshes of branches that were more than a dry run, by outcome: merged, merge_refused, refreshed, "
    "refresh_refused.",
    ("outcome",),
)
PERIODIC_TASKS = Metric("laketx_periodic_tasks", "gauge", "Periodic tasks, also suspended ones.")
PERIODIC_RUNS = Metric(
    "laketx_periodic_runs_total",
    "counter",
    "Runs of periodic tasks that ended, by outcome: done, skipped, failed.",
    ("outcome",),
)
PERIODIC_LATE_SECONDS = Metric(
    "laketx_periodic_late_seconds",
    "gauge",
    "Time since the longest due run or attempt of a periodic task was due; 0: none waits. It grows if no worker runs.",
)
TAGS = Metric("laketx_tags", "gauge", "Tags of all tables.")
CURSORS = Metric("laketx_cursors", "gauge", "Cursors of all tables, including expired ones.")
STALEST_CURSOR_SECONDS = Metric(
    "laketx_stalest_cursor_seconds",
    "gauge",
    "Time since the last use of the least recently used cursor that still keeps versions; 0: no cursor keeps any.",
)
STORE_BYTES = Metric("laketx_store_bytes", "gauge", "Bytes of the store on disk.")
INLINED_BYTES = Metric(
    "laketx_inlined_bytes", "gauge", "Bytes of inlined rows of all tables that no compaction has written to files yet."
)
LOG_BYTES = Metric("laketx_store_log_bytes", "gauge", "Bytes of the store's write-ahead log.")
ROOM_BYTES = Metric(
    "laketx_store_room_bytes", "gauge", "Free space until the service refuses new work; negative: it refuses it."
)
QUOTA_USED = Metric(
    "laketx_quota_used",
    "gauge",
    "Use of a quota; by=all: by all principals together, by=principal: by the principal with the highest use.",
    ("quota", "by"),
)
QUOTA_LIMIT = Metric(
    "laketx_quota_limit", "gauge", "Limit of a quota, for all principals together and for each.", ("quota", "by")
)
READ_ONLY = Metric("laketx_read_only", "gauge", "1 while new work is refused.")
PURGE_HELD = Metric("laketx_purge_held", "gauge", "1 while the purge waits for an operator.")
CLOCKS_OFF = Metric(
    "laketx_clocks_disagree",
    "gauge",
    "1 while the service forgets, retires and purges nothing, because the wall clock jumped.",
)
CLOCK_OFF_SECONDS = Metric(
    "laketx_clock_off_seconds",
    "gauge",
    "Size of the wall clock's jump; 0: the clock is trusted.",
)
AHEAD_SECONDS = Metric(
    "laketx_commit_times_ahead_seconds", "gauge", "How far commit times are ahead of the wall clock."
)
TASKS_QUEUED = Metric("laketx_tasks_queued", "gauge", "Tasks that wait for a worker, except those with an alarm.")
TASKS_CLAIMED = Metric("laketx_tasks_claimed", "gauge", "Tasks that workers hold.")
TASKS_ALARM = Metric("laketx_tasks_alarm", "gauge", "Tasks that have failed repeatedly; see their errors.")
OLDEST_TASK_SECONDS = Metric(
    "laketx_oldest_task_seconds", "gauge", "Age of the oldest task that has not ended; 0: all have ended."
)
TASKS_DONE = Metric("laketx_tasks_done_total", "counter", "Tasks whose transaction committed.")
TASKS_CANCELLED = Metric("laketx_tasks_cancelled_total", "counter", "Tasks cancelled, or no longer useful.")
TASK_FAILURES = Metric(
    "laketx_task_failures_total",
    "counter",
    "Attempts at tasks that ended without a commit, by an error or a lost race.",
)
AUDIT_RECORDS = Metric("laketx_audit_records_total", "counter", "Records written to the audit.")
AUDIT_LOST = Metric("laketx_audit_lost_total", "counter", "Audit records that could not be written and are lost.")
AUDIT_WAITING = Metric("laketx_audit_waiting", "gauge", "Records that wait to be written to the audit.")
AUDIT_FAILING = Metric("laketx_audit_failing", "gauge", "1 while the audit can't be written.")
BACKUP_AGE_SECONDS = Metric(
    "laketx_backup_age_seconds",
    "gauge",
    "Time since the newest backup in the service's repository began, or since the service's start if there is no "
    "backup; 0: the service has no repository.",
)
BACKUP_EVERY_SECONDS = Metric("laketx_backup_every_seconds", "gauge", "Interval of scheduled backups; 0: none.")
BACKUP_SECONDS = Metric("laketx_backup_seconds", "gauge", "Duration of the last scheduled backup.")
BACKUP_BYTES = Metric("laketx_backup_bytes", "gauge", "Bytes of the newest backup in the service's repository.")
BACKUP_UPLOADED_BYTES = Metric(
    "laketx_backup_uploaded_bytes_total", "counter", "Bytes that scheduled backups have uploaded."
)
BACKUP_FAILURES = Metric("laketx_backup_failures_total", "counter", "Attempts at scheduled backups that failed.")
BACKUP_VERIFY_AGE_SECONDS = Metric(
    "laketx_backup_verify_age_seconds",
    "gauge",
    "Time since a backup was last verified, or since the service's start if none was; 0: the service has no "
    "repository.",
)
BACKUP_VERIFY_EVERY_SECONDS = Metric(
    "laketx_backup_verify_every_seconds", "gauge", "Interval of scheduled verifications; 0: none."
)
BACKUP_VERIFY_FAILURES = Metric(
    "laketx_backup_verify_failures_total", "counter", "Verifications that failed or found damage."
)
BACKUP_DAMAGED = Metric("laketx_backup_damaged", "gauge", "1 while the most recently verified backup is damaged.")
START_SECONDS = Metric("laketx_start_time_seconds", "gauge", "Start of the service, in seconds since 1970.")
CERTIFICATE_LEFT_SECONDS = Metric(
    "laketx_certificate_left_seconds",
    "gauge",
    "Time until the service's certificate expires; negative: it has expired. Only with --tls-cert.",
    ("file",),
)
LEADER_IS = Metric(
    "laketx_leader",
    "gauge",
    "1: this process leads; 0: it is a standby. This metric and the following ones exist only with --store.",
)
LEASE_AGE_SECONDS = Metric(
    "laketx_lease_age_seconds",
    "gauge",
    "Time since the last renewal of the lease that this process has seen; the leader renews it each second.",
)
LEASE_FAILURES = Metric(
    "laketx_lease_failures_total",
    "counter",
    "Requests for the lease that failed: look, renewal, standbys.",
    ("request",),
)
TAKE_OVERS = Metric("laketx_take_overs_total", "counter", "Take-overs of the lease since the store was made.")
STANDBYS_ALIVE = Metric("laketx_standbys", "gauge", "Live standbys, as the leader sees them.")
BUCKET_REQUESTS = Metric(
    "laketx_bucket_requests_total", "counter", "Requests of the store to its bucket, by kind.", ("request",)
)
BUCKET_ERRORS = Metric(
    "laketx_bucket_errors_total",
    "counter",
    "Failed requests of the store to its bucket, by kind; each is repeated. A get or head of a missing object counts, "
    "too.",
    ("request",),
)
BUCKET_PUT_SECONDS = Metric("laketx_bucket_put_seconds", "histogram", "Time of the store's PUTs to its bucket.")

HIGH_AVAILABILITY: Final = (
    LEADER_IS,
    LEASE_AGE_SECONDS,
    LEASE_FAILURES,
    TAKE_OVERS,
    STANDBYS_ALIVE,
    BUCKET_REQUESTS,
    BUCKET_ERRORS,
    BUCKET_PUT_SECONDS,
)
METRICS: Final = (
    COMMITS,
    TRANSACTIONS,
    CONFLICTS,
    REBASED,
    REBASED_OVER,
    JOBS,
    REFUSALS,
    GROUP_JOBS,
    GROUP_SECONDS,
    CALL_SECONDS,
    CALL_ERRORS,
    STREAMS,
    STREAMS_ENDED,
    TABLES,
    OPEN_TRANSACTIONS,
    STAGED_FILES,
    STAGED_BYTES,
    QUOTA_USED,
    QUOTA_LIMIT,
    OLDEST_TRANSACTION_SECONDS,
    PINS,
    OLDEST_PIN_SECONDS,
    BRANCHES,
    OLDEST_BRANCH_SECONDS,
    FORKS,
    MERGES,
    PERIODIC_TASKS,
    PERIODIC_RUNS,
    PERIODIC_LATE_SECONDS,
    TAGS,
    CURSORS,
    STALEST_CURSOR_SECONDS,
    STORE_BYTES,
    LOG_BYTES,
    ROOM_BYTES,
    INLINED_BYTES,
    READ_ONLY,
    PURGE_HELD,
    CLOCKS_OFF,
    CLOCK_OFF_SECONDS,
    AHEAD_SECONDS,
    TASKS_QUEUED,
    TASKS_CLAIMED,
    TASKS_ALARM,
    OLDEST_TASK_SECONDS,
    TASKS_DONE,
    TASKS_CANCELLED,
    TASK_FAILURES,
    AUDIT_RECORDS,
    AUDIT_LOST,
    AUDIT_WAITING,
    AUDIT_FAILING,
    BACKUP_AGE_SECONDS,
    BACKUP_EVERY_SECONDS,
    BACKUP_SECONDS,
    BACKUP_BYTES,
    BACKUP_UPLOADED_BYTES,
    BACKUP_FAILURES,
    BACKUP_VERIFY_AGE_SECONDS,
    BACKUP_VERIFY_EVERY_SECONDS,
    BACKUP_VERIFY_FAILURES,
    BACKUP_DAMAGED,
    START_SECONDS,
    CERTIFICATE_LEFT_SECONDS,
    *HIGH_AVAILABILITY,
)

K = TypeVar("K")
E = TypeVar("E", bound=Enum)
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts by upper bound; the last count is for values above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


Value = float | Histogram
Reading = Value | Mapping[str, Value] | Mapping[tuple[str, str], Value]  # by the values of the labels
Readings = Mapping[Metric, Callable[[], Reading]]


def by_labels(reading: Reading) -> list[tuple[Sequence[str], Value]]:
    """Copied in one step of the interpreter, because other threads change it."""
    if not isinstance(reading, Mapping):
        return [((), reading)]
    return [((labels,) if isinstance(labels, str) else labels, value) for labels, value in list(reading.items())]


class DeciderMetrics:
    """Changed only by the decider's thread."""

    def __init__(self) -> None:
        self.commits: dict[Operation, int] = {}
        self.states: dict[TxnState, int] = {}
        self.conflicts: dict[Rule, int] = {}
        self.refusals: dict[str, int] = {}
        self.merges: dict[str, int] = {}
        self.rebased = 0
        self.rebased_over = 0
        self.jobs = 0
        self.group_jobs = Histogram(SIZES)
        self.group_seconds = Histogram(SECONDS)

    def count_group(self, jobs: int, ended: Sequence[Txn], seconds: float) -> None:
        self.jobs += jobs
        if jobs:
            self.group_jobs.observe(jobs)
            self.group_seconds.observe(seconds)
        for txn in ended:
            if not txn.adopted_by:  # it had ended before
                self._count_end(txn)

    def _count_end(self, txn: Txn) -> None:
        state = txn.state
        _bump(self.states, state)
        if state is TxnState.COMMITTED:
            for outcome in txn.outcomes:
                if outcome.already_applied:
                    continue
                _bump(self.commits, txn.tables[outcome.table_id].operation)
                if outcome.rebased_over:
                    self.rebased += 1
                    self.rebased_over += outcome.rebased_over
        elif txn.conflict is not None:
            _bump(self.conflicts, txn.conflict.rule)

    def count_merge(self, outcome: str) -> None:
        _bump(self.merges, outcome)

    def count_refusal(self, reason: str) -> None:
        _bump(self.refusals, reason)


class CallMetrics:
    """Changed by the threads that serve calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, Histogram] = {}
        self.errors: dict[tuple[str, str], int] = {}
        self.streams: dict[str, int] = {}
        self.ends: dict[tuple[str, str], int] = {}

    def count_call(self, method: str, seconds: float) -> None:
        with self._lock:
            histogram = self.seconds.get(method)
            if histogram is None:
                histogram = self.seconds[method] = Histogram(SECONDS)
            histogram.observe(seconds)

    def count_error(self, method: str, reason: str, calls: int = 1) -> None:
        with self._lock:
            self.errors[method, reason] = self.errors.get((method, reason), 0) + calls

    def count_stream(self, method: str, step: int) -> None:
        with self._lock:
            self.streams[method] = self.streams.get(method, 0) + step

    def count_end(self, lane: str, why: str) -> None:
        with self._lock:
            self.ends[lane, why] = self.ends.get((lane, why), 0) + 1


class Metrics:
    """All metrics, with the source of each at a scrape."""

    def __init__(self, decider: DeciderMetrics) -> None:
        self.decider = decider
        self.calls = calls = CallMetrics()
        self.readings: dict[Metric, Callable[[], Reading]] = {
            COMMITS: lambda: _named(decider.commits),
            TRANSACTIONS: lambda: _named(decider.states),
            CONFLICTS: lambda: _named(decider.conflicts),
            MERGES: lambda: decider.merges,
            REFUSALS: lambda: decider.refusals,
            REBASED: lambda: decider.rebased,
            REBASED_OVER: lambda: decider.rebased_over,
            JOBS: lambda: decider.jobs,
            GROUP_JOBS: lambda: decider.group_jobs,
            GROUP_SECONDS: lambda: decider.group_seconds,
            CALL_SECONDS: lambda: calls.seconds,
            CALL_ERRORS: lambda: calls.errors,
            STREAMS: lambda: calls.streams,
            STREAMS_ENDED: lambda: calls.ends,
            AUDIT_RECORDS: lambda: 0,  # an audit that is kept puts its own here
            AUDIT_LOST: lambda: 0,
            AUDIT_WAITING: lambda: 0,
            AUDIT_FAILING: lambda: 0,
            CERTIFICATE_LEFT_SECONDS: dict,  # without TLS there is none
            **dict.fromkeys(HIGH_AVAILABILITY, dict),  # of a service that is alone
        }


def _bump(counts: dict[K, int], key: K) -> None:
    counts[key] = counts.get(key, 0) + 1


def _named(counts: Mapping[E, int]) -> dict[str, Value]:
    """Copied in one step, as above; an enum's member is named here, which takes longer than to count it."""
    return {key.name: count for key, count in list(counts.items())}
