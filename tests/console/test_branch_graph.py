"""The graph of branches over time."""

from __future__ import annotations

from protos.laketx.v1 import catalog_pb2
from worker.console.branch_graph import DRAWN_MAX, LABEL_WIDTH, draw_branches
from worker.console.charts import WIDTH


def branch(name: str, time_us: int, parent: str = "") -> catalog_pb2.Branch:
    return catalog_pb2.Branch(name=name, parent=parent, time_us=time_us)


def test_each_branch_leaves_the_lane_of_its_parent_when_it_did() -> None:
    graph = draw_branches(
        [branch("b", 200), branch("child", 300, "a"), branch("a", 100), branch("x", 400, "gone")], 500
    )
    assert [lane.name for lane in graph.lanes] == ["main", "a", "child", "b", "x"]
    main, first, child, second, orphan = graph.lanes
    assert main.parent_y == -1
    assert (first.parent_y, child.parent_y, second.parent_y, orphan.parent_y) == (main.y, first.y, main.y, main.y)
    assert LABEL_WIDTH < first.x < second.x < child.x < orphan.x < WIDTH
    assert graph.ticks[0].at == first.x
    assert graph.ticks[-1].at == WIDTH
    assert graph.height > orphan.y


def test_long_names_are_cut_and_many_branches_left_out() -> None:
    graph = draw_branches([branch(f"{at:03}-{'n' * 60}", at) for at in range(100)], 100)
    assert len(graph.lanes) == DRAWN_MAX + 1
    assert graph.lanes[1].label == f"000-{'n' * 17}…"


def test_branches_of_this_very_moment_are_drawn() -> None:
    assert [lane.name for lane in draw_branches([branch("a", 7)], 7).lanes] == ["main", "a"]
    assert draw_branches([], 7).ticks
