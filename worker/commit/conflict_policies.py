"""What a write does after a lost race.

    fail        it raises the error
    resubmit    blind INSERTs: the same files are committed at the new head
    rerun       the whole write is done again

With nothing said a write whose changes are all blind INSERTs is resubmitted, and every other one fails. An INSERT whose
keys are unique across partitions has looked them up: in place of a resubmission it is done again.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError

OnConflict = Literal["fail", "resubmit", "rerun"]
POLICIES: Final[tuple[OnConflict, ...]] = get_args(OnConflict)
PROPERTY: Final = "write.on_conflict"
AUTO: Final = "auto"  # with this value the table leaves it to the kind of the write


def check_policy(policy: str | None, *, is_insert: bool) -> None:
    """Refuse a policy that fits no rows of such a write."""
    if policy is not None:
        _checked(policy)
    if policy == "resubmit" and not is_insert:
        _refuse_resubmit()


def named_policy(given: str | None, meta: catalog_pb2.Table) -> OnConflict | None:
    """Return the policy that the caller or the table names; None if neither does."""
    policy = given or meta.properties.get(PROPERTY, AUTO)
    return None if policy == AUTO and not given else _checked(policy)


def policy_for(
    given: str | None, meta: catalog_pb2.Table | None, *, is_blind: bool, is_repeatable: bool = False
) -> OnConflict:
    """Return a planned write's policy. `meta` is the table whose property counts; `is_blind`: all are blind INSERTs.

    `is_repeatable`: it is an INSERT that has read only where its keys live.
    """
    policy = named_policy(given, meta or catalog_pb2.Table())
    if is_repeatable and policy in (None, "resubmit"):
        return "rerun"
    if policy is None:
        return "resubmit" if is_blind else "fail"
    if policy == "resubmit" and not is_blind:
        if given:
            _refuse_resubmit()
        return "fail"
    return policy


def _checked(text: str) -> OnConflict:
    for policy in POLICIES:
        if text == policy:
            return policy
    raise InputError("POLICY_INVALID", f"on_conflict is one of {', '.join(POLICIES)}, not {text!r}")


def _refuse_resubmit() -> None:
    raise InputError(
        "POLICY_INVALID",
        "only an insert that read nothing of its table can be resubmitted: use on_conflict='rerun', or 'fail'",
    )
