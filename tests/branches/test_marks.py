"""Tags and cursors on branches: those of the parent, what a merge and a refresh make of them, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from laketx import Lake, MergeRefusedError, connect
from laketx.branch import Branch
from laketx.table import Table
from metaservice.client import AlreadyExistsError, BlockedError, NotFoundError
from metaservice.core.errors import MetaError
from metaservice.core.retention.marks import CursorMove
from metaservice.service.retention.marks import MarkRequest
from tests.branches.rig import DAY_MS, BranchRig, purge
from tests.retention.rig import WHO

ROW = [{"id": 1}]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("marks")) as lake:
        yield lake


def made(lake: Lake, name: str, commits: int = 3) -> tuple[Table, Branch]:
    table = lake.create_table(f"marks.{name}", "id bigint")
    for _ in range(commits):
        table.append(ROW)
    return table, lake.branch(name)


def refusals(branch: Branch) -> list[str]:
    with pytest.raises(MergeRefusedError) as caught:
        branch.merge()
    return [table.reason for table in caught.value.tables]


def tags(table: Table) -> dict[str, int]:
    return {tag.name: tag.version for tag in table.lake.client.list_tags(table.table_id)}


def cursors(table: Table) -> dict[str, int]:
    return {cursor.name: cursor.version for cursor in table.lake.client.list_cursors(table.table_id)}


def test_a_branch_shows_the_tags_of_its_versions(lake: Lake) -> None:
    table, branch = made(lake, "tags")
    table.tag("early", version=1)
    table.append(ROW)
    table.tag("late")
    fork = branch.table("marks.tags")
    assert tags(fork) == {"early": 1}
    assert fork.to_arrow(tag="early").num_rows == 1
    with pytest.raises(NotFoundError):
        fork.to_arrow(tag="late")
    with pytest.raises(BlockedError) as refused:
        fork.lake.client.drop_tag(fork.table_id, "early")
    assert refused.value.reason == "MARK_OF_PARENT"
    with pytest.raises(AlreadyExistsError):
        fork.tag("early", version=2)
    assert tags(lake.branch("tags-of-it", parent="tags").table("marks.tags")) == {"early": 1}


def test_a_merge_gives_tags_to_the_parent_where_their_versions_are_the_same(lake: Lake) -> None:
    table, branch = made(lake, "given")
    fork = branch.table("marks.given")
    fork.append(ROW)
    fork.tag("old", version=2)
    fork.tag("new")
    branch.merge()
    assert tags(table) == {"old": 2, "new": 4}
    other = lake.branch("given")
    fork = other.table("marks.given")
    fork.append(ROW)
    fork.tag("there", version=3)
    fork.tag("own")
    table.append(ROW)  # the branch's commit becomes another version
    other.merge()
    assert tags(table) == {"old": 2, "new": 4, "there": 3}


def test_a_merge_does_not_move_a_tag(lake: Lake) -> None:
    table, branch = made(lake, "taken")
    branch.table("marks.taken").tag("prod", version=2)
    table.tag("prod", version=3)
    assert refusals(branch) == ["TAG_EXISTS"]
    assert tags(table) == {"prod": 3}


def test_a_cursor_goes_on_from_where_the_branch_found_it(lake: Lake) -> None:
    table, branch = made(lake, "reader")
    assert table.cursor("etl", version=1).version == 1
    fork = branch.table("marks.reader")
    assert cursors(fork) == {"etl": 1}
    cursor = fork.cursor("etl")
    assert cursor.to_arrow().num_rows == 2
    assert (cursor.advance(), cursors(table)) == (3, {"etl": 1})
    table.append(ROW)
    assert branch.merge() == []
    assert cursors(table) == {"etl": 3}
    assert table.cursor("etl").to_arrow().num_rows == 1


def test_a_cursor_past_the_branch_is_where_the_branch_began(lake: Lake) -> None:
    table, branch = made(lake, "ahead")
    table.append(ROW)
    table.cursor("etl")
    cursor = branch.table("marks.ahead").cursor("etl")
    assert cursor.version == 3
    branch.table("marks.ahead").append(ROW)
    assert cursor.to_arrow().num_rows == 1
    cursor.advance()
    assert refusals(branch) == ["CURSOR_MOVED"]
    cursor.drop()
    branch.merge()
    assert cursors(table) == {"etl": 4}


def test_a_cursor_that_both_moved_refuses_the_merge_and_the_refresh(lake: Lake) -> None:
    table, branch = made(lake, "both")
    ours = table.cursor("etl", version=0)
    theirs = branch.table("marks.both").cursor("etl")
    theirs.to_arrow()
    theirs.advance()
    ours.to_arrow(until=1)
    ours.advance()
    assert refusals(branch) == ["CURSOR_MOVED"]
    with pytest.raises(MergeRefusedError):
        branch.refresh()
    assert (cursors(table), cursors(branch.table("marks.both"))) == ({"etl": 1}, {"etl": 3})


@pytest.mark.parametrize("moves", [True, False])
def test_no_cursor_passes_commits_that_its_reader_has_not_seen(lake: Lake, *, moves: bool) -> None:
    name = f"past{moves}".lower()
    table, branch = made(lake, name)
    table.cursor("etl")
    fork = branch.table(f"marks.{name}")
    fork.append(ROW)
    cursor = fork.cursor("etl") if moves else fork.cursor("own", version=3)
    assert cursor.to_arrow().num_rows == 1
    cursor.advance()
    table.append(ROW)
    assert refusals(branch) == ["CURSOR_PAST_PARENT"]
    cursor.drop()
    branch.merge()
    assert cursors(table) == {"etl": 3}
    assert table.cursor("etl").to_arrow().num_rows == 2


def test_a_merge_makes_a_cursor_of_the_branch(lake: Lake) -> None:
    table, branch = made(lake, "fresh")
    branch.table("marks.fresh").cursor("new", version=2)
    table.append(ROW)
    assert branch.merge() == []
    assert cursors(table) == {"new": 2}
    again = lake.branch("fresh")
    again.table("marks.fresh").cursor("other", version=1)
    table.cursor("other", version=1)
    assert refusals(again) == ["CURSOR_EXISTS"]


def test_a_refresh_keeps_moved_cursors_and_finds_others_anew(lake: Lake) -> None:
    table, branch = made(lake, "anew")
    first, second = table.cursor("first", version=1), table.cursor("second", version=1)
    fork = branch.table("marks.anew")
    fork.tag("mark", version=2)
    for name in ("first", "second"):
        assert fork.cursor(name).version == 1
    moved = fork.cursor("first")
    moved.to_arrow(until=2)
    moved.advance()
    second.to_arrow()
    second.advance()
    table.append(ROW)
    branch.refresh()
    fork = branch.table("marks.anew")
    assert (cursors(fork), tags(fork)) == ({"first": 2, "second": 3}, {"mark": 2})
    assert fork.to_arrow().num_rows == 4
    branch.merge()
    assert (cursors(table), tags(table)) == ({"first": 2, "second": 3}, {"mark": 2})
    assert first.refresh().version == 2


def test_cursors_and_tags_outlive_a_restart(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table, branch = made(lake, "kept")
        table.cursor("etl", version=1)
        moved = branch.table("marks.kept").cursor("etl")
        moved.to_arrow(until=2)
        moved.advance()
    with connect(tmp_path) as lake:
        branch = lake.branch("kept")
        assert cursors(branch.table("marks.kept")) == {"etl": 2}
        branch.merge()
        assert cursors(lake.table("marks.kept")) == {"etl": 2}


def test_a_cursor_on_a_branch_holds_what_it_needs_of_the_parent() -> None:
    rig = BranchRig()
    root = rig.table_id
    (old,) = rig.insert("a")
    rig.ask(lambda: rig.marks.create_cursor(MarkRequest(root, "etl", 1, WHO, keep_ms=90 * DAY_MS), must_exist=False))
    rig.overwrite("b")
    rig.overwrite("c")
    rig.branch("b", keep_ms=90 * DAY_MS)
    fork = rig.on("days@b").table_id
    rig.ask(lambda: rig.marks.create_cursor(MarkRequest(fork, "etl", None, WHO), must_exist=True))
    rig.ask(lambda: rig.marks.advance(CursorMove(root, "etl", 1, 3, rig.uuid())))
    rig.pass_time(30 * DAY_MS)
    assert purge(rig, root) == set()
    rig.crash()
    rig.pass_time(DAY_MS)
    assert purge(rig, root) == set()
    assert rig.drop("b")
    rig.pass_time(2 * DAY_MS)
    assert old in purge(rig, root)
    with pytest.raises(MetaError):
        rig.ask(lambda: rig.marks.create_cursor(MarkRequest(fork, "etl", None, WHO), must_exist=True))
