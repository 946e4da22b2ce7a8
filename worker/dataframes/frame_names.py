"""Names in the plans of `table.read()`: which table and version a frame shows, where the session has no jar."""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from pyspark.sql import DataFrame

_PREFIX: Final = "_laketx_rows"
_NAMED: Final = re.compile(rf"{_PREFIX}_([0-9a-z]+)_(\d+)\b")


def named_rows(rows: DataFrame, table_id: str, version: int) -> DataFrame:
    """The rows under a name that stays in the analysed plan of whatever is made of them."""
    return rows.alias(f"{_PREFIX}_{_plain(table_id)}_{version}")


def named_reads(plan: str, table_id: str) -> list[int]:
    """The versions of the table that a plan reads."""
    return [int(version) for found, version in _NAMED.findall(plan) if found == _plain(table_id)]


def named_elsewhere(plan: str, table_id: str) -> dict[str, int]:
    """The other tables that a plan reads, and the oldest version of each."""
    found: dict[str, int] = {}
    for other, version in _NAMED.findall(plan):
        if other != _plain(table_id):
            other_id = str(UUID(other))
            found[other_id] = min(int(version), found.get(other_id, int(version)))
    return found


def _plain(table_id: str) -> str:
    return table_id.replace("-", "").lower()
