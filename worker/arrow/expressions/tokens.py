"""The tokens of plain SQL expressions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
      | (?P<hex>[xX]'[^']*')
      | (?P<text>'(?:[^'\\]|'')*')
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><=>|<>|!=|==|<=|>=|\|\||[=<>(),.+*/%-])
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)


class TokenError(ValueError):
    """A sign that no plain expression has, and its place."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a sign or a value, and its place in the text."""

    kind: str
    text: str
    begin: int
    end: int

    @property
    def word(self) -> str:
        """Return the word in upper case; empty if it is no word."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def unquoted(self) -> str:
        """Return the text without quotes."""
        if self.kind == "text":
            return self.text[1:-1].replace("''", "'")
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else f"`{self.text}`"


def tokens_of(text: str) -> list[Token]:
    """Return the tokens, and a last token for the end. Raises TokenError."""
    tokens: list[Token] = []
    at = 0
    while not tokens or tokens[-1].kind != "end":
        match = TOKEN.match(text, at)
        kind = "" if match is None else str(match.lastgroup)
        if match is None or text.startswith(("--", "/*"), match.start(kind)):
            raise TokenError(at + len(text[at:]) - len(text[at:].lstrip()))
        tokens.append(Token(kind, match[kind], match.start(kind), match.end()))
        at = match.end()
    return tokens
