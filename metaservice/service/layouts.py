"""What the policies want of each table, kept up with its commits: looked at as a whole once, then where it changed.

Any thread may ask; a table's layout has a lock of its own. A partition is looked at again when a commit touched it, and
when an entry reaches an age that its plan waits for. Plans that nobody took yet are ranked, best first.

A layout goes by what its cursor sees, and a task is looked at again when it is handed out: nothing here has to be
exact.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from metaservice.core import limits
from metaservice.core.compaction import by_gain, plan_bucket, plan_partition, without
from metaservice.core.compaction_quiet import NEVER, quiet_plan
from metaservice.core.errors import MetaError
from metaservice.core.model import Operation, TableMeta
from metaservice.core.plans import Ages, Bucket, BucketPlan, TaskPlan
from metaservice.core.policy import Age, Options, Policy, policy_of
from metaservice.service.decider import Decider
from metaservice.service.state import TableState, load_commit_footprint
from metaservice.store import keys
from metaservice.store.layout import bucket_of, count_entries, read_bucket, scan_entries, scan_partitions
from metaservice.store.port import Cursor, prefix_end

PAUSE_PARTITIONS = 1_000
Dirty = dict[str, set[int]]
AGES = tuple(Age)
Busy = Collection[tuple[str, int]]


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
    serials: dict[str, int] = field(default_factory=dict)
    waiting: tuple[dict[str, int], ...] = field(default_factory=lambda: tuple({} for _ in Age))
    heaps: tuple[list[tuple[int, str]], ...] = field(default_factory=lambda: tuple([] for _ in Age))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def look_at(self, partition: str, plans: dict[int, BucketPlan]) -> None:
        """Note what is wanted of a partition."""
        tasks, waits = plan_partition(self.policy, self.ages, plans.values())
        for plan in plans.values():
            waits += plan.waits
        first: dict[Age, int] = {}
        for age, version in waits:
            first[age] = min(version, first.get(age, version))
        for age, waiting in zip(AGES, self.waiting, strict=True):
            if age not in first:
                waiting.pop(partition, None)
            elif waiting.get(partition) != first[age]:
                waiting[partition] = first[age]
                heapq.heappush(self.heaps[age], (first[age], partition))
        if tasks or waits:
            self.looks[partition] = plans
        else:
            self.looks.pop(partition, None)
        if tasks or partition in self.tasks:
            self._rank(partition, tasks)

    def rest(self, partition: str, plans: Iterable[BucketPlan]) -> None:
        """Note that nothing is due in a partition that wasn't looked at yet. What is so isn't kept but read again."""
        for plan in plans:
            for age, version in plan.waits:
                waiting = self.waiting[age]
                if version < waiting.get(partition, NEVER):
                    waiting[partition] = version
                    heapq.heappush(self.heaps[age], (version, partition))

    def _rank(self, partition: str, tasks: list[TaskPlan]) -> None:
        self.serials[partition] = self.serials.get(partition, 0) + 1
        if tasks:
            self.tasks[partition] = tasks
        else:
            self.tasks.pop(partition, None)
        for place, task in enumerate(tasks):
            heapq.heappush(self.ranking, (-task.gain.score, partition, self.serials[partition], place))

    def aged(self) -> set[str]:
        """Partitions in which something has come of age."""
        found: set[str] = set()
        for age in Age:
            heap, waiting = self.heaps[age], self.waiting[age]
            while heap and heap[0][0] <= self.ages[age]:
                version, partition = heapq.heappop(heap)
                if waiting.get(partition) == version:
                    del waiting[partition]
                    found.add(partition)
        return found

    def best(self, count: int, busy: Busy) -> list[TaskPlan]:
        """The best plans that nobody works on."""
        found: list[TaskPlan] = []
        seen: list[tuple[float, str, int, int]] = []
        while self.ranking and len(found) < count:
            rank = heapq.heappop(self.ranking)
            _, partition, serial, place = rank
            if self.serials.get(partition) != serial:
                continue
            seen.append(rank)
            task = free(self.tasks[partition][place], self.policy, busy)
            if task is not None:
                found.append(task)
        for rank in seen:
            heapq.heappush(self.ranking, rank)
        return found

    def all_tasks(self, busy: Busy) -> list[TaskPlan]:
        found = (free(task, self.policy, busy) for tasks in self.tasks.values() for task in tasks)
        return sorted((task for task in found if task is not None), key=by_gain)


def free(plan: TaskPlan, policy: Policy, busy: Busy) -> TaskPlan | None:
    """What of a plan nobody works on."""
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

    def known(self) -> list[str]:
        return list(self._layouts)

    def find(self, table_id: str) -> Layout | None:
        return self._layouts.get(table_id)

    def refresh(self, table: TableState, now_us: int) -> Layout:
        """The layout at what is durable; its lock is not held."""
        meta = table.durable_meta or table.meta
        layout = self._layouts.get(meta.table_id)
        if layout is None or (layout.meta is not meta and layout.policy != policy_of(meta)):
            layout = self._layouts[meta.table_id] = Layout(meta, policy_of(meta))
        with layout.lock:
            layout.meta = meta
            version, cursor = table.durable, self._decider.state.store.cursor()
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

    def _dirty(self, layout: Layout, table: TableState, cursor: Cursor, version: int) -> Dirty | None:
        """Where commits changed something since; None where the table has to be looked at as a whole."""
        if layout.version < 0 or not 0 <= version - layout.version <= limits.LAYOUT_COMMITS_MAX:
            return None
        found: Dirty = {}
        for each in range(layout.version + 1, version + 1):
            try:
                footprint = table.footprints.get(each) or load_commit_footprint(cursor, table.raw_id, each)
            except MetaError:  # retired meanwhile
                return None
            if not layout.policy.keyed:
                for partition in footprint.partitions:
                    found.setdefault(partition, set()).add(0)
                continue
            for _, partition, bucket in footprint.added:
                found.setdefault(partition, set()).add(bucket)
            for gone in footprint.removed:
                found.setdefault(gone.partition, set()).add(gone.bucket)
        return found

    def _look_at_all(self, layout: Layout, table: TableState, cursor: Cursor, version: int) -> None:
        layout.looks.clear()
        layout.tasks.clear()
        layout.ranking.clear()
        for age in Age:
            layout.waiting[age].clear()
            layout.heaps[age].clear()
        policy, ages = layout.policy, layout.ages
        order, file_bytes = policy.options.row_order, policy.file_bytes_target
        found = scan_entries(cursor, table.raw_id, every=bool(order))
        for place, (partition, held) in enumerate(found, start=1):
            plans: dict[int, BucketPlan] = {}
            is_quiet = True
            for bucket, entries in held:
                counts = count_entries(entries, file_bytes, order, version)
                plan = quiet_plan(policy, ages, counts) if counts is not None else None
                if plan is None:
                    is_quiet = False
                    plan = plan_bucket(policy, ages, bucket_of(partition, bucket, entries, order, version))
                plans[bucket] = plan
            if is_quiet:
                layout.rest(partition, plans.values())
            else:
                layout.look_at(partition, plans)
            if place % PAUSE_PARTITIONS == 0:
                self._pause()

    def _look_again(
        self, layout: Layout, table: TableState, cursor: Cursor, partition: str, buckets: set[int], version: int
    ) -> None:
        order = layout.policy.options.row_order
        held = layout.looks.get(partition)
        if held is None:
            every = scan_partitions(cursor, table.raw_id, order, version, partition=partition)
            self._plan(layout, next(every, []), partition)
            return
        for bucket in buckets:
            found = read_bucket(cursor, table.raw_id, partition, bucket, order, version)
            held[bucket] = plan_bucket(layout.policy, layout.ages, found)
        layout.look_at(partition, held)

    def _plan(self, layout: Layout, buckets: list[Bucket], partition: str = "") -> None:
        plans = {one.bucket: plan_bucket(layout.policy, layout.ages, one) for one in buckets}
        layout.look_at(buckets[0].partition if buckets else partition, plans)

    def wanted(
        self, table: TableState, operation: Operation, partitions: Collection[str], busy: Busy, options: Options | None
    ) -> list[TaskPlan]:
        """What an operator gets who wants an operation now, whatever the thresholds; no partitions: all of them."""
        policy = policy_of(table.durable_meta or table.meta).wanting(operation, options)
        cursor, version = self._decider.state.store.cursor(), table.durable
        found: list[TaskPlan] = []
        order = policy.options.row_order
        for partition in partitions or (None,):
            every = scan_partitions(cursor, table.raw_id, order, version, partition=partition)
            for place, buckets in enumerate(every, start=1):
                plans = [plan_bucket(policy, Ages(), bucket) for bucket in buckets]
                tasks, _ = plan_partition(policy, Ages(), plans)
                found += [task for one in tasks if (task := free(one, policy, busy)) is not None]
                if place % PAUSE_PARTITIONS == 0:
                    self._pause()
        return sorted(found, key=by_gain)


def ages_at(cursor: Cursor, table: TableState, policy: Policy, now_us: int) -> Ages:
    """Up to which version entries are of each age. Below what is trimmed nobody knows: that is older than retention."""
    times = keys.times_prefix(table.raw_id)
    found: list[int] = []
    for age_us in policy.ages_us:
        if not age_us:
            found.append(-1)
            continue
        end = keys.time_key(table.raw_id, max(now_us - age_us, 0) + 1)
        last = next(iter(islice(cursor.scan_back(times, min(end, prefix_end(times))), 1)), None)
        found.append(keys.decode_version(last[1]) if last is not None else table.trimmed - 1)
    return Ages(*found)
