"""Where a primary key is unique: in the whole table, or within a partition.

Rows of one key in two partitions meet nowhere, neither in a bucket nor in a conflict check. So a key that is to be
unique in the table contains the partition columns: then no row changes its partition without changing its key.

    key (day, id), partitioned by day                            unique in the table
    key (id), partitioned by day                                 refused, unless it says key.scope=partition
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaservice.core.errors import invalid
from metaservice.core.table.properties import KEY_SCOPE, PARTITION, TABLE


def key_scope(primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]) -> str:
    """The scope of an existing table; "" without a key. For tables from before the property, the columns decide."""
    if not primary_key:
        return ""
    return properties.get(KEY_SCOPE) or (PARTITION if set(partition_columns) - set(primary_key) else TABLE)


def check_key_scope(
    primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Checks the scope of a new table."""
    if not primary_key:
        if KEY_SCOPE in properties:
            raise invalid("KEY_SCOPE_WITHOUT_KEY", "the table has no primary key: leave key.scope out, or give a key")
        return
    missing = [name for name in partition_columns if name not in primary_key]
    if missing and properties.get(KEY_SCOPE) != PARTITION:
        raise invalid(
            "KEY_LACKS_PARTITION",
            f"the primary key must contain the partition columns: add {', '.join(missing)} to it, or say "
            f'key_scope="{PARTITION}" (property {KEY_SCOPE}) for a key that is unique within a partition only',
            missing=",".join(missing),
            primary_key=",".join(primary_key),
            partition_columns=",".join(partition_columns),
        )
