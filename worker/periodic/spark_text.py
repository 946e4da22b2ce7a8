"""The text of a statement in Spark's SQL, with the due time of a run instead of now.

Only these words are changed: what a statement means is Spark's business, so it isn't written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlglot import Token, TokenType
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError

from worker.base.errors import InputError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
BARE: Final = frozenset({"current_timestamp", "current_date", "localtimestamp"})  # also without parentheses
CALLED: Final = frozenset({"now", "curdate", "unix_timestamp"})
NAMES_AFTER: Final = (TokenType.DOT, TokenType.ALIAS)


def timed_text(text: str, due_us: int) -> str:
    """Return the statement at a due time. Raises InputError for a text that has no end."""
    try:
        tokens = list(Spark.Tokenizer().tokenize(text))
    except TokenError as error:
        raise InputError("PERIODIC_STATEMENT_INVALID", f"the statement can't be read: {error}") from None
    parts, at = [], 0
    for begin, end, word in _words(tokens):
        parts += [text[at:begin], _literal(word, due_us)]
        at = end
    return "".join([*parts, text[at:]])


def _words(tokens: Sequence[Token]) -> Iterator[tuple[int, int, str]]:
    """The words that mean now: where they begin and end."""
    for number, token in enumerate(tokens):
        word = token.text.lower()
        is_name = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
        if is_name or word not in BARE | CALLED or (number and tokens[number - 1].token_type in NAMES_AFTER):
            continue
        kinds = [each.token_type for each in tokens[number + 1 : number + 3]]
        if kinds == [TokenType.L_PAREN, TokenType.R_PAREN]:
            yield token.start, tokens[number + 2].end + 1, word
        elif word in BARE and kinds[:1] not in ([TokenType.L_PAREN], [TokenType.DOT]):
            yield token.start, token.end + 1, word


def _literal(word: str, due_us: int) -> str:
    due = EPOCH + timedelta(microseconds=due_us)
    if word == "unix_timestamp":
        return f"{due_us // 1_000_000}L"
    if word in ("current_date", "curdate"):
        return f"DATE '{due:%Y-%m-%d}'"
    if word == "localtimestamp":
        return f"TIMESTAMP_NTZ '{due:%Y-%m-%d %H:%M:%S.%f}'"
    return f"TIMESTAMP_LTZ '{due:%Y-%m-%d %H:%M:%S.%f}Z'"
