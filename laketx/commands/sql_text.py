"""SQL text, cut into statements: at each `;` that stands in no text, name or comment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<raw>[rR](?:'[^']*'|"[^"]*"))            # no escapes in it
    | (?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)
    | (?P<comment>--[^\n]*)
    | (?P<open>/\*)
    | (?P<begun>['"`])                            # one that does not end
    | (?P<end>;)
    | (?P<word>\w+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_BRACKET: Final = re.compile(r"/\*|\*/")


class UnendedError(ValueError):
    """The text ends within a text, a name or a comment."""


def split(text: str) -> list[str]:
    """Return the statements without their `;`, which the last one doesn't need; comments alone are no statement."""
    statements = [statement for statement, _ in _statements(text)]
    return [statement for statement in statements if statement]


def is_complete(text: str) -> bool:
    """Return whether the text can run as it is: it ends with a `;`, or contains no statement."""
    try:
        statements = list(_statements(text))
    except UnendedError:
        return False
    return all(ended or not statement for statement, ended in statements)


def _statements(text: str) -> Iterator[tuple[str, bool]]:
    """Each with whether a `;` ended it."""
    start = at = 0
    holds = False
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        kind, at = token.lastgroup, token.end()
        if kind == "begun":
            raise UnendedError(f"the text ends before its {token[0]} is closed")
        if kind == "open":
            at = _after_comment(text, at)
        elif kind == "end":
            yield (text[start : token.start()].strip() if holds else ""), True
            start, holds = at, False
        elif kind != "comment":
            holds = holds or not token[0].isspace()
    yield (text[start:].strip() if holds else ""), False


def _after_comment(text: str, at: int) -> int:
    """Comments in brackets may hold others."""
    depth = 1
    for bracket in _BRACKET.finditer(text, at):
        depth += 1 if bracket[0] == "/*" else -1
        if not depth:
            return bracket.end()
    raise UnendedError("the text ends before its comment is closed")
