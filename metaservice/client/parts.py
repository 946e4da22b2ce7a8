"""Splits requests to the size of one message, by number and by bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

PART_BYTES: Final = 3 << 20  # of the items: the answer about them takes 4 MiB, and one item 2 at most
FRAME_BYTES: Final = 8  # of an item's tag and length

Item = TypeVar("Item", bound=Message | str)


def size_of(items: Sequence[Message | str]) -> int:
    return sum(len(item.encode()) if isinstance(item, str) else item.ByteSize() for item in items)


def in_parts(items: Sequence[Item], most: int) -> Iterator[list[Item]]:
    """All items, in their order."""
    part: list[Item] = []
    left = PART_BYTES
    for item in items:
        size = size_of([item]) + FRAME_BYTES
        if part and (len(part) == most or size > left):
            yield part
            part, left = [], PART_BYTES
        part.append(item)
        left -= size
    if part:
        yield part
