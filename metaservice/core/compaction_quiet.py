"""Buckets that no threshold can want anything of, as most are: seen from a few counts, without a look at each file."""

from __future__ import annotations

from typing import Final, NamedTuple

from metaservice.core.plans import Ages, BucketPlan
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
    if (
        counts.small >= min(policy.minor_files, policy.cluster_files)
        or counts.small_bytes >= policy.minor_bytes
        or oldest <= max(ages.minor, ages.major, ages.cluster)
    ):
        return None
    if not (policy.keyed or policy.options.order):
        return BucketPlan(last_added=counts.last_added, waits=((Age.MINOR, oldest),))
    waits = ((Age.MINOR, oldest), (Age.MAJOR, oldest), (Age.CLUSTER, oldest))
    return BucketPlan(last_added=counts.last_added, waits=waits)
