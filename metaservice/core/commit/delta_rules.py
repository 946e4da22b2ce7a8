"""The rules of the Delta profiles: does a change conflict with a winner?"""

from __future__ import annotations

from collections.abc import Iterator

from metaservice.core.commit.judged_change import JudgedChange, is_quiet_alter, lost
from metaservice.core.table.meta import Profile
from metaservice.core.table.model import COMPACTIONS, ROW_CHANGES, UNSORTED, Conflict, Footprint, Operation, Rule


def delta_conflict(judged: JudgedChange, winner: Footprint) -> Conflict | None:
    change = judged.change
    alteration = change.alteration
    own_features = alteration is not None and alteration.changes_features
    if winner.features_removed or (winner.features_changed and own_features):
        return None if is_quiet_alter(judged) else lost(judged, winner, Rule.PROTOCOL_CHANGED)
    if winner.metadata_changed:
        return None if is_quiet_alter(judged) else lost(judged, winner, Rule.METADATA_CHANGED)
    if winner.app_ids and set(winner.app_ids) & set(change.app_ids_read):
        return lost(judged, winner, Rule.CONCURRENT_TRANSACTION)
    if judged.blind and not judged.buckets:
        return None
    if _ids_keep_both(judged, winner):
        judged.follow(winner)
        return None
    return _appends(judged, winner) or _removed_read(judged, winner) or _removed_removed(judged, winner)


def _ids_keep_both(judged: JudgedChange, winner: Footprint) -> bool:
    """Return whether one is a compaction that doesn't sort, and the other changes rows of an append table by their ids.

    The outputs keep the ids of the rows, and have a lower data version than the delete set, whichever commits first.
    """
    change = judged.change
    if judged.meta.keyed or change.removes or not all(gone.is_delete_set or winner.groups for gone in winner.removed):
        return False
    if winner.operation in UNSORTED:
        return change.operation in ROW_CHANGES or change.operation is Operation.INSERT
    return change.operation in UNSORTED and winner.operation in ROW_CHANGES


def _appends(judged: JudgedChange, winner: Footprint) -> Conflict | None:
    level = judged.level
    if level is None:
        return None
    if judged.buckets:
        for path, partition, bucket in winner.added:
            both_write = (partition, bucket) in judged.buckets and winner.operation not in COMPACTIONS
            if both_write and not judged.bucket_held_files(partition, bucket):
                return lost(judged, winner, Rule.CONCURRENT_APPEND, partition, path)
    if judged.blind:
        return None
    for path, partition, bucket in _added_again(winner):
        if not _candidate(judged, winner, level, partition, bucket):
            continue
        if not judged.meta.partitioning.columns or judged.reads(partition):
            return lost(judged, winner, Rule.CONCURRENT_APPEND, partition, path)
    return None


def _added_again(winner: Footprint) -> Iterator[tuple[str, str, int]]:
    """The entries that the winner added or hid rows of: hiding counts as removing a file and adding it again."""
    yield from winner.added
    for touched in winner.touched:
        yield touched.path, touched.partition, touched.bucket
    for partition in sorted(winner.hid_anywhere):
        yield "", partition, 0


def _candidate(judged: JudgedChange, winner: Footprint, level: Profile, partition: str, bucket: int) -> bool:
    if level is Profile.DELTA_SERIALIZABLE or not winner.blind:
        return True
    alteration = judged.change.alteration
    if alteration is not None and alteration.changes_metadata:
        return True
    if not judged.meta.keyed:
        return False
    return judged.reads_files(partition) or (partition, bucket) in judged.buckets


def _hides_by_key(judged: JudgedChange, winner: Footprint) -> frozenset[tuple[str, int]]:
    """Return the buckets in which the winner hid older images of its keys."""
    if not judged.meta.keyed or winner.operation in COMPACTIONS:
        return frozenset()
    return frozenset((partition, bucket) for _, partition, bucket in winner.added)


def _removed_read(judged: JudgedChange, winner: Footprint) -> Conflict | None:
    for gone in (*winner.removed, *winner.touched):
        if not gone.is_delete_set and judged.knew(gone) and judged.reads_files(gone.partition):
            return lost(judged, winner, Rule.CONCURRENT_DELETE_READ, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if judged.reads_files(partition) and judged.bucket_held_files(partition, 0):
            return lost(judged, winner, Rule.CONCURRENT_DELETE_READ, partition)
    if judged.change.operation in COMPACTIONS:
        return None
    for partition, bucket in sorted(_hides_by_key(judged, winner)):
        if judged.reads_files(partition) and judged.bucket_held_files(partition, bucket):
            return lost(judged, winner, Rule.CONCURRENT_DELETE_READ, partition)
    return None


def _removed_removed(judged: JudgedChange, winner: Footprint) -> Conflict | None:
    change = judged.change
    compacting = change.operation in COMPACTIONS
    for gone in (*winner.removed, *winner.touched):
        if gone.path in judged.named:
            return lost(judged, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
        if gone.is_delete_set or not judged.knew(gone):
            continue
        hidden_by_me = (gone.partition, gone.bucket) in judged.buckets and winner.operation not in COMPACTIONS
        if judged.hid_rows_of(gone.path) or hidden_by_me or gone.partition in judged.hides_anywhere:
            return lost(judged, winner, Rule.CONCURRENT_DELETE_DELETE, gone.partition, gone.path)
    for partition in sorted(winner.hid_anywhere):
        if partition in judged.removed_in or judged.hides_rows_in(partition):
            return lost(judged, winner, Rule.CONCURRENT_DELETE_DELETE, partition)
    if compacting:
        return None
    for place in sorted(_hides_by_key(judged, winner)):
        if place in judged.removed_places or (place in judged.buckets and judged.bucket_held_files(*place)):
            return lost(judged, winner, Rule.CONCURRENT_DELETE_DELETE, place[0])
    return None
