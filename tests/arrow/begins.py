"""Writes that are overtaken between their plan and their begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from laketx import Commit, ConflictError, Lake


@contextmanager
def before_begin(lake: Lake, rival: Callable[[], Any]) -> Iterator[None]:
    """Runs the rival once, when the write has been planned and is about to begin."""
    begin = lake.client.begin
    left = [rival]

    def later(*args: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return begin(*args, **named)

    lake.client.begin = later  # type: ignore[method-assign]
    try:
        yield
    finally:
        lake.client.begin = begin  # type: ignore[method-assign]
    assert not left, "the write began"


def winners(write: Callable[[], Commit]) -> int:
    """How many commits the write was judged against; a lost race is one."""
    try:
        return write().rebased_over
    except ConflictError:
        return 1
