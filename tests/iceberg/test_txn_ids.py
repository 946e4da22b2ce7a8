"""The ids that commits of Iceberg's clients get: the same for repeats, and no other's."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from worker.iceberg.commits.txn_ids import NEAR_MS, UUID7, derived_id, folder_id, folder_of, loaded_version

TABLES = st.uuids(version=4).map(str)
SNAPSHOTS = st.integers(0, (1 << 63) - 1)
TIMES = st.integers(0, (1 << 48) - 1)


@given(table=TABLES, snapshot=SNAPSHOTS, time_ms=TIMES)
def test_an_id_is_the_same_again_and_has_the_time_of_the_snapshot(table: str, snapshot: int, time_ms: int) -> None:
    found = derived_id(table, snapshot, time_ms)
    assert derived_id(table, snapshot, time_ms) == found
    assert UUID7.match(found)
    assert uuid.UUID(found).int >> 80 == time_ms


@given(table=TABLES, snapshot=SNAPSHOTS, other_table=TABLES, other_snapshot=SNAPSHOTS, time_ms=TIMES)
def test_snapshots_of_one_moment_have_ids_of_their_own(
    table: str, snapshot: int, other_table: str, other_snapshot: int, time_ms: int
) -> None:
    found = derived_id(table, snapshot, time_ms)
    assert (derived_id(table, other_snapshot, time_ms) == found) == (other_snapshot == snapshot)
    assert (derived_id(other_table, snapshot, time_ms) == found) == (other_table == table)


@given(snapshot=SNAPSHOTS, time_ms=st.integers(0, (1 << 47) - 1), late_ms=st.integers(0, 2 * NEAR_MS))
def test_a_folder_gives_its_id_if_all_files_lie_in_it_and_it_is_of_that_day(
    snapshot: int, time_ms: int, late_ms: int
) -> None:
    folder, other = (derived_id(table, snapshot, time_ms) for table in ("one", "other"))
    inside = [f"{folder}/day=1/a.parquet", f"{folder}/b.parquet"]
    assert folder_of(inside, time_ms + late_ms) == (folder if late_ms <= NEAR_MS else "")
    assert folder_of([*inside, f"{other}/c.parquet"], time_ms) == ""
    assert folder_of(["data/a.parquet"], time_ms) == ""
    assert folder_of([], time_ms) == ""


@given(versions=st.lists(st.integers(0, (1 << 40) - 1), min_size=1))
def test_folders_hold_the_version_that_was_loaded(versions: list[int]) -> None:
    folders = [folder_id(version) for version in versions]
    assert all(UUID7.match(one) for one in folders)
    assert loaded_version([f"{one}/day=1/a.parquet" for one in folders]) == min(versions)
    assert loaded_version(["data/a.parquet", f"{derived_id('t', 1, 2)}/a.parquet"]) is None
