"""Buckets that no threshold can want anything of, as most are: seen from a few counts, without a look at each file."""

from __future__ import annotations

from typing import Final, NamedTuple

from metaservice.core.compaction.keyed import is_worth_settling
from metaservice.core.compaction.plans import OPEN_COST_BYTES, SETTLE_FILES, Ages, Wait
from metaservice.core.compaction.policy import Age, Policy

NEVER: Final = 2**62


class Counts(NamedTuple):
    """What is live in a bucket; plain are those without delete sets and files out of order. The small are deltas or
    below half of the size aimed at."""

    files: int
    small: int
    small_bytes: int
    small_oldest: int
    has_deltas: bool
    last_added: int
    is_plain: bool


def quiet_waits(policy: Policy, ages: Ages, counts: Counts) -> tuple[Wait, ...] | None:
    """What `plan_bucket` waits for, where that is all it finds; None where that can't be told from counts.

    Of what waits for the same version, only what comes first: the bucket is looked at then.
    """
    files, small, small_bytes, oldest, has_deltas, last_added, is_plain = counts
    if not is_plain:
        return None
    if files < 2 or (small < 2 and not has_deltas):
        return ()
    settles = small > SETTLE_FILES or (policy.keyed and has_deltas and is_worth_settling(files, small_bytes))
    if (
        small >= policy.minor_files
        or small >= policy.cluster_files
        or small_bytes >= policy.minor_bytes
        or oldest <= ages.minor
        or oldest <= ages.major
        or oldest <= ages.cluster
        or (settles and last_added <= ages.settle)
    ):
        return None
    first = policy.first_age
    if settles:
        return ((first, oldest), (Age.SETTLE, last_added))
    return ((first, oldest),)


def likely_score(counts: Counts) -> float:
    """About what a task would bring for its bytes: files less to open."""
    return (counts.files - 1) * OPEN_COST_BYTES / max(2 * counts.small_bytes, 1)
