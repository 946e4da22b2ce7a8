"""The rules of the Delta profiles: does a change conflict with a winner?"""

from __future__ import annotations

from collections.abc import Iterator

from metaservice.core.commit.judged_change import Mine, is_quiet_alter, lost
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import COMPACTIONS, ROW_CHANGES, UNSORTED, Conflict, Footprint, Operation, Rule


def delta_conflict(mine: Mine, winner: Footprint) -> Conflict | None:
    change = mine.change
    alteration = change.alteration
    mine_features = alteration is not None and alteration.changes_features
    if winner.features_removed or (winner.features_changed and mine_features):
        return None if is_quiet_alter(mine) else lost(mine, winner, Rule.PROTOCOL_CHANGED)
    if winner.metadata_changed:
        return None if is_quiet_alter(mine) else lost(mine, winner, Rule.METADATA_CHANGED)
    if winner.app_ids and set(winner.app_ids) & set(change.app_ids_read):
        return lost(mine, winner, Rule.CONCURRENT_TRANSACTION)
    if mine.blind and not mine.buckets:
        return None
    if _ids_keep_both(mine, winner):
        mine.follow(winner)
        return None
    return _appends(mine, winner) or _removed_read(mine, winner) or _removed_removed(mine, winner)


def _ids_keep_both(mine: Mine, winner: Footprint) -> bool:
    """Whether one is a compaction that does not sort and the other one changes rows of an append table by their ids.

    The outputs keep the ids of the rows, and have a lower data version than the delete set, whichever commits first.
    """
    change = mine.change
    if mine.meta.keyed or change.removes or not all(gone.is_delete_set or winner.groups for gone in winner.removed):
        return False
    if winner.operation in UNSORTED:
        return change.operation in ROW_CHANGES or change.operation is Operation.INSERT
    return change.operation in UNSORTED and winner.operation in ROW_CHANGES


def _appends(mine: Mine, winner: Footprint) -> Conflict | None:
    level = mine.level
    if level is None:
        return None
    if mine.buckets:
        for path, partition, bucket in winner.added:
            both_write = (partition, bucket) in mine.buckets and winner.operation not in COMPACTIONS
            if both_write and not mine.bucket_held_files(partition, bucket):
                return lost(mine, winner, Rule.CONCURRENT_APPEND, partition, path)
    if mine.blind:
        return None
    for path, partition, bucket in _added_again(winner):
        if not _candidate(mine, winner, level, partition, bucket):
            continue
        if not mine.meta.partitioning.columns or mine.reads(partition):
            return lost(mine, winner, Rule.CONCURRENT_APPEND, partition, path)
    return None


def _added_again(winner: Footprint) -> Iterator[tuple[str, str, int]]:
    """The entries that the winner added or hid rows of: hiding counts as removing a file and adding it again."""
    yield from winner.added
    for touched in winner.touched:
        yield touched.path, touched.partition, touched.bucket
    for partition in sorted(winner.hid_anywhere):
        yield "", partition, 0


def _candidate(mine: Mine, winner: Footprint, level: Profile, partition: str, bucket: int) -> bool:
    if level is Profile.DELTA_SERIALIZABLE or not winner.blind:
        return True
    alteration = mine.change.alteration
    if alteration is not None and alteration.changes_metadata:
        return True
    if not mine.meta.keyed:
        return False
    return mine.reads_files(partition) or (partition, bucket) in mine.buckets


def _hides_by_key(mine: Mine, winner: Footprint) -> frozenset[tuple[str, int]]:
    """Buckets in which the winner hid older images of its keys."""
    if not mine.meta.keyed or winner.operation in COMPACTIONS:
        return frozenset()
    return frozenset((partition, bucket) for _, partition, bucket in winner.added)


def _removed_read(mine: Mine, winner: Footprint) -> Conflict | None:
    for gone in (*winner.removed, *winner.touched):
        if not gone.is_delete_set and mine.knew(gone) and mine.reads_files(gone.partition):
            return lost(mine, winner, Rule.CONCURRENT_DELETE_READ, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if mine.reads_files(partition) and mine.bucket_held_files(partition, 0):
            return lost(mine, winner, Rule.CONCURRENT_DELETE_READ, partition)
    if mine.change.operation in COMPACTIONS:
        return None
    for partition, bucket in sorted(_hides_by_key(mine, winner)):
        if mine.reads_files(partition) and mine.bucket_held_files(partition, bucket):
            return lost(mine, winner, Rule.CONCURRENT_DELETE_READ, partition)
    return None


def _removed_removed(mine: Mine, winner: Footprint) -> Conflict | None:
    change = mine.change
    compacting = change.operation in COMPACTIONS
    for gone in (*winner.removed, *winner.touched):
        if gone.path in mine.named:
            return lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
        if gone.is_delete_set or not mine.knew(gone):
            continue
        hidden_by_me = (gone.partition, gone.bucket) in mine.buckets and winner.operation not in COMPACTIONS
        if mine.hid_rows_of(gone.path) or hidden_by_me or gone.partition in mine.hides_anywhere:
            return lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if partition in mine.removed_in or mine.hides_rows_in(partition):
            return lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, partition)
    if compacting:
        return None
    for place in sorted(_hides_by_key(mine, winner)):
        if place in mine.removed_places or (place in mine.buckets and mine.bucket_held_files(*place)):
            return lost(mine, winner, Rule.CONCURRENT_DELETE_DELETE, place[0])
    return None
