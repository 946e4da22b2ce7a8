"""The parts of plans: files and buckets as the planner sees them, groups, tasks, and their benefit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from metaservice.core import limits
from metaservice.core.compaction.policy import Age, Policy
from metaservice.core.table.model import Group, Operation

OPEN_COST_BYTES: Final = 4 << 20  # what opening a file costs a scan, in bytes read
SMALL_BYTES: Final = 1 << 20  # so little may be written again each time
GROWTH: Final = 2  # an older file is written again with newer ones that have half its bytes
SETTLE_BYTES: Final = 32 << 20  # the same for buckets that are no longer written to
SETTLE_GROWTH: Final = 8
SETTLE_FILES: Final = 3  # that many small ones may stay
MINOR, MAJOR, CLUSTER = Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER


class PlanFile(NamedTuple):
    """A live data file, with the facts that planning needs."""

    path: str
    is_delta: bool
    rows: int
    size_bytes: int
    data_version: int
    added: int
    ordered: bool = True
    inlined: bool = False


class PlanSet(NamedTuple):
    """A live delete set."""

    rows: int
    data_version: int
    added: int
    touches: tuple[str, ...]


class Bucket(NamedTuple):
    """The live entries of a bucket; in an append table, of a partition."""

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
    settle: int = -1
    inlined: int = -1


@dataclass(frozen=True, slots=True)
class Gain:
    """What a scan saves, and what the task costs."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan(Group):
    """A group that is worth it, and why; its inputs by data version."""

    reason: str
    gain: Gain


Wait = tuple[Age, int]


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """At most one group of each kind.

    `waits`: the ages that would change the plan, by the version that they must reach.
    """

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


@dataclass(slots=True)
class Look:
    """A bucket under a policy, with what the looks at it share."""

    policy: Policy
    ages: Ages
    bucket: Bucket

    @property
    def only(self) -> Operation | None:
        return self.policy.only

    @property
    def is_settled(self) -> bool:
        """Whether the bucket has had no commit for long enough for cheap merges below the thresholds."""
        return self.only is None and self.last_added() <= self.ages.settle

    def settling(self) -> list[Wait]:
        """What to wait for, if the bucket can be merged once nothing is written to it."""
        return [] if self.is_settled else [(Age.SETTLE, self.last_added())]

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
        return GroupPlan(
            partition=self.bucket.partition,
            bucket=self.bucket.bucket,
            inputs=paths,
            rows=rows,
            size_bytes=size,
            reason=reason,
            gain=gain,
        )

    def fits(self, files: Sequence[PlanFile], *, whole: bool) -> bool:
        return self.has_room(len(files), size_of(files), whole=whole)

    def has_room(self, files: int, size_bytes: int, *, whole: bool) -> bool:
        """Whether one task may read the files; a bucket that can't be split may exceed the policy, not the limit."""
        if files > limits.TASK_FILES_MAX:
            return False
        return whole or (files <= self.policy.task_files and size_bytes <= self.policy.task_bytes)

    def last_added(self) -> int:
        return max(
            [file.added for file in self.bucket.files] + [delete_set.added for delete_set in self.bucket.sets],
            default=-1,
        )


def whole_bucket(look: Look, reason: str) -> BucketPlan:
    """All of a bucket, whether or not it becomes less."""
    return BucketPlan(look.group(look.bucket.files, reason))


def is_old(look: Look, age: Age, version: int) -> bool:
    return look.only is not None or version <= look.ages[age]


def is_much(size_bytes: int, others: int, *, settled: bool) -> bool:
    """Whether an older file is too large to be rewritten with `others` bytes of newer files."""
    return size_bytes > (max(SETTLE_BYTES, SETTLE_GROWTH * others) if settled else max(SMALL_BYTES, GROWTH * others))


def by_version(files: Iterable[PlanFile]) -> list[list[PlanFile]]:
    """Group the files by data version, which belong together."""
    groups: dict[int, list[PlanFile]] = {}
    for file in sorted(files, key=attrgetter("data_version")):
        groups.setdefault(file.data_version, []).append(file)
    return list(groups.values())


def segments_of(look: Look, belongs: Callable[[list[PlanFile]], bool]) -> list[list[list[PlanFile]]]:
    """Sequences of data versions of which all files qualify."""
    segments: list[list[list[PlanFile]]] = [[]]
    for group in by_version(look.bucket.files):
        if belongs(group):
            segments[-1].append(group)
        elif segments[-1]:
            segments.append([])
    return [segment for segment in segments if segment]


def flat(groups: Iterable[Sequence[PlanFile]]) -> list[PlanFile]:
    return [file for group in groups for file in group]


def size_of(files: Iterable[PlanFile]) -> int:
    return sum(file.size_bytes for file in files)


def oldest_of(files: Iterable[PlanFile]) -> int:
    return min(file.added for file in files)


def rows_of(files: Iterable[PlanFile]) -> int:
    return sum(file.rows for file in files)


def percent(part: int, whole: int) -> int:
    return 100 * part // whole if whole else 1_000_000


def due_inlined(look: Look, waits: list[Wait]) -> list[PlanFile]:
    """Inlined files, if they are to be written out now, however few they are."""
    inlined = [file for file in look.bucket.files if file.inlined]
    if inlined and not is_old(look, Age.INLINED, oldest_of(inlined)):
        waits.append((Age.INLINED, oldest_of(inlined)))
        return []
    return inlined
