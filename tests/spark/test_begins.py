"""Writes without Spark begin at the version that they were planned from, in a session too: tests/arrow/test_begins.py.

Those of the catalog begin when Spark analyses them; see test_sql_isolation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pytest

from laketx import Commit, Lake, Table
from tests.arrow.begins import before_begin, winners

Names = Callable[[], str]
ROWS: Final = pa.table({"id": [1, 2, 3], "n": [1, 2, 3]})
VERBS: Final[dict[str, Callable[[Table], Commit]]] = {
    "truncate": lambda table: table.truncate(),
    "restore": lambda table: table.restore(version=1),
    "merge": lambda table: table.merge(ROWS, on="id").when_matched_delete().execute(),
    "upsert by merge": lambda table: (
        table.merge(ROWS, on="id").when_matched_update().when_not_matched_insert().execute()
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_commits_before_the_begin_is_a_winner(lake: Lake, new_name: Names, verb: str) -> None:
    table = lake.create_table(new_name(), "id bigint, n bigint", primary_key=["id"])
    table.upsert(ROWS)
    rival = lake.table(table.name)
    with before_begin(lake, lambda: rival.upsert(ROWS)):
        assert winners(lambda: VERBS[verb](table)) == 1
