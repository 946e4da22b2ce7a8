"""Page sizes and tokens. A token is opaque, and good only for the call and the filters that it came from."""

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

Item = TypeVar("Item", bound=Message)


def fitting(items: Iterable[Item]) -> Iterator[Item]:
    """The first of them, as many as one answer holds by its bytes, at least one."""
    left = limits.ANSWER_BYTES_MAX
    for place, item in enumerate(items):
        left -= item.ByteSize()
        if left < 0 and place:
            return
        yield item


def in_parts(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """All of them, in parts that one answer holds by number and by bytes."""
    part: list[Item] = []
    left = limits.ANSWER_BYTES_MAX
    for item in items:
        size = item.ByteSize()
        if part and (len(part) == most or size > left):
            yield part
            part, left = [], limits.ANSWER_BYTES_MAX
        part.append(item)
        left -= size
    if part:
        yield part


def page_size(asked: int) -> int:
    if not 0 <= asked <= limits.PAGE_SIZE_MAX:
        raise invalid("PAGE_SIZE_INVALID", asked=asked, most=limits.PAGE_SIZE_MAX)
    return asked or limits.PAGE_SIZE_DEFAULT


def page_start(token: str) -> str:
    """Where a plain token points; empty for the first page."""
    try:
        return _decode(token).decode() if token else ""
    except UnicodeDecodeError:
        raise invalid("PAGE_TOKEN_INVALID") from None


def page_token(start: str) -> str:
    return base64.urlsafe_b64encode(start.encode()).decode()


def bound_start(token: str, call: str, *filters: str) -> bytes:
    """Where a token of this call with these filters points; empty for the first page."""
    if not token:
        return b""
    raw = _decode(token)
    if len(raw) <= _BINDING_BYTES or raw[:_BINDING_BYTES] != _binding(call, filters):
        raise invalid("PAGE_TOKEN_INVALID", "a token belongs to the call and the filters that it came from")
    return raw[_BINDING_BYTES:]


def bound_token(start: bytes, call: str, *filters: str) -> str:
    """Empty at the end."""
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
