"""A write begins at the version that it was planned from: what commits between plan and begin is a winner.

A rival commits at the latest moment before the begin reaches the service, or while the write reads its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

from laketx import Commit, ConflictError, Lake, Table, connect
from metaservice.client import ErrorKind, GoneError, add_column
from tests.arrow.begins import before_begin, winners

COLUMNS: Final = "id bigint, n bigint"
ROWS: Final = pa.table({"id": [1, 2, 3], "n": [1, 2, 3]})
MANY: Final = pa.table({"id": range(2_000), "n": range(2_000)})  # too many for one call


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("begins")) as made:
        yield made


def made(lake: Lake, name: str, *, keyed: bool, profile: str = "maxcompute") -> Table:
    table = lake.create_table(name, COLUMNS, primary_key=["id"] if keyed else [], profile=profile)
    table.overwrite(ROWS)
    return table


def streamed(rows: pa.Table, meanwhile: Callable[[], Any]) -> pa.RecordBatchReader:
    """A source that takes its time: something happens before its rows come."""

    def batches() -> Iterator[pa.RecordBatch]:
        meanwhile()
        yield from rows.to_batches()

    return pa.RecordBatchReader.from_batches(rows.schema, batches())


KEYED: Final[dict[str, Callable[[Table], Commit]]] = {
    "upsert": lambda table: table.upsert(MANY, on_conflict="fail"),
    "overwrite": lambda table: table.overwrite(MANY),
    "delete by keys": lambda table: table.delete(keys=[1]),
    "delete": lambda table: table.delete("id = 1"),
}
PLAIN: Final[dict[str, Callable[[Table], Commit]]] = {
    "append": lambda table: table.append(MANY, on_conflict="fail"),
    "overwrite": lambda table: table.overwrite(MANY),
    "delete": lambda table: table.delete("id = 1"),
}


@pytest.mark.parametrize(("keyed", "verb"), [*((True, one) for one in KEYED), *((False, one) for one in PLAIN)])
def test_what_commits_before_the_begin_is_a_winner(lake: Lake, keyed: bool, verb: str) -> None:
    table = made(lake, f"late_{keyed}_{verb}".replace(" ", "_"), keyed=keyed)
    rival = lake.table(table.name)
    with before_begin(lake, lambda: rival.append(ROWS) if not keyed else rival.upsert(ROWS)):
        assert winners(lambda: (KEYED if keyed else PLAIN)[verb](table)) == 1


SLOW: Final[dict[str, Callable[[Table, pa.RecordBatchReader], Commit]]] = {
    "append": lambda table, rows: table.append(rows, on_conflict="fail"),
    "upsert": lambda table, rows: table.upsert(rows, on_conflict="fail"),
    "delete by keys": lambda table, rows: table.delete(keys=rows),
}


@pytest.mark.parametrize("verb", SLOW)
def test_an_overwrite_while_the_rows_are_read_is_a_winner(lake: Lake, verb: str) -> None:
    """Its job began later and ended first: by the outcome table the insert or the delete loses."""
    table = made(lake, f"slow_{verb}".replace(" ", "_"), keyed=verb != "append")
    rival = lake.table(table.name)
    rows = ROWS.select(["id"]) if verb == "delete by keys" else ROWS
    with pytest.raises(ConflictError):
        SLOW[verb](table, streamed(rows, lambda: rival.overwrite(ROWS.slice(0, 1))))
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 1}]


def test_a_stream_of_an_overwrite_removes_what_committed_meanwhile(lake: Lake) -> None:
    for keyed in (False, True):
        table = made(lake, f"removes_{keyed}", keyed=keyed)
        rival = lake.table(table.name)
        more = pa.table({"id": [9], "n": [9]})
        done = table.overwrite(streamed(ROWS, lambda: (rival.upsert if keyed else rival.append)(more)))  # noqa: B023
        assert done.rebased_over == 1
        assert sorted(table.to_arrow().column("id").to_pylist()) == [1, 2, 3]


def test_columns_that_change_before_the_begin_make_a_new_plan(lake: Lake) -> None:
    table = made(lake, "altered", keyed=False)
    with before_begin(lake, lambda: lake.client.alter_columns(table.table_id, *added("note"))):
        assert table.append(MANY).version == 3
    assert table.to_arrow().column("note").null_count == 2_003


def added(name: str) -> list[Any]:
    return [add_column(name, "string")]


def test_a_version_that_is_retired_before_the_begin_makes_a_new_plan(lake: Lake) -> None:
    table = made(lake, "retired", keyed=False)
    rival = lake.table(table.name)

    def retire() -> None:
        rival.append(ROWS)
        raise GoneError(ErrorKind.GONE, "VERSION_RETIRED", {}, "as with retention 0, if the purge comes in between")

    with before_begin(lake, retire):
        table.delete("id = 1")
    assert set(table.to_arrow().column("id").to_pylist()) == {2, 3}


def test_a_write_that_its_begin_finds_doomed_stages_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(lake, "doomed", keyed=True)
    rival = lake.table(table.name)
    commits: list[str] = []
    commit = lake.client.commit

    def counted(txn_id: str, *args: Any, **named: Any) -> Any:
        commits.append(txn_id)
        return commit(txn_id, *args, **named)

    monkeypatch.setattr(lake.client, "commit", counted)
    with before_begin(lake, lambda: rival.overwrite(ROWS)), pytest.raises(ConflictError) as lost:
        table.delete("id = 1", on_conflict="fail")
    assert len(commits) == 1, "only the rival came to its commit"
    assert lost.value.conflict.winner_txn_id == commits[0]
    with before_begin(lake, lambda: rival.overwrite(ROWS)):
        assert table.delete("id = 1", on_conflict="rerun").attempts == 2
