"""The forms of properties whose values are more than a word or a number."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from metaservice.core.limits import ORDER_COLUMNS_MAX
from metaservice.shared.column_lists import LISTED_NAME, column_list, parse_column_list

_ROW_ORDER: Final = re.compile(rf"(sort|zorder)\(({LISTED_NAME}(?:,{LISTED_NAME})*)\)\Z")


def parse_row_order(text: str) -> tuple[str, tuple[str, ...]]:
    """ "sort" or "zorder" with its columns; both empty where rows lie as they come. Raises ValueError.

    A name with a comma, a bracket or a backtick in it stands in backticks.
    """
    if not text.strip():
        return "", ()
    match = _ROW_ORDER.match(text.strip())
    columns = parse_column_list(match[2]) if match else ()
    if match is None or not columns or len(columns) > ORDER_COLUMNS_MAX:
        raise ValueError(text)
    return match[1], columns


def row_order(kind: str, columns: Sequence[str]) -> str:
    """The text of this order; empty without columns."""
    return f"{kind}({column_list(columns)})" if columns else ""


def is_row_order(text: str) -> bool:
    try:
        parse_row_order(text)
    except ValueError:
        return False
    return True


def is_column_list(text: str) -> bool:
    try:
        parse_column_list(text)
    except ValueError:
        return False
    return True


def parse_checks(text: str) -> tuple[str, ...]:
    """The queries of `merge.checks`. Raises ValueError."""
    if not text.strip():
        return ()
    if not text.lstrip().startswith("["):
        return (text.strip(),)
    checks = json.loads(text)
    if not all(isinstance(check, str) and check.strip() for check in checks):
        raise ValueError(text)
    return tuple(check.strip() for check in checks)


def is_checks(text: str) -> bool:
    try:
        parse_checks(text)
    except (ValueError, RecursionError):
        return False
    return True
