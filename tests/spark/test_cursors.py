"""Tags and cursors as users of tables see them: increments add up, and go on with a commit or not at all."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame

from laketx import InputError, Lake
from metaservice.client import AlreadyExistsError, NotFoundError, StaleError


def rows_of(frame: DataFrame, *columns: str) -> list[Any]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_a_tag_names_what_was_there(lake: Lake, new_name: Callable[[], str]) -> None:
    table = lake.create_table(new_name(), "id bigint")
    table.insert(lake.spark.range(3))
    assert table.tag("three") == table.refresh().meta.head_version
    table.truncate()
    assert rows_of(table.read(tag="three"), "id") == [(0,), (1,), (2,)]
    with table.snapshot(tag="three") as then:
        assert then.read().count() == 3
    with pytest.raises(AlreadyExistsError):
        table.tag("three")
    table.tag("three", move=True)
    assert table.read(tag="three").count() == 0
    assert table.tags() == {"three": table.refresh().meta.head_version}
    table.drop_tag("three")
    with pytest.raises(NotFoundError):
        table.read(tag="three")
    with pytest.raises(InputError, match="VERSION_AMBIGUOUS"):
        table.read(tag="three", version=1)


def test_increments_by_a_cursor_add_up(lake: Lake, new_name: Callable[[], str]) -> None:
    source = lake.create_table(new_name(), "id bigint, v bigint", primary_key=["id"], buckets=1)
    target = lake.create_table(new_name(), "id bigint, v bigint", primary_key=["id"], buckets=1)
    cursor = source.cursor("copy", version=0, keep=timedelta(days=1))
    for step in range(3):
        source.insert(lake.spark.range(step, step + 2).selectExpr("id", f"id * 10 + {step} as v"))
        rows = source.cursor("copy").changes() if step == 1 else cursor.changes()
        if step == 1:
            cursor = cursor.refresh()
            rows = cursor.changes()
        with lake.transaction("copy") as txn:
            txn.table(target.name).insert(rows.select("id", "v"))
            txn.advance(cursor)
        assert rows_of(target.read(), "id", "v") == rows_of(source.read(), "id", "v")
        assert cursor.version == source.refresh().meta.head_version
    assert cursor.changes().count() == 0
    assert cursor.advance() == source.meta.head_version


def test_a_cursor_that_another_moved_stops_the_commit(lake: Lake, new_name: Callable[[], str]) -> None:
    source, target = (lake.create_table(new_name(), "id bigint") for _ in range(2))
    mine = source.cursor("shared")
    theirs = source.cursor("shared")
    source.insert(lake.spark.range(2))
    with pytest.raises(InputError, match="CURSOR_UNREAD"):
        mine.advance()
    rows = mine.changes()
    theirs.changes()
    theirs.advance()

    def copy() -> None:
        with lake.transaction() as txn:
            txn.table(target.name).insert(rows.select("id"))
            txn.advance(mine)

    with pytest.raises(StaleError, match="CURSOR_MOVED"):
        copy()
    assert target.read().count() == 0
    assert mine.refresh().version == theirs.version
    mine.drop()
    with pytest.raises(NotFoundError, match="CURSOR_UNKNOWN"):
        theirs.refresh()
