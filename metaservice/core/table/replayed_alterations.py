"""An ALTER of one table, as an ALTER of another one that had the same definition once. Pure."""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.table.column_properties import follow_columns
from metaservice.core.table.merged_columns import merged_schema
from metaservice.core.table.meta import Alteration, TableMeta


def alteration_between(before: TableMeta, after: TableMeta, onto: TableMeta) -> Alteration:
    """What led from one definition of a table to the next, as a change of a third. Raises if that is not possible.

    Properties, features, profile and comment are changed one by one, and so are columns, which keep their ids.
    """
    expected = follow_columns(before.columns, after.columns, before.properties)
    properties = {name: text for name, text in after.properties.items() if expected.get(name) != text}
    merged = onto
    if _columns(before) != _columns(after):
        schema = merged_schema(before.schema, after.schema, onto.schema)
        merged = onto.with_schema(schema, new_version=after.schema_version != before.schema_version)
    properties = follow_columns(after.columns, merged.columns, properties)
    change = Alteration(
        properties,
        tuple(sorted(expected.keys() - after.properties.keys())),
        after.profile if after.profile is not before.profile else None,
        after.comment if after.comment != before.comment else None,
        tuple(sorted(after.features - before.features)),
        tuple(sorted(before.features - after.features)),
    )
    if _columns(before) == _columns(after):
        return change
    kept = follow_columns(onto.columns, merged.columns, onto.properties, but=properties)
    merged = replace(merged, properties=kept)
    replacement = merged.altered(change)
    replacement.check_size()
    return Alteration(replacement=replacement)


def changes_columns_alone(before: TableMeta, after: TableMeta) -> bool:
    """Whether an ALTER changed columns, and nothing else that writers or readers look at.

    Such an ALTER and a change of rows have the same result in either order: files have their columns by id.
    """
    columns = replace(
        after,
        columns=before.columns,
        partitioning=before.partitioning,
        primary_key=before.primary_key,
        last_column_id=before.last_column_id,
        schema_version=before.schema_version,
    )
    kept = follow_columns(before.columns, after.columns, before.properties)
    return replace(columns, properties=before.properties) == before and after.properties == kept


def _columns(meta: TableMeta) -> tuple[object, ...]:
    return meta.columns, meta.partitioning, meta.primary_key, meta.last_column_id, meta.schema_version
