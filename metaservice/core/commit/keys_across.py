"""Keys that are unique across partitions: two writers of one key meet, whichever partitions they write it to.

A writer looks its keys up in all partitions as of its read version. It writes an image to one partition and a tombstone
to the one where the key lived. So whoever writes a row writes its key, found or not, and so did a winner that changed
where the key lives. A DELETE or UPDATE that finds no row writes nothing, and changes nothing:

    mine     reads 4: 7 is nowhere       writes 7 to day=2
    winner   reads 4: 7 is nowhere       writes 7 to day=1 as version 5      both write 7: conflict

A key has one bucket number in all partitions. Under `row_level` changes name their keys, and only equal ones conflict.
Under the other profiles, and where a change doesn't name them, changes that share a bucket number do.

A RESTORE names no key, and any may live elsewhere after it. Under the Delta profiles it leaves what was added after its
read version, which must not be keys that it brings back.
"""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.commit.row_level import Race
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import COMPACTIONS, Change, Footprint, Operation, Rule
from metaservice.core.table.snapshots import Snapshots


class KeysAcross:
    """The keys that a change writes, by bucket number."""

    def __init__(self, change: Change, meta: TableMeta, snapshots: Snapshots) -> None:
        self._change = change
        self._snapshots = snapshots
        self._leaves_later_rows = change.operation is Operation.RESTORE and meta.profile.is_delta
        self._by_keys = meta.profile is Profile.ROW_LEVEL
        compacts = change.operation in COMPACTIONS
        self._places = frozenset() if compacts else frozenset((entry.partition, entry.bucket) for entry in change.adds)
        self._buckets = frozenset(bucket for _, bucket in self._places)
        self._hashes: dict[int, frozenset[int]] | None = None

    def against(self, winner: Footprint) -> Race | None:
        """The conflict with a winner, if both may have written a key."""
        if winner.operation in COMPACTIONS or not winner.partitions:
            return None
        if self._leaves_later_rows and winner.added:
            return Race(Rule.CONCURRENT_KEY, winner.added[0][1])
        if not self._places:
            return None
        if winner.operation is Operation.RESTORE:
            return Race(Rule.CONCURRENT_KEY, min(winner.partitions))
        near = [added for added in winner.added if added[2] in self._buckets]
        if not near:
            return None
        if self._by_keys:
            return self._same_keys(winner)
        path, partition, _ = near[0]
        return Race(Rule.CONCURRENT_KEY, partition, path)

    def _same_keys(self, winner: Footprint) -> Race | None:
        if self._change.key_sets is None:
            return None
        theirs = self._snapshots.wrote(winner.version)
        if not theirs.is_known:
            return Race(Rule.CONCURRENT_KEY, min(winner.partitions))
        for place, entry in {(file.partition, file.bucket): file for file in theirs.files}.items():
            if place[1] not in self._buckets:
                continue
            own, keys = self._own_hashes(place[1]), theirs.keys.get(place)
            if own is None or keys is None:
                return Race(Rule.CONCURRENT_KEY, entry.partition, entry.path)
            both = sorted(own.intersection(keys))
            if both:
                return Race(Rule.CONCURRENT_KEY, entry.partition, "", tuple(both[: limits.ROWS_SAMPLED_MAX]))
        return None

    def _own_hashes(self, bucket: int) -> frozenset[int] | None:
        """The keys that the change writes to a bucket in any partition; None if it doesn't name all of them."""
        if self._hashes is None:
            named = {(keys.partition, keys.bucket): keys.hashes for keys in self._change.key_sets or ()}
            unnamed = {place[1] for place in self._places if place not in named}
            by_number: dict[int, set[int]] = {number: set() for number in self._buckets - unnamed}
            for (_, number), hashes in named.items():
                if number in by_number:
                    by_number[number].update(hashes)
            self._hashes = {number: frozenset(hashes) for number, hashes in by_number.items()}
        return self._hashes.get(bucket)
