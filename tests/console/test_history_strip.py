"""The parts of a time range, and what the bars of a table's history count."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from laketx import connect
from tests.console.conftest import Owned
from worker.console.history_strip import BARS, oldest_version, parts_of, strip_of, version_by


@given(st.integers(0, 10**16), st.integers(0, 10**14))
def test_parts_cover_a_range_without_gaps(since_us: int, span_us: int) -> None:
    parts = parts_of(since_us, since_us + span_us)
    assert 1 <= len(parts) <= BARS
    assert (parts[0][0], parts[-1][1]) == (since_us, since_us + span_us)
    assert all(later[0] == earlier[1] + 1 for earlier, later in pairwise(parts))
    lengths = {last - first for first, last in parts}
    assert max(lengths) - min(lengths) <= 1


def test_bars_count_every_commit_once_in_every_range(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", "id bigint", properties={"data.retain.hours": "0"})
        for at in range(9):
            table.append([{"id": at}])
        meta = table.lake.client.get_table("t")
        times = [each.commit_time_us for each in lake.client.list_versions(meta.table_id)]
        whole = strip_of(lake.client, meta, None, None)
        kept = meta.head_version - oldest_version(lake.client, meta) + 1
        assert whole.commits == kept == len(times)
        for part, bar in whole.parts:
            assert part.commits == sum(part.since_us <= time_us <= part.until_us for time_us in times)
            assert (bar is not None) == (part.commits > 0)
        middle = strip_of(lake.client, meta, times[-2], times[2])
        assert middle.commits == len(times) - 3
        assert version_by(lake.client, meta, times[-1] - 1, 5) == 4
        empty = strip_of(lake.client, meta, times[0] + 1, times[0] + 9)
        assert empty.commits == 0


def test_a_bar_opens_its_part_of_the_timeline(owned: Owned) -> None:
    page = owned.owner.page(f"/tables/{owned.filled.orders}/timeline")
    assert "16 commits in all" in page
    opened = 0
    for since, until, count in re.findall(r"since=(\d+)&amp;until=(\d+)\">[^<]*</a></th><td class=\"num\">(\d+)", page):
        part = owned.owner.page(f"/tables/{owned.filled.orders}/timeline?since={since}&until={until}")
        assert f"{count} commit" in part
        assert "in this range" in part
        assert part.count('<th scope="row" class="num">') == int(count)
        opened += int(count)
    assert opened == 16
    assert "16 commits in the last hour" in owned.owner.read(f"/tables/{owned.filled.orders}/timeline?last=hour")
    for bad in ("last=year", "since=9&until=8", "since=x"):
        assert owned.owner.get(f"/tables/{owned.filled.orders}/timeline?{bad}").status_code == 400
