"""The columns whose values get Bloom filters, as `index.bloom.columns` names them: they follow renames and drops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from metaservice.core.errors import invalid
from metaservice.core.table.properties import text_property
from metaservice.core.table.schema import Column
from metaservice.core.table.types import did_you_mean, folded
from metaservice.shared.column_lists import column_list, parse_column_list
from metaservice.shared.column_types import BLOOM_COLUMNS, BLOOM_TYPES, may_have_bloom_filter

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


def altered_bloom_columns(
    before: Iterable[Column], after: Iterable[Column], properties: Mapping[str, str]
) -> dict[str, str]:
    """The properties after a change of columns: the list names the same ones by their new names."""
    listed = parse_column_list(text_property(properties, BLOOM_COLUMNS))
    ids = {folded(column.name): column.column_id for column in before}
    names = {column.column_id: column.name for column in after}
    kept = [names[ids[folded(name)]] for name in listed if ids.get(folded(name)) in names]
    if kept == list(listed):
        return dict(properties)
    return {**properties, BLOOM_COLUMNS: column_list(kept)}
