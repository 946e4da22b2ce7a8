"""The graph of views and what they read."""

from __future__ import annotations

from worker.console.lineage_graph import BOX_WIDTH, NAME_CHARS_MAX, draw_lineage


def test_what_is_read_is_to_the_left_of_what_reads_it() -> None:
    sources = {"top": ["daily", "raw"], "daily": ["raw", ""], "other": ["raw", "top"]}
    lineage = draw_lineage(sources)
    at = {box.name: box.x for box in lineage.boxes}
    assert len(lineage.boxes) == len(at) == 4
    for view, names in sources.items():
        assert all(at[name] < at[view] for name in names if name)
    assert at == {"raw": 0, "daily": 280, "top": 560, "other": 840}
    assert len(lineage.curves) == 5
    assert {box.name for box in lineage.boxes if not box.is_view} == {"raw"}
    assert lineage.width == 840 + BOX_WIDTH


def test_no_two_boxes_lie_on_each_other() -> None:
    lineage = draw_lineage({f"view{at}": ["a", "b"] for at in range(20)})
    assert len({(box.x, box.y) for box in lineage.boxes}) == 22
    assert max(box.y for box in lineage.boxes) < lineage.height


def test_views_that_read_each_other_by_a_race_end() -> None:
    assert {box.name for box in draw_lineage({"a": ["b"], "b": ["a"]}).boxes} == {"a", "b"}


def test_a_long_name_is_cut() -> None:
    (box, view) = sorted(draw_lineage({"v": ["n" * 200]}).boxes, key=lambda each: each.x)
    assert len(box.text) == NAME_CHARS_MAX
    assert (box.name, view.text) == ("n" * 200, "v")
