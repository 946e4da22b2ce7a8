"""The plans that policies ask for in each table, kept current with its commits: a table is examined as a whole once,
then where it changes.

Any thread can ask; each table's layout has its own lock. A partition is examined again when a commit touched it, and
when an entry reaches an age that its plan waits for. Open plans are ranked by score. The first examination of a table
only counts: where something may be due it guesses the score, and plans are made on request, for the best guesses first.

A layout depends on what its cursor sees, and a task is checked again when it is handed out, so nothing here has to be
exact.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from metaservice.core import limits
from metaservice.core.compaction.early_exit import NEVER, Counts, likely_score, quiet_waits
from metaservice.core.compaction.planner import by_gain, plan_bucket, plan_partition, without
from metaservice.core.compaction.plans import Ages, Bucket, BucketPlan, Look, TaskPlan, Wait, whole_bucket
from metaservice.core.compaction.policy import Age, Policy, policy_of
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import TableMeta
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.loading import first_commit
from metaservice.service.decider.snapshots import load_commit_footprint
from metaservice.service.decider.views import TableView
from metaservice.store import keys
from metaservice.store.forks import is_of_base
from metaservice.store.live_layout import read_bucket, scan_counts, scan_partitions
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.branches import Fork

PAUSE_PARTITIONS = 4_000
LOOKS_MAX = 200  # plans made for guesses, each time that the best are asked for
Dirty = dict[str, set[int]]
AGES = tuple(Age)
Busy = Collection[tuple[str, int]]


@dataclass(slots=True)
class Waits:
    """The version whose age makes a partition due for examination.

    A partition that waits for a later version than before stays in the queue of the earlier one, and moves on when that
    is reached. So a partition that is written all day is in one queue.
    """

    versions: dict[str, int] = field(default_factory=dict)
    queued: dict[str, int] = field(default_factory=dict)
    queues: dict[int, list[str]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def put(self, partition: str, version: int) -> None:
        self.versions[partition] = version
        if self.queued.get(partition, NEVER) <= version:
            return
        self.queued[partition] = version
        queue = self.queues.get(version)
        if queue is None:
            self.queues[version] = [partition]
            heapq.heappush(self.order, version)
        else:
            queue.append(partition)

    def put_all(self, by_version: Mapping[int, list[str]]) -> None:
        """Adds partitions; of duplicates, the earliest version counts."""
        for version in sorted(by_version, reverse=True):
            partitions = by_version[version]
            for place in (self.versions, self.queued):
                place.update(dict.fromkeys(partitions, version))
            self.queues[version] = partitions
        self.order = sorted(by_version)

    def drop(self, partition: str) -> None:
        self.versions.pop(partition, None)

    def take(self, version: int) -> Iterator[str]:
        """Removes the partitions that waited for versions up to this one."""
        while self.order and self.order[0] <= version:
            reached = heapq.heappop(self.order)
            for partition in self.queues.pop(reached):
                if self.queued.get(partition) != reached:
                    continue  # it came to wait for an earlier one
                del self.queued[partition]
                due = self.versions.pop(partition, NEVER)
                if due <= version:
                    yield partition
                elif due < NEVER:
                    self.put(partition, due)


@dataclass(slots=True)
class Layout:
    """One table's plans, as of a version."""

    meta: TableMeta
    policy: Policy
    version: int = -1
    ages: Ages = field(default_factory=Ages)
    looks: dict[str, dict[int, BucketPlan]] = field(default_factory=dict)
    tasks: dict[str, list[TaskPlan]] = field(default_factory=dict)
    ranking: list[tuple[float, str, int, int]] = field(default_factory=list)
    guesses: set[str] = field(default_factory=set)
    guessed: list[tuple[float, str]] = field(default_factory=list)
    serials: dict[str, int] = field(default_factory=dict)
    waits: tuple[Waits, ...] = field(default_factory=lambda: tuple(Waits() for _ in Age))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look_at(self, partition: str, plans: dict[int, BucketPlan]) -> None:
        """Records the plan of a partition."""
        self.guesses.discard(partition)
        tasks, waits = plan_partition(self.policy, self.ages, plans.values())
        for plan in plans.values():
            waits += plan.waits
        first: dict[Age, int] = {}
        for age, version in waits:
            first[age] = min(version, first.get(age, version))
        for age, waiting in zip(AGES, self.waits, strict=True):
            if age in first:
                waiting.put(partition, first[age])
            else:
                waiting.drop(partition)
        if tasks or waits:
            self.looks[partition] = plans
        else:
            self.looks.pop(partition, None)
        if tasks or partition in self.tasks:
            self._rank(partition, tasks)

    def guess(self, partition: str, score: float) -> None:
        """Records that something may be due in a partition that has not been examined."""
        self.guesses.add(partition)
        self.guessed.append((-score, partition))

    def clear(self) -> None:
        for place in (self.looks, self.tasks, self.guesses):
            place.clear()
        for ranks in (self.ranking, self.guessed):
            ranks.clear()
        self.waits = tuple(Waits() for _ in Age)

    def _rank(self, partition: str, tasks: list[TaskPlan]) -> None:
        self.serials[partition] = self.serials.get(partition, 0) + 1
        if tasks:
            self.tasks[partition] = tasks
        else:
            self.tasks.pop(partition, None)
        for place, task in enumerate(tasks):
            heapq.heappush(self.ranking, (-task.gain.score, partition, self.serials[partition], place))

    def aged(self) -> set[str]:
        """Returns the partitions in which an entry has reached its age."""
        return {
            partition
            for waiting, version in zip(self.waits, self.ages, strict=True)
            for partition in waiting.take(version)
        }

    def best(self, count: int, busy: Busy, look: Callable[[str], None]) -> list[TaskPlan]:
        """Returns the best plans that no task works on; with guesses, the best of those that could be examined."""
        plans: list[TaskPlan] = []
        seen: list[tuple[float, str, int, int]] = []
        looks = LOOKS_MAX
        while len(plans) < count:
            while looks and self.guessed and not (self.ranking and self.ranking[0][0] < self.guessed[0][0]):
                _, partition = heapq.heappop(self.guessed)
                if partition in self.guesses:
                    look(partition)
                    looks -= 1
            if not self.ranking:
                break
            rank = heapq.heappop(self.ranking)
            _, partition, serial, place = rank
            if self.serials.get(partition) != serial:
                continue
            seen.append(rank)
            task = free(self.tasks[partition][place], self.policy, busy)
            if task is not None:
                plans.append(task)
        for rank in seen:
            heapq.heappush(self.ranking, rank)
        return plans

    def all_tasks(self, busy: Busy) -> list[TaskPlan]:
        """Returns all planned due tasks that no task works on."""
        free_tasks = (free(task, self.policy, busy) for tasks in self.tasks.values() for task in tasks)
        return sorted((task for task in free_tasks if task is not None), key=by_gain)


def _quiet(layout: Layout, held: list[Counts]) -> list[Wait] | None:
    """Return what a partition without due work waits for; None if counts don't decide it."""
    waits: list[Wait] = []
    for counts in held:
        resting = quiet_waits(layout.policy, layout.ages, counts)
        if resting is None:
            return None
        waits += resting
    return waits


def free(plan: TaskPlan, policy: Policy, busy: Busy) -> TaskPlan | None:
    """The part of a plan that no task works on."""
    return without(plan, lambda partition, bucket: (partition, -1 if policy.by_partition else bucket) in busy)


class Layouts:
    """The layouts of all tables."""

    def __init__(self, decider: Decider, pause: Callable[[], None]) -> None:
        self._decider = decider
        self._pause = pause
        self._layouts: dict[str, Layout] = {}

    def drop(self, table_ids: Iterable[str]) -> None:
        for table_id in table_ids:
            self._layouts.pop(table_id, None)

    def find(self, table_id: str) -> Layout | None:
        return self._layouts.get(table_id)

    def best(self, table: TableView, now_us: int, count: int, busy: Busy) -> tuple[list[TaskPlan], bool]:
        """Returns the best plans that no task works on, and whether there may be more."""
        layout = self._refresh(table, now_us)
        with layout.lock:
            plans = layout.best(count, busy, self._looking(layout, table))
            return plans, bool(count) and (len(plans) == count or bool(layout.guesses))

    def all_tasks(self, table: TableView, now_us: int, busy: Busy) -> list[TaskPlan]:
        layout = self._refresh(table, now_us)
        with layout.lock:
            self._look_at_guesses(layout, table)
            return layout.all_tasks(busy)

    def _look_at_guesses(self, layout: Layout, table: TableView) -> None:
        """Examines all guesses; if they are many, by reading through the table."""
        if len(layout.guesses) <= LOOKS_MAX:
            look = self._looking(layout, table)
            for partition in list(layout.guesses):
                look(partition)
            return
        cursor, order = self._decider.state.records.cursor(), layout.policy.options.row_order
        for place, buckets in enumerate(scan_partitions(cursor, table.raw_id, order, layout.version), start=1):
            if buckets[0].partition in layout.guesses:
                self._plan(layout, buckets)
            if place % PAUSE_PARTITIONS == 0:
                self._pause()
        layout.guesses.clear()  # what is left is empty by now

    def _looking(self, layout: Layout, table: TableView) -> Callable[[str], None]:
        cursor = self._decider.state.records.cursor()
        return lambda partition: self._look_again(layout, table, cursor, partition, set(), layout.version)

    def _refresh(self, table: TableView, now_us: int) -> Layout:
        """The layout at the durable version; its lock is not held."""
        meta = table.meta
        layout = self._layouts.get(meta.table_id)
        if layout is None or (layout.meta is not meta and layout.policy != policy_of(meta)):
            layout = self._layouts[meta.table_id] = Layout(meta, policy_of(meta))
        with layout.lock:
            layout.meta = meta
            version, cursor = table.head, self._decider.state.records.cursor()
            layout.ages = ages_at(cursor, table, layout.policy, now_us)
            dirty = self._dirty(layout, table, cursor, version)
            if dirty is None:
                self._look_at_all(layout, table, cursor, version)
            else:
                for partition in layout.aged():
                    dirty[partition] = set()
                    layout.looks.pop(partition, None)
                for partition, buckets in dirty.items():
                    self._look_again(layout, table, cursor, partition, buckets, version)
            layout.version = version
        return layout

    def _dirty(self, layout: Layout, table: TableView, cursor: StoreCursor, version: int) -> Dirty | None:
        """Returns the partitions that commits have changed since; None if the table must be examined as a whole."""
        if layout.version < 0 or not 0 <= version - layout.version <= limits.LAYOUT_COMMITS_MAX:
            return None
        dirty: Dirty = {}
        for each in range(layout.version + 1, version + 1):
            try:
                remembered = self._decider.state.find_footprint(table.meta.table_id, each)
                footprint = remembered or load_commit_footprint(cursor, table.raw_id, each)
            except MetaError:  # retired meanwhile
                return None
            if not layout.policy.keyed:
                for partition in footprint.partitions:
                    dirty.setdefault(partition, set()).add(0)
                continue
            for _, partition, bucket in footprint.added:
                dirty.setdefault(partition, set()).add(bucket)
            for gone in footprint.removed:
                dirty.setdefault(gone.partition, set()).add(gone.bucket)
        return dirty

    def _look_at_all(self, layout: Layout, table: TableView, cursor: StoreCursor, version: int) -> None:
        layout.clear()
        policy = layout.policy
        counted = scan_counts(cursor, table.raw_id, policy.file_bytes_target, policy.options.row_order, version)
        resting: tuple[dict[int, list[str]], ...] = tuple(defaultdict(list) for _ in Age)
        for place, (partition, held) in enumerate(counted, start=1):
            waits = _quiet(layout, held)
            if waits is None:
                layout.guess(partition, max(map(likely_score, held)))
            else:  # what is so isn't kept but read again
                for age, version in waits:
                    resting[age][version].append(partition)
            if place % PAUSE_PARTITIONS == 0:
                self._pause()
        for waiting, by_version in zip(layout.waits, resting, strict=True):
            waiting.put_all(by_version)
        heapq.heapify(layout.guessed)

    def _look_again(
        self, layout: Layout, table: TableView, cursor: StoreCursor, partition: str, buckets: set[int], version: int
    ) -> None:
        order = layout.policy.options.row_order
        held = layout.looks.get(partition)
        if held is None:
            every = scan_partitions(cursor, table.raw_id, order, version, partition=partition)
            self._plan(layout, next(every, []), partition)
            return
        for bucket in buckets:
            layout_of_bucket = read_bucket(cursor, table.raw_id, partition, bucket, order, version)
            held[bucket] = plan_bucket(layout.policy, layout.ages, layout_of_bucket)
        layout.look_at(partition, held)

    def _plan(self, layout: Layout, buckets: list[Bucket], partition: str = "") -> None:
        plans = {bucket.bucket: plan_bucket(layout.policy, layout.ages, bucket) for bucket in buckets}
        layout.look_at(buckets[0].partition if buckets else partition, plans)

    def plan_all(self, table: TableView, policy: Policy, partitions: Collection[str], busy: Busy) -> list[TaskPlan]:
        """Returns the plans of a policy for one operation, regardless of thresholds; without partitions all of them."""
        cursor, version = self._decider.state.records.cursor(), table.head
        free_plans: list[TaskPlan] = []
        order = policy.options.row_order
        for partition in partitions or (None,):
            every = scan_partitions(cursor, table.raw_id, order, version, partition=partition)
            for place, buckets in enumerate(every, start=1):
                plans = [plan_bucket(policy, Ages(), bucket) for bucket in buckets]
                tasks, _ = plan_partition(policy, Ages(), plans)
                free_plans += [task for planned in tasks if (task := free(planned, policy, busy)) is not None]
                if place % PAUSE_PARTITIONS == 0:
                    self._pause()
        return sorted(free_plans, key=by_gain)


def inherited_tasks(
    cursor: StoreCursor, table: TableView, fork: Fork, policy: Policy, partitions: Collection[str]
) -> list[TaskPlan]:
    """Major compactions of the buckets in which a clone has files of its base: old ones, or restored ones."""
    tasks: list[TaskPlan] = []
    for partition in partitions or (None,):
        for buckets in scan_partitions(cursor, table.raw_id, "", table.head, partition=partition):
            plans = [
                whole_bucket(Look(policy, Ages(), bucket), "files of the table that it was made of")
                for bucket in buckets
                if any(
                    file.added <= fork.version
                    or is_of_base(cursor, fork.raw_id, (bucket.partition, bucket.bucket), file.path)
                    for file in bucket.files
                )
            ]
            tasks += plan_partition(policy, Ages(), plans)[0]
    return tasks


def ages_at(cursor: StoreCursor, table: TableView, policy: Policy, now_us: int) -> Ages:
    """Return the version up to which entries have each age.

    Ages below trimmed versions are unknown, and above the retention.
    """
    times = keys.times_prefix(table.raw_id)
    ages: list[int] = []
    for age_us in policy.ages_us:
        if not age_us:
            ages.append(-1)
            continue
        end = keys.time_key(table.raw_id, max(now_us - age_us, 0) + 1)
        last = next(iter(islice(cursor.scan_back(times, min(end, prefix_end(times))), 1)), None)
        if last is not None:
            ages.append(keys.decode_version(last[1]))
            continue
        trimmed = table.trimmed if table.trimmed is not None else first_commit(cursor, table.raw_id)
        ages.append(trimmed - 1)
    return Ages(*ages)
