"""The choice between incremental and full refreshes: what past ones tell, and what a view does with it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from laketx import InputError, Lake, connect
from worker.views import refresh as refreshes
from worker.views.costs import PAST_MAX, PastRefresh, expected_seconds, usual_change
from worker.views.differences import difference

TOTALS = "SELECT day, count(DISTINCT id) AS n FROM {}.orders GROUP BY day"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("costs")) as made:
        yield made


def part(changed: int | None, seconds: float) -> PastRefresh:
    return PastRefresh(is_full=False, changed=changed, seconds=seconds)


def full(seconds: float, changed: int | None = None) -> PastRefresh:
    return PastRefresh(is_full=True, changed=changed, seconds=seconds)


@pytest.mark.parametrize(
    ("past", "changed", "incremental", "whole", "is_full"),
    [
        ([], 5, None, None, False),
        ([full(1.0)], 5, None, 1.0, False),  # the first incremental refresh shows what it takes
        ([part(5, 9.0)], 5, 9.0, None, False),
        ([part(5, 9.0), full(1.0)], 5, 9.0, 1.0, True),
        ([part(5, 9.0), full(1.0)], 500, 9.0, 1.0, True),  # of more rows it takes no less
        ([part(5, 9.0), full(1.0)], 4, None, 1.0, False),  # of fewer it may
        ([part(500, 9.0), part(5, 0.1), full(1.0)], 50, 0.1, 1.0, False),
        ([part(None, 9.0), full(1.0)], 5, None, 1.0, False),  # by an older release
        ([part(5, 9.0), part(5, 0.2), full(1.0)], 5, 0.2, 1.0, False),  # one slow run among two
        ([part(5, 9.0), part(4, 0.2), part(3, 9.0), part(1, 0.1), full(1.0)], 5, 9.0, 1.0, True),
        ([part(5, 1.4), full(1.0)], 5, 1.4, 1.0, False),  # a third less
        ([part(5, 0.9), full(0.1)], 5, 0.9, 0.1, False),  # and a second
        ([part(5, 9.0), full(20.0), full(1.0), full(1.0), full(1.0)], 5, 9.0, 1.0, True),
        ([*[full(1.0)] * PAST_MAX, part(5, 9.0)], 5, None, 1.0, False),  # long ago: it is tried again
    ],
)
def test_past_refreshes_say_what_is_faster(
    past: list[PastRefresh], changed: int, incremental: float | None, whole: float | None, is_full: bool
) -> None:
    expected = expected_seconds(past, changed)
    assert (expected.incremental, expected.full, expected.is_full_faster) == (incremental, whole, is_full)


def test_expected_seconds_are_shown_for_as_many_rows_as_usual() -> None:
    past = [part(10, 2.0), full(1.0, 30), full(3.0), part(20, 4.0)]
    assert usual_change(past) == 20
    assert expected_seconds(past, usual_change(past)).text == "incremental 2.0 s, full 1.0 s"
    assert usual_change([full(1.0)]) == 0
    assert expected_seconds([], 0).text == ""


@pytest.mark.parametrize("strict", [False, True])
def test_a_slow_incremental_refresh_makes_the_next_one_full_unless_that_is_ruled_out(
    lake: Lake, strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = f"slow{strict}".lower()
    orders = lake.create_table(f"{space}.orders", "id bigint, day int")
    orders.append([{"id": at, "day": at % 2} for at in range(8)])
    view = lake.create_materialized_view(f"{space}.totals", TOTALS.format(space), strict=strict)

    def slow(*given: object) -> object:
        time.sleep(1.5)
        return difference(*given)  # type: ignore[arg-type]

    orders.append([{"id": 20, "day": 0}])
    with monkeypatch.context() as patch:
        patch.setattr(refreshes, "past_refreshes", lambda *_: [])
        patch.setattr(refreshes, "difference", slow)
        assert view.refresh().kind == "incremental"
    orders.append([{"id": 21, "day": 0}, {"id": 22, "day": 1}])
    again = view.refresh()
    assert again.kind == ("incremental" if strict else "full")
    assert again.reason.startswith("expected to be faster: incremental ") is not strict
    orders.append([{"id": 23, "day": 0}])
    assert view.refresh(incremental=True).kind == "incremental"
    assert view.status().expected.startswith("incremental ")
    assert "changed rows, as often: incremental " in view.explain()
    assert view.verify().holds
    with pytest.raises(InputError, match="VIEW_REFRESH_INVALID"):
        view.refresh(full=True, incremental=True)
