"""The properties that name columns, which follow renames and drops: Bloom filters, and the order of rows in files."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Final

from metaservice.core.errors import invalid
from metaservice.core.table.properties import text_property
from metaservice.core.table.property_forms import parse_row_order, row_order
from metaservice.core.table.schema import Column
from metaservice.core.table.types import did_you_mean, folded
from metaservice.shared.column_lists import column_list, parse_column_list
from metaservice.shared.column_types import BLOOM_COLUMNS, BLOOM_TYPES, may_have_bloom_filter

CLUSTER_ORDER: Final = "compaction.cluster.order"
COLUMNS_MAX: Final = 32  # each costs writers a filter in every row group


def check_bloom_columns(columns: Iterable[Column], properties: Mapping[str, str]) -> None:
    """Refuses a list with a column that is not there, or whose type has no filters."""
    names = parse_column_list(text_property(properties, BLOOM_COLUMNS))
    by_name = {folded(column.name): column for column in columns}
    if len(names) > COLUMNS_MAX:
        raise invalid("BLOOM_COLUMNS_INVALID", f"at most {COLUMNS_MAX} columns have Bloom filters", columns=len(names))
    for name in names:
        column = by_name.get(folded(name))
        if column is None:
            hint = did_you_mean(name, tuple(each.name for each in by_name.values()))
            raise invalid("BLOOM_COLUMNS_INVALID", "the table has no such column", column=name, **hint)
        if not may_have_bloom_filter(column.type):
            raise invalid(
                "BLOOM_COLUMNS_INVALID", f"Bloom filters are for {BLOOM_TYPES}", column=name, type=column.type[:128]
            )


def follow_columns(
    before: Iterable[Column], after: Iterable[Column], properties: Mapping[str, str], *, but: Container[str] = ()
) -> dict[str, str]:
    """The properties after a change of columns: they name the same ones by their new names, those in `but` as before.

    A dropped column goes from its list; a name that no column had stays.
    """
    ids = {folded(column.name): column.column_id for column in before}
    names = {column.column_id: column.name for column in after}

    def present(listed: Iterable[str]) -> list[str]:
        now = ((name, ids.get(folded(name))) for name in listed)
        kept = (name if key is None else names[key] for name, key in now if key is None or key in names)
        return list({folded(name): name for name in kept}.values())

    followed = dict(properties)
    listed = parse_column_list(text_property(properties, BLOOM_COLUMNS))
    if BLOOM_COLUMNS not in but and (kept := present(listed)) != list(listed):
        followed[BLOOM_COLUMNS] = column_list(kept)
    kind, ordered = parse_row_order(text_property(properties, CLUSTER_ORDER))
    if CLUSTER_ORDER not in but and (kept := present(ordered)) != list(ordered):
        followed[CLUSTER_ORDER] = row_order(kind, kept)
    return followed
