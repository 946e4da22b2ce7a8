"""Views over random histories of a lake, against an oracle that computes each query again; races, kills, retention."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from laketx import BlockedError, InputError, Lake, MaterializedView, NotFoundError, Table, connect
from metaservice.client.calling import Caller
from metaservice.core.limits import CURSORS_PER_TABLE_MAX
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.views.histories import played
from worker.views import key_rows
from worker.views import refresh as refreshes
from worker.views.definition import TEXT_CHARS_MAX
from worker.views.delta import whole_text
from worker.views.refresh import last_refresh

TOTALS = "SELECT day, count(*) AS n, sum(amount) AS total FROM {}.orders GROUP BY day"
DAYS = [date(2026, 11, day) for day in (1, 2, 3)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("views")) as made:
        yield made


def orders(lake: Lake, space: str, *, keyed: bool = True) -> Table:
    table = lake.create_table(
        f"{space}.orders", "id bigint, day date, amount decimal(10,2)", primary_key=["id"] if keyed else []
    )
    table.overwrite([{"id": at, "day": DAYS[at % 3], "amount": at} for at in range(9)])
    return table


def totals(lake: Lake, space: str) -> tuple[Table, MaterializedView]:
    table = orders(lake, space)
    return table, lake.create_materialized_view(f"{space}.totals", TOTALS.format(space))


def test_lists_and_structs_are_keys(lake: Lake) -> None:
    table = lake.create_table("nested.t", "id bigint, l array<int>, r struct<x:int,y:string>", primary_key=["id"])
    rows: list[dict[str, Any]] = [{"id": at, "l": [[1], [], None][at % 3], "r": {"x": at % 2}} for at in range(6)]
    table.upsert(rows)
    views = [
        lake.create_materialized_view("nested.groups", "SELECT l, r, median(id) AS m FROM nested.t GROUP BY l, r"),
        lake.create_materialized_view("nested.rows", "SELECT DISTINCT r, l FROM nested.t"),
        lake.create_materialized_view(
            "nested.pairs", "SELECT a.id AS p, b.id AS q FROM nested.t a JOIN nested.t b ON a.l = b.l AND a.r = b.r"
        ),
    ]
    table.upsert([{"id": 1, "l": [1, None], "r": None}, {"id": 7, "l": [1], "r": {"x": 1, "y": "b"}}])
    table.delete("id = 4")
    for view in views:
        assert view.refresh().kind == "incremental"
        assert view.verify().holds


def test_a_view_that_a_source_has_no_room_for_is_not_made(lake: Lake) -> None:
    table = orders(lake, "crowded")
    for at in range(CURSORS_PER_TABLE_MAX):
        table.cursor(f"c{at}")
    with pytest.raises(BlockedError, match="or a view that reads it"):
        lake.create_materialized_view("crowded.totals", TOTALS.format("crowded"))
    assert lake.materialized_views("crowded") == []


# -- random histories --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [(22,), pytest.param((2, 23), marks=pytest.mark.long)])
def test_views_are_their_queries_over_random_histories(lake: Lake, seeds: Sequence[int]) -> None:
    kinds = sum((played(lake, seed) for seed in seeds), Counter[str]())
    assert kinds["incremental"] > 8
    assert kinds["full"] > 0


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_views_are_their_queries_over_many_random_histories(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(key_rows, "KEYS_LISTED_MAX", [key_rows.KEYS_LISTED_MAX, 1][part % 2])
    kinds = Counter[str]()
    for seed in range(1_000 + 40 * part, 1_040 + 40 * part):
        kinds += played(lake, seed, views=4, steps=9)
    assert kinds["incremental"] > 400


def test_two_sources_of_one_transaction_are_never_seen_apart(lake: Lake) -> None:
    for name in ("sides.left", "sides.right"):
        lake.create_table(name, "id bigint")
    text = "SELECT l.id AS left_id, r.id AS right_id FROM sides.left l FULL JOIN sides.right r ON l.id = r.id"
    view = lake.create_materialized_view("sides.both", text)
    stop = threading.Event()

    def write() -> None:
        try:
            for number in range(25):
                with lake.transaction() as txn:
                    txn.table("sides.left").append([{"id": number}])
                    txn.table("sides.right").append([{"id": number}])
        finally:
            stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    refreshed = 0
    while not stop.is_set():
        refreshed += view.refresh().kind == "incremental"
        assert view.to_arrow(where="left_id IS NULL OR right_id IS NULL").num_rows == 0
    writer.join()
    view.refresh()
    assert refreshed > 1
    assert sorted(view.to_arrow().column("left_id").to_pylist()) == list(range(25))
    assert all(view.verify(version).holds for version in range(1, view.table.meta.head_version + 1))


def test_a_transaction_between_two_calls_of_a_refresh_is_not_half_in_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("instant.left", "instant.right"):
        lake.create_table(name, "id bigint").append([{"id": 0}])
    text = "SELECT l.id AS left_id, r.id AS right_id FROM instant.left l FULL JOIN instant.right r ON l.id = r.id"
    view = lake.create_materialized_view("instant.both", text)
    real, numbers, busy = Caller._call, iter(range(1, 1_000)), threading.Lock()

    def call(self: Caller, method: Any, request: Any, **more: Any) -> Any:
        answer = real(self, method, request, **more)
        if type(request).__name__ in ("PinVersionsRequest", "ResolveVersionRequest") and busy.acquire(blocking=False):
            with lake.transaction() as txn:
                number = next(numbers)
                txn.table("instant.left").append([{"id": number}])
                txn.table("instant.right").append([{"id": number}])
            busy.release()
        return answer

    monkeypatch.setattr(Caller, "_call", call)
    for _ in range(3):
        view.refresh()
    monkeypatch.undo()
    rows = view.to_arrow().to_pylist()
    assert all(row["left_id"] == row["right_id"] for row in rows)
    assert len(rows) > 1
    assert view.verify().holds


# -- commits -----------------------------------------------------------------------------------------------------------


def test_a_view_that_has_nothing_to_do_takes_two_calls_and_no_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, view = totals(lake, "idle")
    calls: list[str] = []
    real = Caller._call

    def call(self: Caller, method: Any, request: Any, **more: Any) -> Any:
        calls.append(type(request).__name__.removesuffix("Request"))
        return real(self, method, request, **more)

    monkeypatch.setattr(Caller, "_call", call)
    done = view.refresh()
    assert done.kind == "nothing"
    assert [name for name in calls if name not in ("RenewPin", "Unpin")] == ["ListVersions", "PinVersions"]
    assert view.table.meta.head_version == 1


def test_updates_of_other_columns_change_no_row_of_the_view(lake: Lake) -> None:
    table = lake.create_table("narrow.orders", "id bigint, day date, note string", primary_key=["id"])
    table.upsert([{"id": 1, "day": DAYS[0], "note": "a"}])
    view = lake.create_materialized_view("narrow.days", "SELECT day, count(*) AS n FROM narrow.orders GROUP BY day")
    table.update({"note": "'b'"}, where="id = 1")
    done = view.refresh()
    assert (done.kind, done.rows_added, done.rows_removed) == ("incremental", 0, 0)
    assert done.vector == {"narrow.orders": 2}
    assert view.verify().holds


def test_concurrent_refreshes_apply_each_change_once(lake: Lake) -> None:
    table, view = totals(lake, "races")
    errors: list[BaseException] = []

    def run() -> None:
        mine = lake.materialized_view("races.totals")
        try:
            for _ in range(4):
                mine.refresh()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100, 106):
        table.upsert([{"id": number, "day": DAYS[number % 3], "amount": 1}])
    for thread in threads:
        thread.join()
    assert errors == []
    view.refresh()
    assert view.verify().holds
    assert sum(view.to_arrow().column("n").to_pylist()) == 15
    assert all(view.verify(version).holds for version in range(1, view.table.meta.head_version + 1))


def test_a_refresh_that_another_one_overtakes_begins_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table, view = totals(lake, "overtaken")
    table.upsert([{"id": 50, "day": DAYS[0], "amount": 1}])
    real, other = refreshes._planned, lake.materialized_view("overtaken.totals")
    overtaken: list[int] = []

    def planned(*given: object, **options: object) -> object:
        plan = real(*given, **options)  # type: ignore[arg-type]
        if not overtaken:
            overtaken.append(0)
            table.upsert([{"id": 51, "day": DAYS[1], "amount": 1}])
            overtaken[0] = other.refresh().version
        return plan

    monkeypatch.setattr(refreshes, "_planned", planned)
    done = view.refresh()
    assert overtaken == [2]
    assert (done.kind, done.version) == ("nothing", 2)
    assert view.verify().holds


KILLED = """
import os, signal, sys
from laketx import connect
from metaservice.client import MetaClient
real = MetaClient.commit
def commit(self, *given, **options):
    if sys.argv[2] == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    answer = real(self, *given, **options)
    os.kill(os.getpid(), signal.SIGKILL)
MetaClient.commit = commit
connect(sys.argv[1]).materialized_view("killed.totals").refresh()
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_refresh_is_repeated_and_applied_once(tmp_path: Path, when: str) -> None:
    with connect(tmp_path / "lake") as lake:
        table, view = totals(lake, "killed")
        table.upsert([{"id": 50, "day": DAYS[0], "amount": 1}])
        words = [sys.executable, "-c", KILLED, str(tmp_path / "lake"), when]
        ended = subprocess.run(words, check=False, env=dict(os.environ), cwd=Path(__file__).parents[2])
        assert ended.returncode == -signal.SIGKILL
        done = view.refresh()
        assert done.kind == ("incremental" if when == "before" else "nothing")
        assert done.version == 2
        assert view.verify().holds
        assert sum(view.to_arrow().column("n").to_pylist()) == 10


# -- the view's own table ----------------------------------------------------------------------------------------------


def test_nobody_but_refreshes_and_table_services_writes_to_a_view(lake: Lake) -> None:
    table, view = totals(lake, "guarded")
    rows = [{"day": DAYS[0], "n": 1, "total": 1}]
    writes: list[Callable[[], object]] = [
        lambda: view.table.append(rows),
        lambda: view.table.append(pa.table({"n": range(5_000)})),
        lambda: view.table.overwrite(rows),
        lambda: view.table.update({"n": "7"}),
        lambda: view.table.delete("n > 0"),
        view.table.truncate,
        lambda: view.table.restore(version=0),
        lambda: view.table.add_columns("more int"),
        lambda: view.table.drop_column("n"),
    ]
    for write in writes:
        with pytest.raises(BlockedError, match="VIEW_READ_ONLY"):
            write()
    assert view.table.meta.head_version == 1
    table.upsert([{"id": 70, "day": DAYS[2], "amount": 4}])
    view.refresh()
    assert view.table.compact("major") is not None
    assert view.refresh().kind == "nothing"
    table.delete(keys=[70])
    assert view.refresh().kind == "incremental"
    assert view.verify().holds


def test_a_commit_that_only_looks_like_a_refresh_is_refused(lake: Lake) -> None:
    table, view = totals(lake, "forged")
    table.upsert([{"id": 70, "day": DAYS[2], "amount": 4}])

    def commit(vector: str, *moves: transaction_pb2.CursorMove) -> None:
        intent = transaction_pb2.TableIntent(table_id=view.view.table_id, operation=common_pb2.OPERATION_MERGE)
        with lake.client.begin([intent], properties={"view.vector": vector}) as txn:
            txn.commit([common_pb2.Change(table_id=view.view.table_id)], list(moves))

    source, name = table.table_id, f"view-{view.view.table_id}"
    good = transaction_pb2.CursorMove(table_id=source, name=name, expected_version=1, version=2)
    for vector, moves in (
        (f'{{"{source}": 2}}', []),
        (f'{{"{source}": 1}}', [good]),
        ("{}", [good]),
        ("no json", [good]),
    ):
        with pytest.raises(BlockedError, match="VIEW_READ_ONLY"):
            commit(vector, *moves)
    assert view.refresh().kind == "incremental"
    assert view.verify().holds


def test_a_view_that_was_tampered_with_is_found_out(lake: Lake) -> None:
    """A writer who forges a whole refresh gets rows in; the proof names them, and a full refresh corrects them."""
    table, view = totals(lake, "tampered")
    other = lake.create_materialized_view(
        "tampered.ids", "SELECT day, count(DISTINCT id) AS n FROM tampered.orders GROUP BY day"
    )
    table.upsert([{"id": 70, "day": DAYS[2], "amount": 4}])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refreshes, "whole_text", lambda query: whole_text(query).replace("COUNT(", "1 + COUNT("))
        for each in (view, other):
            lake.materialized_view(each.name).refresh(full=True)
    proof = view.verify()
    assert not proof.holds
    assert {row["day"] for row in proof.missing} == set(DAYS)
    assert len(proof.surplus) == 3
    table.upsert([{"id": 71, "day": DAYS[1], "amount": 4}])
    with pytest.raises(InputError, match="VIEW_BROKEN"):
        other.refresh()  # the row that it computes for the old version isn't there
    assert view.refresh().kind == "incremental"  # it adds to the rows that are there
    assert not view.verify().holds
    for each in (view, other):
        assert each.refresh(full=True).reason == "asked for"
        assert each.verify().holds


def test_clones_of_views_are_tables_and_tables_become_no_views(lake: Lake) -> None:
    _, view = totals(lake, "cloned")
    clone = lake.clone_table("cloned.totals", "cloned.copy")
    clone.truncate()
    with pytest.raises(InputError, match="VIEW_NOT_MATERIALIZED"):
        lake.materialized_view("cloned.copy")
    with pytest.raises(BlockedError, match="PROPERTY_FIXED"):
        clone.set_properties(**{"view.query": "SELECT 1"})
    with pytest.raises(BlockedError, match="VIEW_NOT_REPLACED"):
        lake.client.create_table(clone.meta.__class__(name=view.name, columns=clone.meta.columns), or_replace=True)
    branch = lake.branch("cloned")
    with pytest.raises(InputError, match="VIEW_ON_BRANCH"):
        lake.materialized_view("cloned.totals@cloned").refresh()
    with pytest.raises(InputError, match="VIEW_ON_BRANCH"):
        lake.create_materialized_view("cloned.other@cloned", TOTALS.format("cloned"))
    with pytest.raises(InputError, match="VIEW_QUERY_FAILED"):
        lake.create_materialized_view("cloned.bad", "SELECT CAST('x' AS BIGINT) + id AS x FROM cloned.orders")
    assert "cloned.bad" not in lake.tables("cloned")
    branch.drop()


def test_the_longest_query_is_kept_and_a_longer_one_is_refused(lake: Lake) -> None:
    orders(lake, "long")
    start = f"SELECT id FROM long.orders WHERE id IN ({', '.join(map(str, range(10_000)))}) OR id ="
    text = start + "1".rjust(TEXT_CHARS_MAX - len(start))
    with pytest.raises(InputError, match="VIEW_QUERY_INVALID"):
        lake.create_materialized_view("long.some", f"{text} ")
    view = lake.create_materialized_view("long.some", text)
    assert view.query == text
    assert view.count() == 9


# -- sources -----------------------------------------------------------------------------------------------------------


def test_the_status_of_a_view_whose_source_was_dropped_says_so(lake: Lake) -> None:
    left, right = (lake.create_table(f"gone.{name}", "id int") for name in ("left", "right"))
    view = lake.create_materialized_view("gone.both", "SELECT l.id FROM gone.left l JOIN gone.right r ON l.id = r.id")
    right.append([{"id": 1}])
    lake.drop_table(left.name)
    status = view.status()
    assert status.failure == "sources that are not found: gone.left"
    assert status.behind == {"gone.right": 1}
    assert status.version == 1
    lake.undrop_table(left.name)
    assert not view.status().failure


def test_what_needs_a_source_that_was_dropped_names_it(lake: Lake) -> None:
    table = lake.create_table("gone.orders", "id int")
    view = lake.create_materialized_view("gone.all", "SELECT id FROM gone.orders")
    lake.drop_table(table.name)
    for needs in (view.refresh, view.verify, lambda: view.verify(version=1), view.explain):
        with pytest.raises(BlockedError, match="which the view reads, was dropped: undrop it") as caught:
            needs()
        assert caught.value.reason == "TABLE_DROPPED"
        assert caught.value.facts["source"] == "gone.orders"
    lake.undrop_table(table.name)
    assert view.verify().holds


def test_renames_change_nothing_and_a_dropped_column_stops_the_view(lake: Lake) -> None:
    table, view = totals(lake, "renamed")
    table.rename_column("amount", "price")
    lake.rename_table("renamed.orders", "renamed.sales")
    table.refresh().add_columns("amount int")
    table.upsert([{"id": 70, "day": DAYS[2], "price": 4}])
    assert view.refresh().kind == "incremental"
    assert view.verify().holds
    table.refresh().drop_column("price")
    with pytest.raises(InputError, match="VIEW_SOURCE_CHANGED"):
        view.refresh()
    assert view.count() == 3


def test_a_wider_type_of_a_used_column_makes_the_refresh_full(lake: Lake) -> None:
    table = lake.create_table("wider.t", "id int, x float")
    table.append([{"id": 1, "x": 0.5}])
    view = lake.create_materialized_view("wider.v", "SELECT CAST(id AS VARCHAR) AS i, id, x FROM wider.t")
    table.widen_column("id", "bigint")
    assert view.refresh().reason == "the types of wider.t changed"
    table.append([{"id": 1 << 40, "x": 0.5}])
    with pytest.raises(InputError, match="CAST_LOSSY"):
        view.refresh()
    assert (view.count(), view.verify().holds) == (1, True)


def test_cursors_hold_the_sources_and_a_lost_log_makes_the_refresh_full(lake: Lake) -> None:
    table, view = totals(lake, "held")
    cursors = list(lake.client.list_cursors(table.table_id))
    assert [(one.name, one.version) for one in cursors] == [(f"view-{view.view.table_id}", 1)]
    table.upsert([{"id": 70, "day": DAYS[2], "amount": 4}])
    lake.client.drop_cursor(table.table_id, cursors[0].name)
    assert view.refresh(incremental=True).kind == "incremental"  # the log is still there, and the cursor is made again
    assert next(iter(lake.client.list_cursors(table.table_id))).version == 2
    assert view.status().behind == {"held.orders": 0}
    table.upsert([{"id": 71, "day": DAYS[2], "amount": 4}])
    lake.client.advance_cursor(table.table_id, cursors[0].name, 2, 3)  # by somebody else: the vector counts
    assert view.refresh(incremental=True).kind == "incremental"
    assert view.verify().holds
    view.drop()
    assert list(lake.client.list_cursors(table.table_id)) == []
    with pytest.raises(NotFoundError):
        lake.materialized_view("held.totals")


def test_views_of_views_and_increments_of_a_view(lake: Lake) -> None:
    table, view = totals(lake, "cascade")
    best = lake.create_materialized_view("cascade.best", "SELECT max(total) AS best FROM cascade.totals")
    table.upsert([{"id": 70, "day": DAYS[2], "amount": 400}])
    view.refresh()
    best.refresh()
    assert best.to_arrow().to_pylist() == [{"best": 415}]
    assert best.verify().holds
    changes = view.to_arrow(since=1, mode="changes")
    assert sorted(changes.column("_change_type").to_pylist()) == ["delete", "insert"]
    assert lake.materialized_views("cascade") == ["cascade.best", "cascade.totals"]


def test_last_refresh_is_that_of_a_version(lake: Lake) -> None:
    table, view = totals(lake, "versions")
    table.upsert([{"id": 70, "day": DAYS[2], "amount": 4}])
    view.refresh()
    view.table.compact("major")
    first, last = (last_refresh(view.view, view._definition, version) for version in (1, 3))
    assert first is not None
    assert last is not None
    assert (first.vector, first.kind) == ({"versions.orders": 1}, "full")
    assert (last.version, last.vector) == (2, {"versions.orders": 2})
    empty = lake.create_materialized_view("versions.empty", TOTALS.format("versions"), with_data=False)
    with pytest.raises(InputError, match="VIEW_EMPTY"):
        empty.verify()
    assert empty.status().refreshed is None
