"""Stored text for a terminal: it must not control the terminal, or change the order in which it is read.

Names, messages and values are stored as given. Control characters (C0, C1, DEL, ESC), direction characters and
characters without width are shown as their codes.
"""

from __future__ import annotations

import json
import logging
import re
from typing import Any, Final

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7e]")


def printable(text: str) -> str:
    """The text on one line, without characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def printable_lines(text: str) -> str:
    """The same line by line, for tracebacks."""
    return text if text.isprintable() else "\n".join(printable(line) for line in text.split("\n"))


def json_text(document: Any, indent: int | None = None) -> str:
    """Letters of every language as they are; what would steer a terminal in JSON's own escapes."""
    return _BEYOND_ASCII.sub(_escaped, json.dumps(document, indent=indent, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    sign = match[0]
    if sign.isprintable():
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x80 else json.dumps(sign)[1:-1]


class LineFormatter(logging.Formatter):
    """Time, level and message of what is logged on stderr."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return printable_lines(super().format(record))
