"""The short way past buckets where nothing is due never misses what the long one finds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaservice.core.compaction.early_exit import quiet_waits
from metaservice.core.compaction.planner import plan_bucket
from metaservice.core.compaction.plans import Ages, Bucket, PlanFile
from metaservice.core.compaction.policy import NEVER_US, Policy
from metaservice.core.table.model import FileKind
from metaservice.store.live_layout import count_entries
from metaservice.store.records.plans import StoredEntry
from protos.laketx.v1 import common_pb2
from tests.unit.buckets import HOUR_US, TARGET, files_of, worlds
from tests.unit.buckets import policy as make_policy


def stored(file: PlanFile, row_order: str) -> bytes:
    payload = common_pb2.DataFile(row_order=row_order if file.ordered else "").SerializeToString()
    kind = FileKind.DELTA if file.is_delta else FileKind.BASE
    return StoredEntry(
        payload=payload,
        path=file.path,
        kind=int(kind),
        rows=file.rows,
        bytes=file.size_bytes,
        data_version=file.data_version,
        added=file.added,
        inlined=file.inlined,
    ).SerializeToString()


@given(worlds(), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_a_quiet_bucket_has_no_plan(world: tuple[Policy, Ages, list[Bucket]], hours: list[int]) -> None:
    policy, ages, buckets = world
    minor, major, cluster, *rest = [hour * HOUR_US for hour in hours]
    policy = replace(policy, ages_us=(minor, major, cluster, rest[0], rest[1], rest[2]))
    order = policy.options.row_order
    for bucket in buckets:
        entries = [stored(file, order) for file in bucket.files] + [
            StoredEntry(is_delete_set=True, rows=one.rows, added=one.added).SerializeToString() for one in bucket.sets
        ]
        seen = bucket._replace(files=[file if order else file._replace(ordered=True) for file in bucket.files])
        counts = count_entries(entries, policy.file_bytes_target, order, 2**62)
        waits = quiet_waits(policy, ages, counts) if policy.only is None else None
        if waits is None:
            continue
        slow = plan_bucket(policy, ages, seen)
        assert (slow.major, slow.minor, slow.cluster) == (None, None, None)
        for age, version in slow.waits:
            assert any(
                before <= version and (policy.ages_us[of] or NEVER_US) <= (policy.ages_us[age] or NEVER_US)
                for of, before in waits
            )


@pytest.mark.parametrize(
    ("live", "is_quiet"), [("d5", True), ("b4:100 d5 d6", True), ("d5 d6 d7", False), ("d5:40 d6:40", False)]
)
def test_what_reaches_a_threshold_is_looked_at(live: str, *, is_quiet: bool) -> None:
    counts = count_entries([stored(file, "") for file in files_of(live)], TARGET, "", 2**62)
    assert (quiet_waits(make_policy(), Ages(), counts) is not None) is is_quiet


def test_a_single_delta_of_a_keyed_table_waits_for_its_major_compaction() -> None:
    counts = count_entries([stored(file, "") for file in files_of("d5:0.01")], TARGET, "", 2**62)
    policy = make_policy(keyed=True)
    assert quiet_waits(policy, Ages(major=4), counts) == ((policy.first_age, 5),)
    assert quiet_waits(policy, Ages(major=5), counts) is None
    assert quiet_waits(make_policy(keyed=False), Ages(major=5), counts) == ()
