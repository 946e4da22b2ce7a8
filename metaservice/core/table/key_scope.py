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
from dataclasses import dataclass
from typing import Final

from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.properties import KEY_CHECKED, KEY_SCOPE, PARTITION, TABLE
from metaservice.core.table.view_definition import is_view

CHECKING: Final = "checking"  # writers keep the rules of a key across partitions; older rows may break them


@dataclass(frozen=True, slots=True)
class KeyProgress:
    """What a check saw: at a version, no key is in two partitions in the bucket numbers from `begin` to `end`."""

    check: int
    begin: int
    end: int
    version: int


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
    before: Mapping[str, str],
    after: dict[str, str],
) -> dict[str, str]:
    """The properties after an ALTER that leaves these. One to `table` begins a check."""
    if before.get(KEY_SCOPE) == after.get(KEY_SCOPE):
        return after
    if KEY_SCOPE not in after:
        raise MetaError(ErrorKind.BLOCKED, "PROPERTY_FIXED", property=KEY_SCOPE)
    if not primary_key:
        raise invalid("KEY_SCOPE_WITHOUT_KEY", "the table has no primary key: leave key.scope out")
    was = key_scope(primary_key, partition_columns, before)
    scope = after[KEY_SCOPE]
    missing = [name for name in partition_columns if name not in primary_key]
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


def is_checked_by(properties: Mapping[str, str], check: int) -> bool:
    """Whether the check of this number runs under a definition. An older one saw rows of writers without rules."""
    return properties.get(KEY_SCOPE) == CHECKING and checked_buckets(properties)[0] == check


def advanced(properties: Mapping[str, str], buckets: int, seen: KeyProgress) -> dict[str, str]:
    """The properties after what a check saw. The last bucket number makes the promise."""
    recorded = checked_buckets(properties)[1]
    if not is_checked_by(properties, seen.check) or seen.begin != recorded or not recorded < seen.end <= buckets:
        raise check_ended(seen)
    scope = TABLE if seen.end == buckets else CHECKING
    return {**properties, KEY_SCOPE: scope, KEY_CHECKED: f"{seen.check}:{seen.end}"}


def check_ended(seen: KeyProgress) -> MetaError:
    facts = {"check": seen.check, "begin": seen.begin, "end": seen.end, "version": seen.version}
    return MetaError(ErrorKind.STALE, "KEY_CHECK_ENDED", **facts)
