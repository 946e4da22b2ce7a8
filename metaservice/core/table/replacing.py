"""A table under a new definition, which takes the place of all that was there."""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.key_scope import key_scope
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.properties import KEY_SCOPE
from metaservice.core.table.schema import replace_schema


def replaced(before: TableMeta, wanted: TableMeta) -> TableMeta:
    """The table's metadata under a new definition: id, name and history stay."""
    if before.buckets != wanted.buckets:
        raise MetaError(
            ErrorKind.BLOCKED,
            "REPLACE_CHANGES_LAYOUT",
            "the number of buckets can't change: drop the table and create it again",
            buckets=before.buckets,
        )
    scope = key_scope(before.primary_key, before.partitioning.names, before.properties)
    if wanted.properties.get(KEY_SCOPE, scope) != scope:
        raise MetaError(
            ErrorKind.BLOCKED,
            "REPLACE_CHANGES_LAYOUT",
            "the key's scope can't change: drop the table and create it again",
            key_scope=scope,
        )
    kept = {name: value for name, value in before.properties.items() if name == KEY_SCOPE}
    settings = replace(
        before,
        profile=wanted.profile,
        properties={**wanted.properties, **kept},
        features=wanted.features,
        comment=wanted.comment,
    )
    return settings.with_schema(replace_schema(before.schema, wanted.schema))
