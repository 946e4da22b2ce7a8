"""What a merge onto a parent that has moved makes of ids of columns, RESTORE, CUSTOM, and overwrites."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from metaservice.core.table.meta import Alteration, Profile
from metaservice.core.table.model import Change, Group, Operation, Ref
from metaservice.core.table.schema_changes import Add, Drop
from metaservice.service.branch.branch_replay import Merged
from metaservice.service.decider.column_ids import ColumnIds
from tests.branches.rig import BranchRig, refused
from tests.retention.rig import WHO


def rig_of(profile: Profile = Profile.DELTA_SERIALIZABLE) -> BranchRig:
    """A table `t` whose first version has the file a, and a branch b of it."""
    rig = BranchRig()
    meta = replace(rig.meta("t"), profile=profile, last_column_id=2)
    rig.ask(lambda: rig.catalog.create(meta, WHO))
    rig.on("t").insert("a")
    rig.branch("b")
    return rig


def alter(rig: BranchRig, *changes: Add | Drop) -> None:
    txn_id = rig.begin(Operation.ALTER)
    rig.commit(txn_id, rig.change(Operation.ALTER, alteration=Alteration(schema_changes=changes)))


def compact(rig: BranchRig, *inputs: str) -> None:
    txn_id = rig.begin(Operation.MINOR_COMPACT)
    (output,) = rig.files(txn_id, "m")
    output.rows = 3 * len(inputs)
    group = Group("day=1", 0, inputs, (output.path,))
    rig.commit(txn_id, Change(rig.table_id, Operation.MINOR_COMPACT, 0, adds=[output], groups=(group,), key_sets=()))


def custom(rig: BranchRig, *names: str, removes: tuple[str, ...] = ()) -> None:
    txn_id = rig.begin(Operation.CUSTOM)
    refs = tuple(Ref(path, "day=1", 0) for path in removes)
    rig.commit(txn_id, Change(rig.table_id, Operation.CUSTOM, 0, adds=rig.files(txn_id, *names), removes=refs))


def shown(rig: BranchRig, version: int | None = None) -> str:
    """The names of the files, as those of `a`, `b`: `ab`."""
    rig.on("t")
    found = rig.list_files(rig.head if version is None else version)
    return "".join(sorted(path.partition("/")[2] for path in found))


def reason(merged: Merged) -> str:
    (failed,) = [part for part in merged.tables if part.fails]
    return failed.refusal.reason if failed.refusal is not None else failed.conflict.rule.name  # type: ignore[union-attr]


# -- ids of columns ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_no_two_columns_of_a_family_get_one_id(seed: int) -> None:
    chance, rig, given = random.Random(seed), rig_of(), dict[int, str]()
    lines = ["t", "t@b"]
    for count in range(60):
        name = chance.choice(lines)
        match chance.choice(["alter"] * 4 + ["branch", "clone", "crash", "merge", "look", "drop"]):
            case "alter":
                alter(rig.on(name), Add(f"new{count}", "int"))
                (added,) = [one for one in rig.table.meta.columns if one.name == f"new{count}"]
                assert given.setdefault(added.column_id, added.name) == added.name, name
            case "branch" if "@" not in name or len(lines) < 5:
                parent = name.partition("@")[2]
                rig.branch(f"b{count}", parent)
                lines.append(f"{name.partition('@')[0]}@b{count}")
            case "clone":
                rig.clone(rig.on(name).table_id, f"c{count}", None)
                lines.append(f"c{count}")
            case "crash":
                rig.ask(lambda: None)
                rig.crash()
            case "merge" | "drop" as end if "@" in name and chance.random() < 0.5:
                branch = name.partition("@")[2]
                with refused("BRANCH_HAS_CHILDREN"):
                    done = rig.merge(branch).is_done if end == "merge" else rig.drop(branch)
                    lines = [line for line in lines if not done or not line.endswith(f"@{branch}")]
            case _:
                rig.on(name)
    assert len(given) > 15


def test_ids_that_were_given_twice_before_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_of()
    with monkeypatch.context() as before:
        before.setattr(ColumnIds, "to_alter", lambda _, table, __: table.meta)
        alter(rig.on("t@b"), Add("mine", "int"))
        alter(rig.on("t"), Add("theirs", "int"))
        alter(rig.on("t"), Drop("theirs"))  # its values are in files
    assert reason(rig.merge("b")) == "MERGE_COLUMN_ID_TWICE"
    alter(rig.on("t@b"), Add("next", "int"))
    assert [one.column_id for one in rig.table.meta.columns] == [1, 2, 3, 4]
    alter(rig.on("t"), Add("other", "int"))
    assert rig.table.meta.columns[-1].column_id == 5


# -- changes of rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [Profile.DELTA_SERIALIZABLE, Profile.MAXCOMPUTE])
def test_an_overwrite_after_a_compaction_replaces_what_was_compacted(profile: Profile) -> None:
    rig = rig_of(profile)
    (first,) = rig.on("t").list_files(1)
    (second,) = rig.on("t@b").insert("b")
    compact(rig, first, second)
    rig.overwrite("c")
    alter(rig.on("t"), Add("note", "int"))
    assert rig.merge("b").is_done
    assert [shown(rig, version) for version in range(1, 5)] == ["a", "a", "ab", "c"]


@pytest.mark.parametrize("profile", [Profile.DELTA_SERIALIZABLE, Profile.MAXCOMPUTE])
def test_a_restore_follows_a_parent_whose_rows_are_as_they_were(profile: Profile) -> None:
    rig = rig_of(profile)
    (first,) = rig.on("t").list_files(1)
    (second,) = rig.on("t@b").insert("b")
    compact(rig, first, second)
    rig.insert("c")
    rig.restore(3)  # after the compaction: a and b
    rig.insert("d")
    rig.restore(1)
    rig.insert("e")
    rig.restore(0)
    alter(rig.on("t"), Add("note", "int"))
    assert rig.merge("b", keep=True).is_done
    assert [shown(rig, version) for version in range(1, 10)] == ["a", "a", "ab", "abc", "ab", "abd", "a", "ae", ""]
    rig.on("t@b").restore(5)
    alter(rig.on("t"), Add("mark", "int"))
    assert rig.merge("b").is_done
    assert shown(rig) == "ab"
    rig.crash()
    assert shown(rig) == "ab"


@pytest.mark.parametrize("profile", [Profile.DELTA_SERIALIZABLE, Profile.MAXCOMPUTE])
def test_a_restore_does_not_take_back_what_the_parent_did(profile: Profile) -> None:
    rig = rig_of(profile)
    rig.on("t@b").insert("b")
    rig.restore(1)
    rig.on("t").insert("c")
    assert reason(rig.merge("b")) == "MERGE_NEEDS_UNCHANGED_PARENT"
    assert shown(rig) == "ac"


def test_a_custom_change_is_judged_by_the_files_that_it_names() -> None:
    rig = rig_of()
    (first,) = rig.on("t").list_files(1)
    custom(rig.on("t@b"), "b", removes=(first,))
    rig.on("t").insert("c")
    assert rig.merge("b").is_done
    assert shown(rig) == "bc"


def test_a_custom_change_loses_to_who_removed_its_file() -> None:
    rig = rig_of()
    (first,) = rig.on("t").list_files(1)
    custom(rig.on("t@b"), "b", removes=(first,))
    custom(rig.on("t"), "c", removes=(first,))
    assert reason(rig.merge("b")) == "CONCURRENT_DELETE_DELETE"
    assert shown(rig) == "c"


def test_a_custom_change_of_what_the_branch_compacted_is_refused() -> None:
    rig = rig_of()
    (first,) = rig.on("t").list_files(1)
    compact(rig.on("t@b"), first)
    (output,) = rig.list_files(rig.head)
    custom(rig, "b", removes=(output,))
    alter(rig.on("t"), Add("note", "int"))
    assert reason(rig.merge("b")) == "MERGE_NEEDS_UNCHANGED_PARENT"
