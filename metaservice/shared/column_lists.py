"""Columns listed in a property: `email, session_id`.

A name with a comma, a bracket or a backtick stands in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LISTED_NAME: Final = r"\s*(?:`(?:[^`\x00-\x1f]|``)+`|[^(),`\x00-\x1f]+)\s*"
_LIST: Final = re.compile(rf"{LISTED_NAME}(?:,{LISTED_NAME})*\Z")
_PLAIN: Final = re.compile(r"[^(),`\x00-\x1f\s](?:[^(),`\x00-\x1f]*[^(),`\x00-\x1f\s])?\Z")


def parse_column_list(text: str) -> tuple[str, ...]:
    """The names in the list, none twice; none in an empty one. Raises ValueError."""
    if not text.strip():
        return ()
    names = tuple(_name(part.strip()) for part in re.findall(LISTED_NAME, text)) if _LIST.match(text) else ()
    if not names or not all(names) or len({name.lower() for name in names}) < len(names):
        raise ValueError(text)
    return names


def column_list(names: Sequence[str]) -> str:
    """The text of these names."""
    return ", ".join(name if _PLAIN.match(name) else "`" + name.replace("`", "``") + "`" for name in names)


def _name(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text
