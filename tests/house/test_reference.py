"""Every setting, metric and event has its place in the documents, and the code uses no other."""

import ast
import re
from dataclasses import fields

from metaservice import metrics
from metaservice.metrics import METRICS, Metric
from metaservice.server.settings import SET_QUOTAS, Settings, build_parser
from metaservice.shared import log
from metaservice.shared.log import EVENTS
from tests.house.tree import ROOT
from tools.gen_reference import list_stale

CODE = sorted((ROOT / "metaservice").rglob("*.py"))


def test_settings_and_metrics_are_documented() -> None:
    assert list_stale(ROOT) == [], "run `make docs`"


def test_every_setting_is_an_option_that_says_what_it_does() -> None:
    options = {action.dest: action.help for action in build_parser({})._actions if action.dest != "help"}
    quotas = {f"{name}_{end}" for name in SET_QUOTAS for end in ("max", "each")}
    assert options.keys() == {field.name for field in fields(Settings)} - {"quotas"} | quotas
    assert all(help_ and len(help_) > 20 for help_ in options.values())


def test_every_metric_is_listed_once() -> None:
    defined = [value for value in vars(metrics).values() if isinstance(value, Metric)]
    assert sorted(metric.name for metric in defined) == sorted(metric.name for metric in METRICS)
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_metrics_are_named_as_prometheus_wants_it() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"laketx_[a-z_]+", metric.name)
        assert metric.kind in {"counter", "gauge", "histogram"}
        assert (metric.kind == "counter") == metric.name.endswith("_total")
        assert metric.says.endswith(".")


def test_every_event_is_named_in_one_place() -> None:
    """Each call of `event`, or of `_report` that stands for it, uses constants of the log; each is used and said."""
    constants = {name: value for name, value in vars(log).items() if name.isupper() and value in list(EVENTS)}
    assert sorted(constants.values()) == sorted(EVENTS)
    used: set[str] = set()
    literal = []
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("event", "self._report"):
                names = [one.id for one in ast.walk(node.args[0]) if isinstance(one, ast.Name)]
                used.update(names)
                if not names:
                    literal.append(f"{path.name}:{node.lineno}")
    assert literal == []
    assert (used | {"REFUSED"}) - {"agrees"} == set(constants)


def test_every_finding_of_a_check_is_documented() -> None:
    parts = (
        "metaservice/service/operate/check.py",
        "metaservice/service/operate/record_checks.py",
        "metaservice/service/operate/transaction_checks.py",
        "worker/services/fsck.py",
    )
    source = "".join((ROOT / part).read_text(encoding="utf-8") for part in parts)
    words = set(re.findall(r'"([A-Z]{3,}(?:_[A-Z]+)+)[" ]', source)) | {"MORE_OF_THE_SAME"}
    documented = set(
        re.findall(r"`([A-Z]{3,}(?:_[A-Z]+)+)`", (ROOT / "docs/operations.md").read_text(encoding="utf-8"))
    )
    assert words - {"TABLE_UNKNOWN"} <= documented
    assert len(words) > 20
