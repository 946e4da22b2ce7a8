"""The dashboard and the alert rules are fresh, and name metrics that there are; each metric is shown."""

import json
import re

from metaservice.metrics import METRICS
from tests.house.tree import ROOT
from tools.gen_dashboards import ALERT_RULES, ALERTS, DASHBOARD, main

ENDS = ("_bucket", "_sum", "_count")
KNOWN = {one.name for one in METRICS} | {
    f"{one.name}{end}" for one in METRICS for end in ENDS if one.kind == "histogram"
}


def named(text: str) -> set[str]:
    return set(re.findall(r"\blaketx_[a-z_]+", text))


def test_they_are_fresh() -> None:
    assert main(["--check"]) == 0, "run `make docs`"


def test_they_name_metrics_that_there_are() -> None:
    for name in (DASHBOARD, ALERTS):
        found = named((ROOT / name).read_text(encoding="utf-8"))
        assert found
        assert found <= KNOWN


def test_every_metric_is_on_the_dashboard() -> None:
    panels = json.loads((ROOT / DASHBOARD).read_text(encoding="utf-8"))["panels"]
    shown = named(json.dumps([panel.get("targets", []) for panel in panels]))
    assert {one.name for one in METRICS} <= {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} | shown
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((ROOT / DASHBOARD).read_text(encoding="utf-8"))["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_every_alarm_has_a_runbook() -> None:
    """And every runbook an alarm; the annotation leads to its section, which says when the alarm is over."""
    page = (ROOT / "docs/runbooks.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (LakeTX\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    assert list(sections) == [one.name for one in ALERT_RULES]
    assert [
        name for name, text in sections.items() if not text.strip().rpartition("\n\n")[2].startswith("Over when ")
    ] == []
    said = re.findall(r"^ +runbook: (.+)$", (ROOT / ALERTS).read_text(encoding="utf-8"), re.MULTILINE)
    assert said == [f"docs/runbooks.md#{one.name.lower()}" for one in ALERT_RULES]
