"""What is worth compacting: pure, from the live entries of a bucket to tasks.

A bucket is looked at by itself (`plan_bucket`), then the buckets of a partition together (`plan_partition`): under
`maxcompute` two tasks in one partition would make each other lose, so there is one; elsewhere there is one a bucket.

In a table with a key a minor takes a run: every file between two data versions, none of them a base file. Worked
example with `compaction.minor.files` 3, files by data version:

    b(4) d(5) d(6) d(7)       minor of d(5) d(6) d(7)
    b(4) D(5) d(6) d(7) d(8)  D is large: minor of d(6) d(7) d(8), or what is written once more each time grows
    d(3) b(4) d(5) d(6)       nothing: no run of three

What a task does makes the next plan smaller, so that plans come to an end: fewer files below the size aimed at, fewer
deltas, fewer hidden rows, fewer files out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, NamedTuple

from metaservice.core import limits
from metaservice.core.model import Operation
from metaservice.core.policy import Age, Policy

OPEN_COST_BYTES: Final = 4 << 20  # what opening a file costs a scan, in bytes read
SMALL_BYTES: Final = 1 << 20  # so little may be written again each time
GROWTH: Final = 2  # an older file is written again with newer ones that have half its bytes
MINOR, MAJOR, CLUSTER = Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER


class PlanFile(NamedTuple):
    """A live data file, as far as plans go by it."""

    path: str
    is_delta: bool
    rows: int
    size_bytes: int
    data_version: int
    added: int
    ordered: bool = True


class PlanSet(NamedTuple):
    """A live delete set."""

    rows: int
    data_version: int
    added: int
    touches: tuple[str, ...]


class Bucket(NamedTuple):
    """What is live in a bucket; of an append table, in a partition."""

    partition: str
    bucket: int
    files: Sequence[PlanFile]
    sets: Sequence[PlanSet] = ()


class Ages(NamedTuple):
    """Entries added at or before these versions are old enough; -1: none is."""

    minor: int = -1
    major: int = -1
    cluster: int = -1
    quiet: int = -1


@dataclass(frozen=True, slots=True)
class Gain:
    """What a scan saves, and what it costs to get there."""

    files_less: int
    rows_less: int
    cost_bytes: int
    row_bytes: float = 0.0

    @property
    def score(self) -> float:
        return (self.files_less * OPEN_COST_BYTES + self.rows_less * self.row_bytes) / max(self.cost_bytes, 1)

    def plus(self, other: Gain) -> Gain:
        rows = self.rows_less + other.rows_less
        saved = self.rows_less * self.row_bytes + other.rows_less * other.row_bytes
        return Gain(
            self.files_less + other.files_less, rows, self.cost_bytes + other.cost_bytes, saved / rows if rows else 0.0
        )


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Files of one bucket that are worth replacing, by data version."""

    partition: str
    bucket: int
    inputs: tuple[str, ...]
    rows: int
    size_bytes: int
    reason: str
    gain: Gain

    @property
    def place(self) -> tuple[str, int]:
        return self.partition, self.bucket


Wait = tuple[Age, int]


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """At most one of each kind; `waits` says which ages would change the plan, by the version that they must reach."""

    major: GroupPlan | None = None
    minor: GroupPlan | None = None
    cluster: GroupPlan | None = None
    last_added: int = -1
    waits: tuple[Wait, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """Work for one worker."""

    operation: Operation
    groups: tuple[GroupPlan, ...]

    @property
    def reason(self) -> str:
        more = f", and {len(self.groups) - 1} buckets more" if len(self.groups) > 1 else ""
        return self.groups[0].reason + more

    @property
    def gain(self) -> Gain:
        gain = self.groups[0].gain
        for group in self.groups[1:]:
            gain = gain.plus(group.gain)
        return gain


def plan_bucket(policy: Policy, ages: Ages, bucket: Bucket) -> BucketPlan:
    """What the policy wants of a bucket."""
    look = _Look(policy, ages, bucket)
    if len(bucket.files) + len(bucket.sets) < 2 and policy.only is None and all(file.ordered for file in bucket.files):
        return BucketPlan(last_added=look.last_added())
    return _plan_keyed(look) if policy.keyed else _plan_append(look)


def plan_partition(policy: Policy, ages: Ages, plans: Iterable[BucketPlan]) -> tuple[list[TaskPlan], list[Wait]]:
    """Tasks for a partition, and what else to wait for."""
    found = list(plans)
    quiet, waits = True, []
    if policy.by_partition and policy.only is None and policy.ages_us[Age.QUIET]:
        last_added = max((plan.last_added for plan in found), default=-1)
        quiet = last_added <= ages.quiet
        if not quiet and any(plan.major for plan in found):
            waits.append((Age.QUIET, last_added))
    if policy.only is not None:
        chosen = [(policy.only, group) for plan in found if (group := _of_kind(plan, policy.only))]
    else:
        chosen = [one for plan in found if (one := _first(plan, quiet=quiet))]
    if not policy.by_partition:
        return [TaskPlan(operation, (group,)) for operation, group in chosen], waits
    for operation in (MAJOR, MINOR, CLUSTER):
        groups = [group for kind, group in chosen if kind is operation]
        if groups:
            return [TaskPlan(operation, _bounded_groups(policy, groups))], waits
    return [], waits


def by_gain(plan: TaskPlan) -> tuple[float, str, int]:
    """Sorts the cheapest gain first, and always the same way."""
    first = plan.groups[0]
    return -plan.gain.score, first.partition, first.bucket


def _of_kind(plan: BucketPlan, operation: Operation) -> GroupPlan | None:
    return {MAJOR: plan.major, MINOR: plan.minor, CLUSTER: plan.cluster}[operation]


def _first(plan: BucketPlan, *, quiet: bool) -> tuple[Operation, GroupPlan] | None:
    if plan.major is not None and quiet:
        return MAJOR, plan.major
    if plan.minor is not None:
        return MINOR, plan.minor
    return (CLUSTER, plan.cluster) if plan.cluster is not None else None


def _bounded_groups(policy: Policy, groups: list[GroupPlan]) -> tuple[GroupPlan, ...]:
    """Those with most gain for their cost, within the bounds of a task; one at least."""
    taken: list[GroupPlan] = []
    files = size = 0
    for group in sorted(groups, key=lambda one: (-one.gain.score, one.bucket)):
        files += len(group.inputs)
        size += group.size_bytes
        if taken and (files > policy.task_files or size > policy.task_bytes):
            break
        taken.append(group)
    return tuple(taken)


# -- one bucket ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Look:
    """A bucket under a policy, with what the looks at it share."""

    policy: Policy
    ages: Ages
    bucket: Bucket

    @property
    def only(self) -> Operation | None:
        return self.policy.only

    def is_full(self, size_bytes: int) -> bool:
        return size_bytes >= self.policy.file_bytes_target

    def is_small(self, file: PlanFile) -> bool:
        return file.size_bytes * 2 < self.policy.file_bytes_target

    def outputs(self, size_bytes: int) -> int:
        return max(1, -(-size_bytes // self.policy.file_bytes_target))

    def group(
        self, files: Sequence[PlanFile], reason: str, rows_less: int = 0, outputs: int | None = None
    ) -> GroupPlan:
        size = sum(file.size_bytes for file in files)
        rows = sum(file.rows for file in files)
        less = max(len(files) - (self.outputs(size) if outputs is None else outputs), 0)
        paths = tuple(file.path for file in sorted(files, key=attrgetter("data_version", "path")))
        gain = Gain(less, rows_less, 2 * size, size / rows if rows else 0.0)
        return GroupPlan(self.bucket.partition, self.bucket.bucket, paths, rows, size, reason, gain)

    def fits(self, files: Sequence[PlanFile], *, whole: bool) -> bool:
        """Whether one task may read them; what can only be taken whole may go beyond the policy, not the limit."""
        if len(files) > limits.TASK_FILES_MAX:
            return False
        within = len(files) <= self.policy.task_files
        return whole or (within and sum(file.size_bytes for file in files) <= self.policy.task_bytes)

    def last_added(self) -> int:
        return max([file.added for file in self.bucket.files] + [one.added for one in self.bucket.sets], default=-1)


def _is_old(look: _Look, age: Age, version: int) -> bool:
    return look.only is not None or version <= look.ages[age]


def _by_version(files: Iterable[PlanFile]) -> list[list[PlanFile]]:
    """Files of one data version belong together."""
    found: dict[int, list[PlanFile]] = {}
    for file in sorted(files, key=attrgetter("data_version")):
        found.setdefault(file.data_version, []).append(file)
    return list(found.values())


def _segments(look: _Look, belongs: Callable[[list[PlanFile]], bool]) -> list[list[list[PlanFile]]]:
    """Stretches of data versions all of whose files belong."""
    segments: list[list[list[PlanFile]]] = [[]]
    for group in _by_version(look.bucket.files):
        if belongs(group):
            segments[-1].append(group)
        elif segments[-1]:
            segments.append([])
    return [segment for segment in segments if segment]


def _flat(groups: Iterable[Sequence[PlanFile]]) -> list[PlanFile]:
    return [file for group in groups for file in group]


def _size(files: Iterable[PlanFile]) -> int:
    return sum(file.size_bytes for file in files)


def _oldest(files: Iterable[PlanFile]) -> int:
    return min(file.added for file in files)


# -- tables with a key -----------------------------------------------------------------------------------------------


def _plan_keyed(look: _Look) -> BucketPlan:
    waits: list[Wait] = []
    minor = _keyed_minor(look, waits)
    major = _keyed_major(look, minor, waits)
    cluster = _keyed_cluster(look, waits)
    return BucketPlan(major, minor, cluster, look.last_added(), tuple(waits))


def _keyed_minor(look: _Look, waits: list[Wait]) -> GroupPlan | None:
    def is_run(group: list[PlanFile]) -> bool:
        return all(file.is_delta for file in group) and not look.is_full(_size(group))

    best: GroupPlan | None = None
    for segment in _segments(look, is_run):
        found = _run_of(look, segment, waits)
        if found is not None and (best is None or found.gain.files_less > best.gain.files_less):
            best = found
    return best


def _run_of(look: _Look, segment: list[list[PlanFile]], waits: list[Wait]) -> GroupPlan | None:
    """The part of a stretch of deltas that is worth one file."""
    policy, everything = look.policy, _flat(segment)
    if len(everything) < 2:
        return None
    newest = _newest(segment)
    run, reason = segment, f"{len(everything)} delta files"
    if sum(map(len, newest)) >= policy.minor_files:
        run, reason = newest, f"{sum(map(len, newest))} delta files"
    elif len(everything) >= policy.minor_files:
        pass
    elif sum(map(len, newest)) >= 2 and _size(_flat(newest)) >= policy.minor_bytes:
        run, reason = newest, f"{_size(_flat(newest))} bytes of delta files"
    elif _is_old(look, Age.MINOR, _oldest(everything)):
        reason = f"{len(everything)} delta files, the oldest of age"
    else:
        waits.append((Age.MINOR, _oldest(everything)))
        return None
    files = _within_bounds(look, run)
    return look.group(files, reason, outputs=1) if len(files) > 1 else None


def _newest(segment: list[list[PlanFile]]) -> list[list[PlanFile]]:
    """From the newest back, as long as what is older is not much larger than all that is newer."""
    taken: list[list[PlanFile]] = []
    size = 0
    for group in reversed(segment):
        group_bytes = _size(group)
        if taken and group_bytes > max(SMALL_BYTES, GROWTH * size):
            break
        taken.append(group)
        size += group_bytes
    return taken[::-1]


def _within_bounds(look: _Look, run: list[list[PlanFile]]) -> list[PlanFile]:
    """The newest of a run, in whole data versions; none where even the newest is too much for any task."""
    taken: list[PlanFile] = []
    for group in reversed(run):
        if not look.fits([*taken, *group], whole=len(taken) < 2):
            break
        taken += group
    return taken


def _keyed_major(look: _Look, minor: GroupPlan | None, waits: list[Wait]) -> GroupPlan | None:
    policy, files = look.policy, look.bucket.files
    deltas = [file for file in files if file.is_delta]
    if not look.fits(files, whole=True):
        return None
    if not deltas:
        merges = look.only is MAJOR and len(files) > look.outputs(_size(files))
        return look.group(files, f"{len(files)} base files") if merges else None
    bases = [file for file in files if not file.is_delta]
    share = max(_percent(_size(deltas), _size(bases)), _percent(_rows(deltas), _rows(bases)))
    rows = _rows(deltas)
    due = minor is not None or len(deltas) >= policy.minor_files or _size(deltas) >= policy.minor_bytes
    if due and share >= policy.major_percent:
        of_base = f"{share} % of the base files" if bases else "no base file"
        return look.group(files, f"{len(deltas)} delta files, {of_base}", rows)
    if _is_old(look, Age.MAJOR, _oldest(deltas)):
        return look.group(files, f"{len(deltas)} delta files, the oldest of age", rows)
    waits.append((Age.MAJOR, _oldest(deltas)))
    return None


def _keyed_cluster(look: _Look, waits: list[Wait]) -> GroupPlan | None:
    def is_base(group: list[PlanFile]) -> bool:
        return not any(file.is_delta for file in group)

    for segment in _segments(look, is_base):
        small = [file for file in _flat(segment) if look.is_small(file)]
        if len(small) < 2:
            continue
        versions = {file.data_version for file in small}
        low, high = min(versions), max(versions)
        run = [file for file in _flat(segment) if low <= file.data_version <= high]
        if len(run) <= look.outputs(_size(run)) or not look.fits(run, whole=low == high):
            continue
        if len(small) >= look.policy.cluster_files or _is_old(look, Age.CLUSTER, _oldest(small)):
            return look.group(run, f"{len(small)} small base files")
        waits.append((Age.CLUSTER, _oldest(small)))
    return None


def _rows(files: Iterable[PlanFile]) -> int:
    return sum(file.rows for file in files)


def _percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 1_000_000


# -- append tables ---------------------------------------------------------------------------------------------------


def _plan_append(look: _Look) -> BucketPlan:
    waits: list[Wait] = []
    major, minor = _append_hidden(look, waits)
    if look.policy.options.order and look.only is not MINOR:
        cluster = _append_cluster(look, waits)
    else:
        cluster = None
        minor = minor or _append_small(look, waits)
        if look.only is CLUSTER and minor is not None:
            minor, cluster = None, minor
    return BucketPlan(major, minor, cluster, look.last_added(), tuple(waits))


def hidden_rows(bucket: Bucket) -> dict[str, float]:
    """How many rows of each file are hidden: what a delete set hides is spread over the files that it touches."""
    found: dict[str, float] = {}
    by_path = {file.path: file for file in bucket.files}
    for one in bucket.sets:
        named = [by_path[path] for path in one.touches if path in by_path] if one.touches else bucket.files
        touched = [file for file in named if file.data_version < one.data_version and file.rows]
        rows = _rows(touched)
        for file in touched:
            found[file.path] = min(found.get(file.path, 0.0) + one.rows * file.rows / rows, file.rows)
    return found


def _append_hidden(look: _Look, waits: list[Wait]) -> tuple[GroupPlan | None, GroupPlan | None]:
    """A major where many rows are hidden; and a minor of the files that they are in, for where there can't be one."""
    policy, files = look.policy, look.bucket.files
    hidden = hidden_rows(look.bucket)
    gone = int(sum(hidden.values()))
    if not hidden:
        wanted = look.only is MAJOR and len(files) > look.outputs(_size(files)) and look.fits(files, whole=True)
        return (look.group(files, f"{len(files)} files") if wanted else None), None
    share = _percent(gone, _rows(files))
    oldest = min(one.added for one in look.bucket.sets)
    if share >= policy.major_percent:
        reason = f"{share} % of the rows are hidden"
    elif _is_old(look, Age.MAJOR, oldest):
        reason = f"{gone} hidden rows, the oldest of age"
    else:
        waits.append((Age.MAJOR, oldest))
        return None, None
    major = look.group(files, reason, gone) if look.fits(files, whole=look.only is MAJOR) else None
    touched = sorted((file for file in files if file.path in hidden), key=lambda file: -hidden[file.path] / file.rows)
    taken = _first_within(look, touched)
    minor = look.group(taken, reason, int(sum(hidden[file.path] for file in taken))) if taken else None
    return major, minor


def _first_within(look: _Look, files: Iterable[PlanFile]) -> list[PlanFile]:
    taken: list[PlanFile] = []
    for file in files:
        if not look.fits([*taken, file], whole=not taken):
            break
        taken.append(file)
    return taken


def _append_small(look: _Look, waits: list[Wait]) -> GroupPlan | None:
    policy = look.policy
    small = sorted((file for file in look.bucket.files if look.is_small(file)), key=attrgetter("size_bytes", "path"))
    if len(small) < 2:
        return None
    tiers = _tiers(small)
    largest = max(tiers, key=len)
    if len(largest) >= policy.minor_files or (len(largest) > 1 and _size(largest) >= policy.minor_bytes):
        chosen, reason = largest, f"{len(largest)} small files"
    elif len(small) >= 2 * policy.minor_files:
        chosen, reason = small, f"{len(small)} small files"
    elif _is_old(look, Age.MINOR, _oldest(small)):
        chosen, reason = small, f"{len(small)} small files, the oldest of age"
    else:
        waits.append((Age.MINOR, _oldest(small)))
        return None
    taken = _first_within(look, chosen)
    return look.group(taken, reason) if len(taken) > look.outputs(_size(taken)) else None


def _tiers(small: Sequence[PlanFile]) -> list[list[PlanFile]]:
    """Files of like size: what is small isn't written again and again with what is large."""
    tiers: list[list[PlanFile]] = [[]]
    size = 0
    for file in small:
        if tiers[-1] and file.size_bytes > max(SMALL_BYTES, GROWTH * size):
            tiers.append([])
            size = 0
        tiers[-1].append(file)
        size += file.size_bytes
    return tiers


def _append_cluster(look: _Look, waits: list[Wait]) -> GroupPlan | None:
    """Files out of order, and small ones with them."""
    files = look.bucket.files
    astray = [file for file in files if not file.ordered]
    small = [file for file in files if file.ordered and look.is_small(file)]
    chosen = sorted(astray, key=attrgetter("added", "path")) + sorted(small, key=attrgetter("size_bytes", "path"))
    if not astray and len(small) < 2:
        return None
    reason = f"{len(astray)} files out of order" if astray else f"{len(small)} small files"
    if max(len(astray), len(small)) < look.policy.cluster_files and not _is_old(look, Age.CLUSTER, _oldest(chosen)):
        waits.append((Age.CLUSTER, _oldest(chosen)))
        return None
    taken = _first_within(look, chosen)
    if not astray and len(taken) <= look.outputs(_size(taken)):
        return None
    return look.group(taken, reason)


def without(plan: TaskPlan, busy: Callable[[str, int], bool]) -> TaskPlan | None:
    """The part of a plan that nobody works on."""
    groups = tuple(group for group in plan.groups if not busy(group.partition, group.bucket))
    return replace(plan, groups=groups) if groups else None
