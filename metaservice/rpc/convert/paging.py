"""Answers split by bytes, page sizes and tokens.

Lists and streams are split by a `Room`, pages and parts alike. A token is opaque, and valid only for the call and the
filters that it came from.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, TypeVar

from google.protobuf.message import Message

from metaservice.core import limits
from metaservice.core.errors import invalid

_BINDING_BYTES: Final = 6
TOKEN_CHARS_MAX: Final = 2_048

FRAME_BYTES: Final = 8  # of an item's tag and length
Item = TypeVar("Item", bound=Message | str)


class Room:
    """The remaining room of an answer. The first item always fits."""

    __slots__ = ("count", "left")

    def __init__(self, size_bytes: int = limits.ANSWER_ITEMS_BYTES_MAX) -> None:
        self.left = size_bytes
        self.count = 0

    def takes(self, size_bytes: int) -> bool:
        """Adds an item if it fits; returns whether it did."""
        left = self.left - size_bytes - FRAME_BYTES
        if left < 0 and self.count:
            return False
        self.left = left
        self.count += 1
        return True


def size_of(item: Message | str) -> int:
    return len(item.encode()) if isinstance(item, str) else item.ByteSize()


def fitting(items: Iterable[Item], room: Room | None = None) -> Iterator[Item]:
    """The first items, as many as one answer can carry by bytes, at least one."""
    room = room or Room()
    for item in items:
        if not room.takes(size_of(item)):
            return
        yield item


def in_parts(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """All items, in parts that one answer can carry by number and by bytes."""
    part: list[Item] = []
    room = Room()
    for item in items:
        size = size_of(item)
        if len(part) == most or not room.takes(size):
            yield part
            part, room = [], Room()
            room.takes(size)
        part.append(item)
    if part:
        yield part


def page_size(size: int) -> int:
    if not 0 <= size <= limits.PAGE_SIZE_MAX:
        raise invalid("PAGE_SIZE_INVALID", asked=size, most=limits.PAGE_SIZE_MAX)
    return size or limits.PAGE_SIZE_DEFAULT


def page_start(token: str) -> str:
    """The position of a plain token; empty for the first page."""
    try:
        return _decode(token).decode() if token else ""
    except UnicodeDecodeError:
        raise invalid("PAGE_TOKEN_INVALID") from None


def page_token(start: str) -> str:
    return base64.urlsafe_b64encode(start.encode()).decode()


def bound_start(token: str, call: str, *filters: str) -> bytes:
    """The position of a token of this call and these filters; empty for the first page."""
    if not token:
        return b""
    raw = _decode(token)
    if len(raw) <= _BINDING_BYTES or raw[:_BINDING_BYTES] != _binding(call, filters):
        raise invalid(
            "PAGE_TOKEN_INVALID", "the page token is from another call or other filters: start at the first page"
        )
    return raw[_BINDING_BYTES:]


def bound_token(start: bytes, call: str, *filters: str) -> str:
    """The token of the next page; empty at the end."""
    return base64.urlsafe_b64encode(_binding(call, filters) + start).decode() if start else ""


def _binding(call: str, filters: tuple[str, ...]) -> bytes:
    return blake2b("\x00".join((call, *filters)).encode(), digest_size=_BINDING_BYTES).digest()


def _decode(token: str) -> bytes:
    try:
        if len(token) > TOKEN_CHARS_MAX:
            raise ValueError(token[:16])
        return base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError, ValueError):
        raise invalid("PAGE_TOKEN_INVALID") from None
