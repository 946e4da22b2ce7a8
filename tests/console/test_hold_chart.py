"""The chart of who keeps which versions."""

from __future__ import annotations

from worker.console.charts import WIDTH
from worker.console.hold_chart import LABEL_WIDTH, Hold, draw_holds


def test_each_kind_has_a_lane_and_each_holder_its_place() -> None:
    holds = [Hold(5, "tag", "a"), Hold(10, "cursor", "b"), Hold(20, "branch", "c"), Hold(5, "open transaction", "d")]
    chart = draw_holds(holds, 15, 25)
    assert chart.horizon == LABEL_WIDTH + (chart.ticks[-1].at - LABEL_WIDTH) / 2
    assert [name for name, _ in chart.lanes] == ["tag", "transaction", "cursor", "branch"]
    assert [shape.width > 0 for shape in chart.shapes] == [False, True, True, False]
    tag, cursor, branch, _ = chart.shapes
    assert tag.x == LABEL_WIDTH
    assert tag.x < cursor.x < branch.x
    assert cursor.x + cursor.width == branch.x + branch.width < WIDTH
    assert cursor.text == "cursor b: version 10 and all after it"
    assert tag.text == "tag a: version 5"
    assert [tick.text for tick in chart.ticks] == ["5", "15", "25"]


def test_nothing_held_is_an_empty_chart() -> None:
    assert draw_holds([], 3, 3).shapes == []


def test_the_axis_begins_at_the_horizon_if_nobody_keeps_more() -> None:
    chart = draw_holds([Hold(10, "tag", "a")], 5, 25)
    assert chart.horizon == LABEL_WIDTH < chart.shapes[0].x
    assert [tick.text for tick in chart.ticks] == ["5", "15", "25"]
