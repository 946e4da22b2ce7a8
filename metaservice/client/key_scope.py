"""The scope in which a table's primary key is unique."""

from __future__ import annotations

from typing import Final, Literal

from protos.laketx.v1 import catalog_pb2

KEY_SCOPE: Final = "key.scope"  # the property

KeyScope = Literal["table", "partition"]


def key_scope(table: catalog_pb2.Table) -> KeyScope | None:
    """The table, or a partition; None without a key. If no property says it, the columns do."""
    if not table.primary_key:
        return None
    said = table.properties.get(KEY_SCOPE)
    if said == "table" or (said != "partition" and set(table.partition_columns) <= set(table.primary_key)):
        return "table"
    return "partition"
