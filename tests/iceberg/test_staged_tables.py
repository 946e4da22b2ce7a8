"""Tables that Iceberg's clients stage: what is left of those that nobody makes, and what a late commit is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from metaservice.client import NotFoundError
from protos.laketx.v1 import transaction_pb2
from tests.iceberg.servers import Server, catalog_of, served, served_folder
from tests.iceberg.writers import SCHEMA, Request, created, error_of, numbers
from tests.integration.warehouse import GRACE_MS, Warehouse, warehouse
from worker.services.purge import Report
from worker.services.staged_tables import KEEP_S, StagedTables

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed")
DAY_S = 86_400


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    with warehouse(tmp_path_factory.mktemp("staged")) as found:
        yield found


@pytest.fixture(scope="module")
def catalog(place: Warehouse) -> Iterator[Server]:
    words = ["--server", place.client_address, "iceberg", "serve", "--listen", "127.0.0.1:0"]
    with served(*words, "--warehouse", str(place.folder)) as server:
        yield server


class Staged:
    """A table that a client has staged, with files and a commit that it may send."""

    def __init__(self, catalog: Server, name: str, rows: bool = True) -> None:
        self._transaction = catalog_of(catalog, 2).create_table_transaction(f"default.{name}", SCHEMA)
        self.table_id = str(self._transaction.table_metadata.table_uuid)
        if rows:
            self._transaction.append(numbers([1, 2]))
        self.commit = created(self._transaction, f"default.{name}")


def files_of(place: Warehouse, table_id: str) -> list[Path]:
    return [one for one in (place.folder / table_id).rglob("*") if one.is_file()]


def notes(place: Warehouse) -> list[str]:
    return StagedTables(place.client, str(place.folder)).given_up(time.time() + 10 * KEEP_S)


def purge_after(place: Warehouse, age_s: float, **settings: Any) -> Report:
    """A purge when the notes are that old, by the clock of its worker."""
    return place.purge(now_s=lambda: time.time() + age_s, **settings)


def gone(place: Warehouse, table_id: str) -> bool:
    """Whether later purges delete the folder, when the service has looked at what was dropped."""
    for _ in range(5):
        place.pass_time(GRACE_MS, looks=20)
        assert place.purge().failed == 0
        if not (place.folder / table_id).exists():
            return True
    return False


def test_the_first_table_marks_the_warehouse(tmp_path: Path) -> None:
    """Without the mark no purge would run."""
    with served_folder(tmp_path / "made") as server:
        catalog_of(server, 2).create_table("default.first", SCHEMA)
        assert (tmp_path / "made" / "_laketx" / "warehouse.json").is_file()


def test_a_table_that_is_made_leaves_no_note(place: Warehouse, catalog: Server) -> None:
    staged = Staged(catalog, "made")
    assert notes(place) == [staged.table_id]
    assert staged.commit.send(catalog).status_code == 200
    assert notes(place) == []
    assert purge_after(place, 2 * KEEP_S).staged == 0
    assert catalog_of(catalog).load_table("default.made").scan().to_arrow().num_rows == 2


def test_the_first_rows_may_be_said_to_overwrite(catalog: Server) -> None:
    """As Spark's CREATE OR REPLACE TABLE AS SELECT says of a table that is new."""
    staged = Staged(catalog, "replaced_at_first")
    added = [one["snapshot"] for one in staged.commit.body["updates"] if one["action"] == "add-snapshot"]
    added[0]["summary"]["operation"] = "overwrite"
    assert staged.commit.send(catalog).status_code == 200
    assert catalog_of(catalog, 2).load_table("default.replaced_at_first").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("rows", [True, False])
def test_what_nobody_makes_goes(place: Warehouse, catalog: Server, rows: bool) -> None:
    staged = Staged(catalog, f"given_up_{rows}", rows)
    assert purge_after(place, KEEP_S - DAY_S).staged == 0
    assert (place.folder / staged.table_id).exists()
    said: list[tuple[str, str]] = []
    assert purge_after(place, KEEP_S + DAY_S, dry_run=True, say=lambda *one: said.append(one)).staged == 1
    assert ("drop", staged.table_id) in said
    assert notes(place) == [staged.table_id]
    assert purge_after(place, KEEP_S + DAY_S).staged == 1
    assert notes(place) == []
    status, kind, words = error_of(staged.commit.send(catalog))
    assert (status, kind) == (400, "BadRequestException")
    assert "create the table again" in words
    assert gone(place, staged.table_id)
    with pytest.raises(NotFoundError):
        place.client.get_table(f"given_up_{rows}")


def test_a_commit_after_the_folder_is_gone_makes_nothing(place: Warehouse, catalog: Server) -> None:
    staged = Staged(catalog, "late")
    purge_after(place, KEEP_S + DAY_S)
    assert gone(place, staged.table_id)
    before = [one.name for one in place.client.list_tables()]
    for _ in range(2):
        status, _, words = error_of(staged.commit.send(catalog))
        assert status == 400, words
        assert "ICEBERG_FILE" in words or "create the table again" in words
    assert [one.name for one in place.client.list_tables()] == before
    found = place.client.list_transactions(table_id=staged.table_id)
    assert transaction_pb2.TRANSACTION_STATE_OPEN not in [one.state for one in found]


def test_a_table_that_was_made_is_never_dropped(
    place: Warehouse, catalog: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is killed between the commit and the note leaves the note; a purge may meet a commit under way."""
    staged = Staged(catalog, "raced")
    known = StagedTables(place.client, str(place.folder))
    end: Callable[[StagedTables, str], bool] = StagedTables.end

    def commit_first(notes: StagedTables, table_id: str) -> bool:
        assert staged.commit.send(catalog).status_code == 200
        return end(notes, table_id)

    monkeypatch.setattr(StagedTables, "end", commit_first)
    report = purge_after(place, KEEP_S + DAY_S)
    assert (report.staged, report.failed) == (0, 0)
    monkeypatch.undo()
    known.add(staged.table_id, "raced")
    assert purge_after(place, KEEP_S + DAY_S).staged == 0
    assert notes(place) == []
    assert catalog_of(catalog).load_table("default.raced").scan().to_arrow().num_rows == 2


def test_a_repeat_whose_manifests_are_gone_drops_nothing(place: Warehouse, catalog: Server) -> None:
    staged = Staged(catalog, "repeated")
    assert staged.commit.send(catalog).status_code == 200
    Path(staged.commit.snapshot["manifest-list"].removeprefix("file://")).unlink()
    assert staged.commit.send(catalog).status_code == 200, "it was committed"
    assert catalog_of(catalog).load_table("default.repeated").scan().to_arrow().num_rows == 2
    other = dict(staged.commit.snapshot) | {"snapshot-id": 7}
    updates = [one | {"snapshot": other} if "snapshot" in one else one for one in staged.commit.body["updates"]]
    updates = [one | {"snapshot-id": 7} if "snapshot-id" in one else one for one in updates]
    status, _, words = error_of(Request(staged.commit.path, staged.commit.body | {"updates": updates}).send(catalog))
    assert (status, "ICEBERG_FILE" in words) == (400, True)
    assert catalog_of(catalog).load_table("default.repeated").scan().to_arrow().num_rows == 2


def test_notes_of_a_history_before_stay(place: Warehouse) -> None:
    other = place.folder / "_laketx" / "staged" / "0-before" / "01a20f2a-0378-772b-ae05-eef017be109a"
    other.parent.mkdir(parents=True, exist_ok=True)
    other.write_text("lost")
    assert purge_after(place, 100 * KEEP_S).staged == 0
    assert other.exists()


def test_what_is_no_note_stays(place: Warehouse) -> None:
    StagedTables(place.client, str(place.folder)).add("README", "of somebody")
    report = purge_after(place, KEEP_S + DAY_S)
    assert (report.staged, report.failed) == (0, 0)
    assert list(place.folder.rglob("README"))
