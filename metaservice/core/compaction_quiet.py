"""Buckets that no threshold can want anything of, as most are: seen from a few counts, without a look at each file."""

from __future__ import annotations

from typing import Final, NamedTuple

from metaservice.core.compaction_keyed import is_worth_settling
from metaservice.core.plans import SETTLE_FILES, Ages, BucketPlan, Wait
from metaservice.core.policy import Age, Policy

NEVER: Final = 2**62


class Counts(NamedTuple):
    """What is live in a bucket that has no delete sets and no files out of order; the small are deltas or below half
    of the size aimed at."""

    files: int
    small: int
    small_bytes: int
    small_oldest: int
    has_deltas: bool
    last_added: int


def quiet_plan(policy: Policy, ages: Ages, counts: Counts) -> BucketPlan | None:
    """What `plan_bucket` finds, where that is nothing; None where it isn't plain. It may wait for more than needed."""
    if counts.files < 2 or (counts.small < 2 and not counts.has_deltas):
        return BucketPlan(last_added=counts.last_added)
    oldest = counts.small_oldest
    settles = counts.small > SETTLE_FILES or (
        policy.keyed and counts.has_deltas and is_worth_settling(counts.files, counts.small_bytes)
    )
    if (
        counts.small >= min(policy.minor_files, policy.cluster_files)
        or counts.small_bytes >= policy.minor_bytes
        or oldest <= max(ages.minor, ages.major, ages.cluster)
        or (settles and counts.last_added <= ages.settle)
    ):
        return None
    waits: tuple[Wait, ...] = ((Age.MINOR, oldest),)
    if policy.keyed or policy.options.order:
        waits = (*waits, (Age.MAJOR, oldest), (Age.CLUSTER, oldest))
    if settles:
        waits = (*waits, (Age.SETTLE, counts.last_added))
    return BucketPlan(last_added=counts.last_added, waits=waits)
