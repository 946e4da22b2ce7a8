"""Bytes from outside: tokens, a provider's keys, a policy's answers, what storage says.

Whoever wrote them may be broken, or mean harm. So JSON is read within bounds of size, depth and numbers, and whatever
else goes wrong with foreign bytes is one exception, which its caller turns into a refusal. None of it may reach the
fail-stop, which is for the store and the decider.

    with foreign("the lease"):
        found = read_object(raw)
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar, get_type_hints

T = TypeVar("T")

BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 32
WHOLE_MAX: Final = (1 << 63) - 1
COUNT_MAX: Final = 1 << 62  # there is room for more
DIGITS_MAX: Final = 19
FLOAT_CHARS_MAX: Final = 64
QUOTED_CHARS_MAX: Final = 300
_STRING_OR_BRACKET: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[{\]}]', re.DOTALL)


class ForeignUnusable(ValueError):  # noqa: N818 - says what it is
    """What came from outside can't be used, and why."""


@contextmanager
def foreign(what: str) -> Iterator[None]:
    """Convert every error in the block to ForeignUnusable. Use it only around foreign bytes: no store, no decider."""
    try:
        yield
    except ForeignUnusable as error:
        raise ForeignUnusable(f"{what}: {error}"[:QUOTED_CHARS_MAX]) from error.__cause__
    except Exception as error:
        message = f"{what}: {type(error).__name__}: {error}"[:QUOTED_CHARS_MAX]
        raise ForeignUnusable(message.encode(errors="replace").decode()) from error


def read_whole(body: Any, bytes_max: int) -> bytes:
    """A body to its end, where its library says whether something is missing. Raises ForeignUnusable."""
    raw: bytes = body.read(bytes_max + 1)
    if len(raw) > bytes_max:
        raise ForeignUnusable(f"more than {bytes_max} bytes")
    return raw + bytes(body.read(1))


def read_json(raw: bytes, bytes_max: int = BYTES_MAX) -> Any:
    """Read JSON within bounds. Raises ForeignUnusable."""
    if len(raw) > bytes_max:
        raise ForeignUnusable(f"more than {bytes_max} bytes")
    with foreign("no JSON"):
        text = raw.decode("utf-8")
        _check_depth(text)
        document = json.loads(text, parse_int=_whole, parse_float=_real, parse_constant=_constant)
        if "\\u" in text:  # half of a pair, which is no text
            json.dumps(document, ensure_ascii=False).encode("utf-8")
        return document


def read_object(raw: bytes, bytes_max: int = BYTES_MAX) -> dict[str, Any]:
    """Read a JSON object within bounds. Raises ForeignUnusable."""
    document = read_json(raw, bytes_max)
    if not isinstance(document, dict):
        raise ForeignUnusable("no JSON object")
    return document


def build(kind: Callable[..., T], raw: dict[str, Any], **ready: Any) -> T:
    """Build a dataclass from a JSON object, and check the types of its fields. Raises ForeignUnusable."""
    for name, expected in _hints(kind).items():
        if name not in raw or expected not in (str, int, bool):
            continue
        given = raw[name]
        if type(given) is not expected or (expected is int and not 0 <= given <= COUNT_MAX):
            raise ForeignUnusable(f"{name} is no {expected.__name__} that can be")
    with foreign("another form"):
        return kind(**raw, **ready)


@cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _check_depth(text: str) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise ForeignUnusable(f"JSON that nests deeper than {DEPTH_MAX}")
        elif first in "]}":
            depth -= 1


def _whole(digits: str) -> int:
    number = int(digits) if len(digits.removeprefix("-")) <= DIGITS_MAX else WHOLE_MAX + 1
    if abs(number) > WHOLE_MAX:
        raise ForeignUnusable("a number of more than 64 bits")
    return number


def _real(text: str) -> float:
    number = float(text) if len(text) <= FLOAT_CHARS_MAX else math.inf
    if not math.isfinite(number):
        raise ForeignUnusable("a number that is too large, or too long")
    return number


def _constant(name: str) -> Any:
    raise ForeignUnusable(f"{name} is no number")
