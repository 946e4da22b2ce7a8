"""Tables that a statement is making: they have a hidden name until the commit that brings their rows and their name.

Such a table goes with the transaction that fills it. A client that is killed before it begins leaves one that no
transaction belongs to; that one is dropped when nobody has begun for the length of a lease.
"""

from __future__ import annotations

import re
from typing import Final

UNBORN: Final = re.compile(r"(?:[^.]*\.)?_new_[0-9a-f]{32}\Z")


def is_unborn(name: str) -> bool:
    return UNBORN.match(name) is not None


def next_look_ms(due_ms: int | None, now_ms: int, lease_ms: int, *, is_filled: bool) -> int | None:
    """When to look at a hidden table again; None: it is abandoned.

    `due_ms` is None for one that nobody has looked at since the start, or since a pause. `is_filled`: a transaction is
    open on it.
    """
    if due_ms is None or is_filled:
        return now_ms + lease_ms
    return due_ms if now_ms < due_ms else None
