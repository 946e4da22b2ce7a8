"""Counts of scans by version: exact for few versions, never above the truth."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from metaservice.service.read.scan_counts import TABLES_MAX, VERSIONS_MAX, ScanCount, ScanCounts

Scans = Sequence[tuple[int, bool]]  # the version, and whether it was of everything


def counted(scans: Scans) -> ScanCounts:
    counts = ScanCounts(0)
    for version, whole in scans:
        counts.add(b"table", version, whole=whole)
    return counts


def truth(scans: Scans, since: int) -> ScanCount:
    whole = sum(is_whole for version, is_whole in scans if version >= since)
    return ScanCount(whole, sum(version >= since for version, _ in scans) - whole)


@given(st.lists(st.tuples(st.integers(0, VERSIONS_MAX - 1), st.booleans())), st.integers(0, VERSIONS_MAX))
def test_few_versions_are_counted_exactly(scans: Scans, since: int) -> None:
    assert counted(scans).since(b"table", since) == truth(scans, since)


@given(st.lists(st.tuples(st.integers(0, 1_000), st.booleans()), min_size=VERSIONS_MAX + 1, max_size=200))
def test_more_versions_count_no_scan_that_was_not_and_lose_none_of_the_oldest(scans: Scans) -> None:
    counts = counted(scans)
    for since in range(0, 1_001, 50):
        found, true = counts.since(b"table", since), truth(scans, since)
        assert found.whole <= true.whole
        assert found.partial <= true.partial
    first = min(version for version, _ in scans)
    assert counts.since(b"table", first) == truth(scans, first)


def test_the_tables_that_are_remembered_are_bounded() -> None:
    counts = ScanCounts(0)
    for number in range(TABLES_MAX + 1):
        counts.add(b"%d" % number, 1, whole=True)
    assert counts.since(b"0", 0) == (0, 0)
    assert counts.since(b"%d" % TABLES_MAX, 0) == (1, 0)
