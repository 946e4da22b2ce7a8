"""Clones that keep nothing of the table that they were made of: it is purged as if they were not there."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from laketx import Lake, Table, connect
from metaservice.client import InvalidError
from metaservice.core.errors import MetaError
from metaservice.core.table.model import Operation
from metaservice.service.operate.check import StoreCheck
from metaservice.service.retention.sweeping import Sweeping, SweepPlace
from metaservice.store import keys
from tests.branches.rig import DAY_MS, BranchRig, purge
from tests.integration.service import service
from tests.integration.terminal import Shell
from tests.retention.rig import HOUR_MS

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


def forks_apart(rig: BranchRig) -> list[bool]:
    return [fork.is_detached for fork in rig.decider.state.forks.values()]


def problems(rig: BranchRig) -> list[str]:
    found = StoreCheck(rig.store.cursor(), lambda: None).run()
    return [str(problem) for part in found for problem in part.problems]


def write_of(rig: BranchRig, app_id: str, version: int) -> None:
    txn_id = rig.begin(Operation.INSERT)
    change = rig.change(Operation.INSERT, rig.files(txn_id, f"a{version}"))
    change.app_versions = ((app_id, version),)
    rig.commit(txn_id, change)


def answers(rig: BranchRig, table_id: str) -> dict[str, int | str | None]:
    """What the table answers about each application: its version, or why it can't say."""
    said: dict[str, int | str | None] = {}
    for app_id in ("kept", "moved", "none"):
        try:
            raw = rig.ask(partial(rig.decider.state.app_version, table_id, app_id))
            said[app_id] = None if raw is None else keys.decode_version(raw)
        except MetaError as refusal:
            said[app_id] = refusal.reason
    return said


def test_a_table_gives_up_what_a_clone_no_longer_shows() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    clone = rig.clone(root, "copy")
    rig.overwrite("b")
    rig.pass_time(5 * DAY_MS)
    assert purge(rig, root) == set()  # the clone shows it
    rig.table_id = clone
    (own,) = rig.overwrite("c")
    rig.pass_time(HOUR_MS)
    assert (purge(rig, root), forks_apart(rig)) == (set(), [False])  # an older version of the clone shows it
    for _ in range(3):
        rig.pass_time(2 * DAY_MS)
    assert (purge(rig, root), forks_apart(rig)) == ({old}, [True])
    rig.crash()
    rig.table_id = clone
    assert rig.list_files(rig.head) == {own}
    assert problems(rig) == []


@pytest.mark.parametrize("held", ["tag", "clone", "branch"])
def test_who_holds_an_older_version_of_the_clone_holds_its_table(held: str) -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.table_id = clone = rig.clone(root, "copy")
    (own,) = rig.insert("b")
    second = ""
    if held == "tag":
        rig.tag("kept", 2)
    elif held == "clone":
        second = rig.clone(clone, "second")
    else:
        rig.branch("b", keep_ms=90 * DAY_MS)
    rig.overwrite("c")
    rig.ask(lambda: rig.catalog.drop(root, validate_only=False))
    for _ in range(4):
        rig.pass_time(10 * DAY_MS)
    assert purge(rig, root) == set()
    rig.table_id = clone
    if held == "tag":
        assert rig.list_files(2) == {old, own}
        rig.untag("kept")
    elif held == "clone":
        rig.table_id = second
        assert rig.list_files(2) == {old, own}
        rig.ask(lambda: rig.catalog.drop(second, validate_only=False))
    else:
        assert rig.on("copy@b").list_files(2) == {old, own}
        rig.drop("b")
    gone = set()
    for _ in range(5):
        rig.pass_time(10 * DAY_MS)
        gone |= purge(rig, root)
    assert gone == {old, own}


def test_a_dropped_table_is_purged_beside_its_clone_whose_files_stay_in_its_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.table_id = clone = rig.clone(root, "copy")
    (own,) = rig.overwrite("b")
    rig.ask(lambda: rig.catalog.drop(root, validate_only=False))
    gone = set()
    for _ in range(6):
        rig.pass_time(10 * DAY_MS)
        gone |= purge(rig, root)
    assert gone == {old}
    rig.crash()
    rig.table_id = clone
    sweeping = Sweeping(rig.decider, rig.clock, rig.keeping, lambda: False)
    monkeypatch.setattr(rig.decider, "call", rig.ask)  # the decider has no thread here
    writes = rig.begin(Operation.INSERT)
    (staged,) = rig.register(writes, "c")
    stray = f"{rig.uuid()}/stray"
    assert sweeping.list_folders(SweepPlace(), 10).folders == []
    assert set(sweeping.check_paths(root, [old, own, staged, stray])[0]) >= {own, staged}
    assert old not in sweeping.check_paths(root, [old])[0]
    rig.ask(lambda: rig.transactions.abort(writes, "test"))
    rig.insert("d")
    assert own in rig.list_files(rig.head)
    assert problems(rig) == []
    rig.ask(lambda: rig.catalog.drop(clone, validate_only=False))
    folders = set()
    for _ in range(30):
        rig.pass_time(DAY_MS, looks=10)
        gone |= purge(rig, root)
        folders |= set(sweeping.list_folders(SweepPlace(), 10).folders)
    assert own in gone
    assert (root, "") in folders


def test_a_clone_keeps_its_answers_about_applications() -> None:
    rig = BranchRig()
    root = rig.table_id
    for app_id, version in (("kept", 4), ("moved", 5)):
        write_of(rig, app_id, version)
    rig.table_id = clone = rig.clone(root, "copy")
    rig.table_id = root
    write_of(rig, "moved", 6)
    rig.table_id = clone
    rig.overwrite("b")
    before = answers(rig, clone)
    assert before == {"kept": 4, "moved": "APP_VERSION_MOVED", "none": None}
    for _ in range(3):
        rig.pass_time(2 * DAY_MS)
    assert forks_apart(rig) == [True]
    rig.ask(lambda: rig.catalog.drop(root, validate_only=False))
    for _ in range(6):
        rig.pass_time(10 * DAY_MS)
    rig.crash()
    assert answers(rig, clone) == before


def test_a_detached_clone_has_the_same_rows_in_files_of_its_own(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, _):
        files = str(tmp_path / "files")
        with connect(f"laketx://{running.address}", warehouse=files) as lake:
            keyed = lake.create_table("shop.keyed", "id bigint, v bigint", primary_key=["id"])
            keyed.upsert(ROWS)
            keyed.upsert(ROWS[:1])
            parts = lake.create_table("shop.parts", "id bigint, v bigint", partition_by=["v"])
            parts.append(ROWS)
            parts.append([{"id": 3, "v": 10}, {"id": 4, "v": 40}])
            parts.delete("id IN (1, 4)")
            for table in (keyed, parts):
                clone = table.clone(f"{table.name}_copy")
                clone.insert(pa.table({"id": [7], "v": [70]}))
                before, base = rows_of(clone), clone.refresh().meta.head_version
                shared = paths(lake, table)
                commit = clone.detach(message="apart")
                assert commit is not None
                assert (commit.version, rows_of(clone), rows_of(clone, base)) == (base + 1, before, before)
                assert not shared & paths(lake, clone)
                assert clone.detach() is None
                clone.restore(version=base)
                assert shared & paths(lake, clone)
                done = Shell(running.address).run("table", "detach", clone.name, "--warehouse", files)
                assert (done.code, f"since version {base + 3}" in done.out + done.err) == (0, True)
                assert (rows_of(clone), not shared & paths(lake, clone)) == (before, True)
            with pytest.raises(InvalidError, match="NOT_A_CLONE"):
                keyed.detach()
            with pytest.raises(InvalidError, match="NOT_A_CLONE"):
                lake.branch("b").table("shop.keyed").detach()


def rows_of(table: Table, version: int | None = None) -> list[dict[str, int]]:
    return sorted(table.to_arrow(version=version).to_pylist(), key=lambda row: row["id"])


def paths(lake: Lake, table: Table) -> set[str]:
    return {entry.file.path or entry.delete_set.path for entry in lake.client.list_files(table.table_id)}
