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


def check_policy(asked: str | None, *, is_insert: bool) -> None:
    """Refuses what can't be meant, whatever the rows."""
    if asked is not None:
        _known(asked)
    if asked == "resubmit" and not is_insert:
        _refuse_resubmit()


def said_policy(asked: str | None, meta: catalog_pb2.Table) -> OnConflict | None:
    """What the caller or the table says; None: neither says anything."""
    said = asked or meta.properties.get(PROPERTY, AUTO)
    return None if said == AUTO and not asked else _known(said)


def policy_for(
    asked: str | None, meta: catalog_pb2.Table | None, *, is_blind: bool, is_repeatable: bool = False
) -> OnConflict:
    """The policy of a planned write. `meta` is the table whose property counts; a blind one has blind INSERTs alone.

    `is_repeatable`: it is an INSERT that has read only where its keys live.
    """
    said = said_policy(asked, meta or catalog_pb2.Table())
    if is_repeatable and said in (None, "resubmit"):
        return "rerun"
    if said is None:
        return "resubmit" if is_blind else "fail"
    if said == "resubmit" and not is_blind:
        if asked:
            _refuse_resubmit()
        return "fail"
    return said


def _known(said: str) -> OnConflict:
    for known in POLICIES:
        if said == known:
            return known
    raise InputError("POLICY_INVALID", f"on_conflict is one of {', '.join(POLICIES)}, not {said!r}")


def _refuse_resubmit() -> None:
    raise InputError(
        "POLICY_INVALID",
        "only an insert that read nothing of its table can be resubmitted: use on_conflict='rerun', or 'fail'",
    )
