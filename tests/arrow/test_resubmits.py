"""A blind insert that lost a race is committed again by default, and everybody can see that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

from laketx import ConflictError, InputError, Lake, Table, connect
from metaservice.cli import command_line
from metaservice.client import add_column
from tests.arrow.begins import before_begin

ROWS: Final = pa.table({"id": range(1_500), "n": range(1_500)})  # too many for one call, which can't lose
FEW: Final = [{"id": -1, "n": 0}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("resubmits")) as made:
        yield made


def made(lake: Lake, name: str, **settings: Any) -> Table:
    return lake.create_table(name, "id bigint, n bigint", **settings)


def overtaken(lake: Lake, table: Table, **options: Any) -> Any:
    """An insert that an overwrite overtakes, which it loses to."""
    rival = lake.table(table.name)
    insert = table.upsert if table.meta.primary_key else table.append
    with before_begin(lake, lambda: rival.overwrite(FEW)):
        return insert(ROWS, **options)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_blind_insert_that_lost_is_committed_again_and_the_history_says_so(lake: Lake, keyed: bool) -> None:
    table = made(lake, f"again_{keyed}", primary_key=["id"] if keyed else [])
    done = overtaken(lake, table)
    assert (done.attempts, table.count()) == (2, 1_501)
    newest, older = table.history()[:2]
    assert (newest.txn_id, older.resubmitted) == (done.txn_id, "")
    lost = lake.client.get_transaction(newest.resubmitted)
    won = lake.client.get_transaction(done.txn_id)
    assert (lost.adopted_by, won.adopt_from) == (done.txn_id, lost.txn_id)


def test_why_and_versions_show_both_transactions(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    table = made(lake, "why")
    done = overtaken(lake, table)
    lost = table.history(1)[0].resubmitted

    def said(*arguments: str) -> str:
        assert command_line.run([*arguments], {"LAKETX_FOLDER": str(lake.warehouse)}) == 0
        return capsys.readouterr().out

    assert done.txn_id in said("why", lost)
    assert lost in said("why", done.txn_id)
    assert "insert again" in said("versions", "why")
    assert lost in said("show", "why", "--version", str(done.version))


def test_fail_shows_the_outcome_and_so_does_the_property(lake: Lake) -> None:
    with pytest.raises(ConflictError, match="lost a race"):
        overtaken(lake, made(lake, "fails"), on_conflict="fail")
    with pytest.raises(ConflictError):
        overtaken(lake, made(lake, "says_fail", properties={"write.on_conflict": "fail"}))
    assert overtaken(lake, made(lake, "says_rerun", properties={"write.on_conflict": "rerun"})).attempts == 2
    assert overtaken(lake, made(lake, "says_auto", properties={"write.on_conflict": "auto"})).attempts == 2


def test_a_transaction_of_blind_inserts_is_committed_again_but_not_one_that_read(lake: Lake) -> None:
    one, two = made(lake, "one"), made(lake, "two", primary_key=["id"])
    with lake.transaction() as txn:
        txn.table("one").append(ROWS)
        txn.table("two").upsert(ROWS)
        one.overwrite(FEW)
    assert [commit.attempts for commit in txn.commits] == [2, 2]
    assert (one.count(), two.count()) == (1_501, 1_500)
    with pytest.raises(ConflictError), lake.transaction() as txn:  # noqa: PT012 - its end raises
        txn.table("one").append(ROWS)
        txn.table("two").delete(keys=[1])
        one.overwrite(FEW)
    assert (one.count(), two.count()) == (1, 1_500)


def test_columns_that_changed_since_the_race_was_lost_make_it_an_error(lake: Lake) -> None:
    table = made(lake, "columns")
    begin = lake.client.begin
    seen: list[str] = []

    def later(*args: Any, **named: Any) -> Any:
        seen.append(named.get("adopt_from", ""))
        if len(seen) == 1:
            lake.table("columns").overwrite(FEW)
            del seen[1:]
        elif seen[-1]:
            lake.client.alter_columns(table.table_id, add_column("note", "string"))
        return begin(*args, **named)

    lake.client.begin = later  # type: ignore[method-assign]
    try:
        with pytest.raises(ConflictError, match="OVERWRITE"):
            table.append(ROWS)
    finally:
        lake.client.begin = begin  # type: ignore[method-assign]
    assert table.count() == 1


def test_appends_of_many_threads_all_commit(lake: Lake) -> None:
    table = made(lake, "many")
    failed: list[BaseException] = []

    def append() -> None:
        try:
            for _ in range(5):
                lake.table("many").append(ROWS)
        except BaseException as error:  # noqa: BLE001 - asserted below
            failed.append(error)

    threads = [threading.Thread(target=append) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert failed == []
    assert table.count() == 20 * 1_500


def test_what_is_no_insert_is_never_resubmitted(lake: Lake) -> None:
    table = made(lake, "other", primary_key=["id"], properties={"write.on_conflict": "resubmit"})
    table.upsert(ROWS)
    for write in (table.overwrite, lambda rows, **options: table.delete(keys=rows.column("id"), **options)):
        with pytest.raises(InputError, match="POLICY_INVALID"):
            write(ROWS, on_conflict="resubmit")
    with before_begin(lake, lambda: lake.table("other").upsert(FEW)), pytest.raises(ConflictError):
        table.delete("id = 1")
