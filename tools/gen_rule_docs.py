"""Writes the rule tables of the documents from the code's: what stands between two markers comes from there.

`--check` compares instead of writing.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from metaservice.core import limits
from metaservice.core.commit.row_level import CHECKS, MEETINGS
from metaservice.core.table import profiles
from metaservice.core.table.model import Operation
from metaservice.core.table.profiles import CLASS_OF, STANDS, OpClass
from metaservice.core.table.properties import PROPERTIES, USER_PREFIX
from tools import coming_from
from tools.generated import BLOCK, fill, table, wants_check, write_or_check
from tools.wire import ROOT

DOCUMENTS = ("docs/semantics.md", "docs/catalog.md", "docs/coming-from.md")


def classes() -> str:
    """Which operations make up a class."""
    operations = {each: [o for o in Operation if CLASS_OF.get(o) is each] for each in OpClass}
    rows = [(each.value, ", ".join(f"`{o.name}`" for o in found)) for each, found in operations.items()]
    return table(("class", "operations on the wire"), rows)


def follows() -> str:
    """Each class with the earlier classes that it may follow."""
    rows = [
        (
            each.value,
            "any class" if STANDS[each] == set(OpClass) else "; ".join(c.value for c in OpClass if c in STANDS[each]),
        )
        for each in OpClass
    ]
    return table(("class", "commits if every winner on its partitions is one of"), rows)


def outcome_table() -> str:
    """Earlier by later: does the later one commit?"""
    rows = [
        (f"**{earlier.value}**", *("commits" if earlier in STANDS[later] else "conflict" for later in OpClass))
        for earlier in OpClass
    ]
    return table(("earlier ↓ later →", *(each.value for each in OpClass)), rows)


def row_meetings() -> str:
    """Under row_level: earlier by later."""
    rows = [(f"**{earlier.value}**", *(MEETINGS[later][earlier].value for later in OpClass)) for earlier in OpClass]
    return table(("earlier ↓ later →", *(each.value for each in OpClass)), rows)


def row_checks() -> str:
    """What "judged by rows" means, in order."""
    return table(("check", "conflict if", "rule"), [(one.name, one.says, f"`{one.rule.name}`") for one in CHECKS])


def properties() -> str:
    """Properties by what changing them does to others."""
    writers = sorted(one.name for one in PROPERTIES if one.binds_writers)
    fixed = sorted(one.name for one in PROPERTIES if one.is_fixed or one.is_of_service)
    quiet = sorted(one.name for one in PROPERTIES if not (one.binds_writers or one.is_fixed or one.is_of_service))
    rows = [
        ("writer properties", coming_from.code(writers), "conflicts with every change"),
        ("quiet properties", coming_from.code([*quiet, f"{USER_PREFIX}*"]), "conflicts with nothing"),
        ("fixed properties", coming_from.code(fixed), "is refused (`PROPERTY_FIXED`)"),
        ("features", coming_from.code(sorted(profiles.FEATURES)), "conflicts with every change"),
    ]
    return table(("what", "names", "changing it"), rows)


def bounds() -> str:
    """Every limit."""
    found = {name: value for name, value in vars(limits).items() if name.isupper()}
    return table(("limit", "value"), [(f"`{name}`", _number(value)) for name, value in sorted(found.items())])


BLOCKS: Mapping[str, Callable[[], str]] = {
    "classes": classes,
    "follows": follows,
    "outcome-table": outcome_table,
    "row-meetings": row_meetings,
    "row-checks": row_checks,
    "properties": properties,
    "bounds": bounds,
    **coming_from.BLOCKS,
}


def names_in(text: str) -> list[str]:
    return [block["name"] for block in BLOCK.finditer(text)]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    documents = {name: fill((root / name).read_text(encoding="utf-8"), BLOCKS) for name in DOCUMENTS}
    return write_or_check(documents, root, check=wants_check(arguments, __doc__))


def _number(value: int) -> str:
    power = value.bit_length() - 1
    if power > 40:
        return f"2^{power}" if value == 1 << power else f"2^{power + 1} - 1"
    return f"{value:,}"


if __name__ == "__main__":
    sys.exit(main())
