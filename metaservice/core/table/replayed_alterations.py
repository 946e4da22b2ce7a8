"""An ALTER of one table, as an ALTER of another one that had the same definition once. Pure."""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.table.meta import Alteration, TableMeta


def alteration_between(before: TableMeta, after: TableMeta, onto: TableMeta) -> Alteration | None:
    """What led from one definition of a table to the next, as a change of a third; None if it doesn't fit there.

    Properties, features, profile and comment are changed one by one. Columns and their ids are taken as they are, so
    they fit only where the columns are the same as they were before.
    """
    properties = {name: text for name, text in after.properties.items() if before.properties.get(name) != text}
    change = Alteration(
        properties,
        tuple(sorted(before.properties.keys() - after.properties.keys())),
        after.profile if after.profile is not before.profile else None,
        after.comment if after.comment != before.comment else None,
        tuple(sorted(after.features - before.features)),
        tuple(sorted(before.features - after.features)),
    )
    if _columns(before) == _columns(after):
        return change
    if _columns(before) != _columns(onto):
        return None
    changed = onto.altered(change)
    return Alteration(
        replacement=replace(
            changed,
            columns=after.columns,
            partitioning=after.partitioning,
            primary_key=after.primary_key,
            last_column_id=after.last_column_id,
            schema_version=after.schema_version,
        )
    )


def _columns(meta: TableMeta) -> tuple[object, ...]:
    return meta.columns, meta.partitioning, meta.primary_key, meta.last_column_id, meta.schema_version
