"""Where a primary key is unique: in the whole table, or within a partition.

Rows of one key in two partitions meet in no bucket. So a key that is unique in the table contains the partition
columns: then no row changes its partition without changing its key. Or it spans the partitions: then each writer looks
in all partitions where its keys live, and two writers of one key meet wherever they write it.

    key (day, id), partitioned by day                            unique in the table
    key (id), partitioned by day, key.scope=table                unique in the table, spans the partitions
    key (id), partitioned by day, key.scope=partition            unique in each day
    key (id), partitioned by day                                 refused: it has to say which of the two it means
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from metaservice.core.errors import invalid
from metaservice.core.table.properties import KEY_SCOPE, PARTITION, TABLE
from metaservice.core.table.view_definition import is_view


def key_scope(primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]) -> str:
    """The scope of an existing table; "" without a key. For tables from before the property, the columns decide."""
    if not primary_key:
        return ""
    return properties.get(KEY_SCOPE) or (PARTITION if set(partition_columns) - set(primary_key) else TABLE)


def spans_partitions(
    primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> bool:
    """Whether the key is unique in the table although rows could change their partition under it."""
    lacks = bool(set(partition_columns) - set(primary_key))
    return lacks and key_scope(primary_key, partition_columns, properties) == TABLE


def check_key_scope(
    primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Checks the scope of a new table."""
    if not primary_key:
        if KEY_SCOPE in properties:
            raise invalid("KEY_SCOPE_WITHOUT_KEY", "the table has no primary key: leave key.scope out, or give a key")
        return
    missing = [name for name in partition_columns if name not in primary_key]
    if not missing or properties.get(KEY_SCOPE) == PARTITION:
        return
    facts = {
        "missing": ",".join(missing),
        "primary_key": ",".join(primary_key),
        "partition_columns": ",".join(partition_columns),
    }
    if KEY_SCOPE not in properties:
        raise invalid(
            "KEY_LACKS_PARTITION",
            f"the primary key must contain the partition columns: add {', '.join(missing)} to it, or say "
            f'key_scope="{TABLE}" (property {KEY_SCOPE}) for a key that is unique across partitions, or '
            f'key_scope="{PARTITION}" for one that is unique within a partition only',
            **facts,
        )
    if is_view(properties):
        raise invalid(
            "KEY_LACKS_PARTITION",
            f"the key of a materialized view must contain the partition columns: add {', '.join(missing)} to it",
            **facts,
        )
