"""Buckets in which no threshold can be reached, which is most of them: decided from a few counts, not file by file."""

from __future__ import annotations

from typing import Final, NamedTuple

from metaservice.core.compaction.keyed import is_worth_settling
from metaservice.core.compaction.plans import OPEN_COST_BYTES, SETTLE_FILES, Ages, Wait
from metaservice.core.compaction.policy import Age, Policy

NEVER: Final = 2**62


class Counts(NamedTuple):
    """Counts of the live entries of a bucket.

    `is_plain`: no delete sets and no files out of order. Small files are deltas, or files below half the target size.
    """

    files: int
    small: int
    small_bytes: int
    small_oldest: int
    has_deltas: bool
    last_added: int
    is_plain: bool
    inlined_oldest: int = NEVER


def quiet_waits(policy: Policy, ages: Ages, counts: Counts) -> tuple[Wait, ...] | None:
    """What `plan_bucket` waits for, if it would find nothing else; None if counts can't tell.

    Of several waits for the same version it returns only the first: the bucket is examined then.
    """
    files, small, small_bytes, oldest, has_deltas, last_added, is_plain, inlined_oldest = counts
    if not is_plain or inlined_oldest <= ages.inlined:
        return None
    inlined: tuple[Wait, ...] = () if inlined_oldest == NEVER else ((Age.INLINED, inlined_oldest),)
    turns_base = policy.keyed and has_deltas  # a major compaction makes even a single delta a base file
    if not turns_base and (files < 2 or (small < 2 and not has_deltas)):
        return inlined
    settles = small > SETTLE_FILES or (turns_base and is_worth_settling(files, small_bytes))
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
        return ((first, oldest), (Age.SETTLE, last_added), *inlined)
    return ((first, oldest), *inlined)


def likely_score(counts: Counts) -> float:
    """The approximate score of a task: files that a scan no longer opens, per byte."""
    return (counts.files - 1) * OPEN_COST_BYTES / max(2 * counts.small_bytes, 1)
