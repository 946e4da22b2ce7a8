"""docs/catalog.md knows every property and every type of the catalog."""

from pathlib import Path

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.limits import TEXT_CHARS_MAX, VIEW_TEXT_CHARS_MAX
from metaservice.core.table.properties import PROPERTIES, Property, check_property, integer_property
from metaservice.shared.column_types import ATOMIC

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "catalog.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("one", PROPERTIES, ids=lambda one: one.name)
def test_every_property_is_documented(one: Property) -> None:
    takes = one.type.replace(" | ", ", ")
    assert f"| `{one.name}` | {takes} | `{one.default}` | {one.doc} |" in TEXT
    assert one.accepts(one.default)


def test_every_type_is_documented() -> None:
    assert {name for name in ATOMIC if f"`{name}`" not in TEXT} == set()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("data.retain.hours", "48", None),
        ("data.retain.hours", "87601", "PROPERTY_INVALID"),
        ("data.retain.hours", "1e3", "PROPERTY_INVALID"),
        ("data.retain.hours", "٣", "PROPERTY_INVALID"),
        ("data.retain.hours", "", "PROPERTY_INVALID"),
        ("write.on_conflict", "rerun", None),
        ("write.on_conflict", "Rerun", "PROPERTY_INVALID"),
        ("view.query", "x" * VIEW_TEXT_CHARS_MAX, None),
        ("view.canonical", "x" * (VIEW_TEXT_CHARS_MAX + 1), "PROPERTY_INVALID"),
        ("view.failure", "x" * VIEW_TEXT_CHARS_MAX, "PROPERTY_INVALID"),
        ("merge.checks", "x" * (TEXT_CHARS_MAX + 1), "PROPERTY_INVALID"),
        ("user.anything-goes.here", "x", None),
        ("user.", "x", "PROPERTY_UNKNOWN"),
        ("user.a b", "x", "PROPERTY_UNKNOWN"),
        ("usr.x", "x", "PROPERTY_UNKNOWN"),
        ("compaction.minor.file", "2", "PROPERTY_UNKNOWN"),
    ],
)
def test_properties_are_checked(name: str, value: str, reason: str | None) -> None:
    found = None
    try:
        check_property(name, value)
    except MetaError as refusal:
        found = refusal.reason
    assert found == reason


def test_a_stored_value_that_does_not_fit_counts_as_not_set() -> None:
    assert integer_property({"data.retain.hours": "soon"}, "data.retain.hours") == 7 * 24
    assert integer_property({"data.retain.hours": "0"}, "data.retain.hours") == 0
