"""Others' text on its way to a terminal: nothing in it may steer one, or change the order in which it is read.

Names, messages and values are stored as they were given. What control characters (C0, C1, DEL, ESC), signs of direction
and signs without width would do is shown as their codes instead.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Final

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7e]")


def printable(text: str) -> str:
    """On one line, and without what would steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """The same line by line: a traceback has many."""
    return text if text.isprintable() else "\n".join(printable(line) for line in text.split("\n"))


def json_text(document: Any, indent: int | None = None) -> str:
    """Letters of every language as they are; what would steer a terminal in JSON's own escapes."""
    return _BEYOND_ASCII.sub(_escaped, json.dumps(document, indent=indent, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if sign.isprintable():
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x80 else json.dumps(sign)[1:-1]


class LineFormatter(logging.Formatter):
    """Time, level and message of what is logged on stderr."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))
