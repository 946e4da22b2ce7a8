"""Where a primary key is unique: in the whole table, or within a partition.

Rows of one key in two partitions meet in no bucket. So a key that is unique in the table contains the partition
columns: then no row changes its partition without changing its key. Or it spans the partitions: then each writer looks
in all partitions where its keys live, and two writers of one key meet wherever they write it.

    key (day, id), partitioned by day                            unique in the table
    key (id), partitioned by day, key.scope=table                unique in the table, spans the partitions
    key (id), partitioned by day, key.scope=partition            unique in each day
    key (id), partitioned by day                                 refused: it has to say which of the two it means

A table gets a key across partitions later by an ALTER. From that commit on its writers look their keys up and conflict
by key, so no key comes to stand in two partitions that doesn't already: a bucket number in which no key is there
twice stays so. `checking` lasts until that has been seen once of every bucket number, at whatever version each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.properties import KEY_CHECKED, KEY_SCOPE, PARTITION, TABLE
from metaservice.core.table.view_definition import is_view

CHECKING: Final = "checking"  # writers keep the rules of a key across partitions; older rows may break them


def key_scope(primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]) -> str:
    """The scope of an existing table; "" without a key. For tables from before the property, the columns decide."""
    if not primary_key:
        return ""
    return properties.get(KEY_SCOPE) or (PARTITION if set(partition_columns) - set(primary_key) else TABLE)


def spans_partitions(
    primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> bool:
    """Whether writers keep the key unique in the table although rows could change their partition under it."""
    lacks = bool(set(partition_columns) - set(primary_key))
    return lacks and key_scope(primary_key, partition_columns, properties) in (TABLE, CHECKING)


def check_key_scope(
    primary_key: Sequence[str], partition_columns: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Checks the scope of a new table."""
    if KEY_CHECKED in properties:
        raise MetaError(ErrorKind.BLOCKED, "PROPERTY_FIXED", "the check of the keys sets it", property=KEY_CHECKED)
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
        raise _view_lacks(missing, facts)


def _view_lacks(missing: Sequence[str], facts: Mapping[str, str]) -> MetaError:
    return invalid(
        "KEY_LACKS_PARTITION",
        f"the key of a materialized view must contain the partition columns: add {', '.join(missing)} to it",
        **facts,
    )


def altered_scope(
    primary_key: Sequence[str],
    partition_columns: Sequence[str],
    buckets: int,
    before: Mapping[str, str],
    after: dict[str, str],
) -> dict[str, str]:
    """The properties after an ALTER that leaves these. The last bucket number of a check makes the promise."""
    changed = [name for name in (KEY_SCOPE, KEY_CHECKED) if before.get(name) != after.get(name)]
    if not changed:
        return after
    for name in changed:
        if name not in after:
            raise MetaError(ErrorKind.BLOCKED, "PROPERTY_FIXED", property=name)
    if not primary_key:
        raise invalid("KEY_SCOPE_WITHOUT_KEY", "the table has no primary key: leave key.scope out")
    was = key_scope(primary_key, partition_columns, before)
    scope = after.get(KEY_SCOPE, was)
    missing = [name for name in partition_columns if name not in primary_key]
    if KEY_CHECKED in changed:
        return after | _progress(was if missing and scope == was else "", buckets, before, after)
    if not missing or was == scope:
        return after
    if was == TABLE:
        raise MetaError(
            ErrorKind.BLOCKED, "PROPERTY_FIXED", "the key is unique in the table and stays so", property=KEY_SCOPE
        )
    if scope == PARTITION:
        return after
    if is_view(after):
        raise _view_lacks(missing, {"missing": ",".join(missing)})
    if was == CHECKING:
        return after | {KEY_SCOPE: CHECKING}
    check, _ = checked_buckets(before)
    return after | {KEY_SCOPE: CHECKING, KEY_CHECKED: f"{check + 1}:0"}


def checked_buckets(properties: Mapping[str, str]) -> tuple[int, int]:
    """The number of the last check of the keys, and of how many bucket numbers it has seen that no key is twice."""
    check, _, buckets = properties.get(KEY_CHECKED, "0:0").partition(":")
    return int(check), int(buckets)


def _progress(was: str, buckets: int, before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """What a check adds, if it is the one that runs: an older one looked at rows that may have changed since."""
    (check, buckets_before), (number, buckets_after) = checked_buckets(before), checked_buckets(after)
    if was != CHECKING or number != check or not buckets_before <= buckets_after <= buckets:
        raise MetaError(ErrorKind.STALE, "KEY_CHECK_ENDED", check=number, buckets=buckets_after)
    return {KEY_SCOPE: TABLE} if buckets_after == buckets else {}
