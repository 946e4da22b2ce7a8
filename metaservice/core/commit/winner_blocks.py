"""Runs of consecutive commits, summed up, so that a transaction that many overtook is judged against all at once.

A block has the partitions, operations and keys of its commits. If none of them can matter to a change, the change
passes all of them; otherwise it is judged against one after the other, as if there were no block.

    versions 1 to 255     INSERT into p=1, UPDATE of p=2      mine: UPDATE of p=3 since version 0
                          passed at once: nothing touches p=3
    versions 256 to 511   INSERT into p=3                     judged one by one
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from metaservice.core import limits
from metaservice.core.commit.judge import Judging
from metaservice.core.commit.row_level import RowChange
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import COMPACTIONS, Conflict, Footprint, KeySet, Operation
from metaservice.core.table.profiles import CLASS_OF, FOLLOWS, OpClass
from metaservice.core.table.rows import Place

_KEYS_AT_ONCE = 20  # that are looked up while one comparison is made
_BYTES_OF_A_NAME = 200  # of a partition or an application id, with its place in a table


class WinnerBlock:
    """What the commits of `first` to `last` did, taken together.

    `special`: one changed metadata or features, or there is too much to sum up. `only_blind_inserts`: all are blind
    INSERTs. `only_adds`: none removed, hid or compacted anything. `keys` are the written ones, by bucket: None for a
    bucket where a commit didn't name them, and None if they are too many or the table's profile doesn't need them.
    """

    __slots__ = (
        "_calm",
        "_calm_appends",
        "_last_plain",
        "app_ids",
        "first",
        "keys",
        "keys_left",
        "last",
        "only_adds",
        "only_blind_inserts",
        "operations",
        "partitions",
        "shared",
        "special",
    )

    def __init__(self, first: int, *, with_keys: bool) -> None:
        self.first = first
        self.last = first - 1
        self.partitions: dict[str, set[Operation]] = {}  # in the order of the commits
        self.operations: set[Operation] = set()
        self.app_ids: set[str] = set()
        self.keys: dict[Place, array[int] | None] | None = {} if with_keys else None
        self.keys_left = limits.WINNER_BLOCK_KEYS_MAX
        self.special = self.shared = False
        self.only_blind_inserts = self.only_adds = True
        self._calm = self._calm_appends = True
        self._last_plain: tuple[object, ...] | None = None  # the last commit, if that is all that it did

    @property
    def size_bytes(self) -> int:
        places = self.keys or {}
        keys = sum(len(hashes) for hashes in places.values() if hashes is not None)
        return _BYTES_OF_A_NAME * (1 + len(self.partitions) + len(self.app_ids) + len(places)) + 8 * keys

    def is_calm(self, *, keyed: bool) -> bool:
        """Whether each commit `is_calm` for a table with or without a key."""
        return self._calm if keyed else self._calm_appends

    @property
    def only_blind_appends(self) -> bool:
        """Whether each commit `is_blind_append` to a table without a key."""
        return self.only_blind_inserts and not self.shared

    def add(self, winner: Footprint, key_sets: Sequence[KeySet] | None) -> None:
        """Adds the next commit."""
        self.last = winner.version
        if self.special:
            return
        operation = winner.operation
        changes = bool(winner.removed or winner.touched or winner.groups or winner.hid_anywhere)
        alters = winner.metadata_changed or winner.features_changed or winner.features_removed
        plain = None
        if not (changes or alters or winner.app_ids or self.keys is not None):
            plain = (operation, winner.blind, winner.shared, winner.partitions)
            if plain == self._last_plain:
                return  # appends follow each other: it says nothing new
        self._last_plain = plain
        blind_insert = winner.blind and operation is Operation.INSERT
        names = winner.partitions
        if changes:
            names |= winner.hid_anywhere
            names |= {gone.partition for gone in (*winner.removed, *winner.touched)}
            names |= {group.partition for group in winner.groups}
        for name in sorted(names) if len(names) > 1 else names:
            self.partitions.setdefault(name, set()).add(operation)
        self.operations.add(operation)
        self.app_ids.update(winner.app_ids)
        self.shared = self.shared or winner.shared
        self.only_adds = self.only_adds and not changes
        self.only_blind_inserts = self.only_blind_inserts and blind_insert and not changes
        idle = operation in COMPACTIONS or not (winner.partitions or winner.shared)
        self._calm = self._calm and idle
        self._calm_appends = self._calm_appends and (idle or (blind_insert and not winner.shared))
        if self.keys is not None and operation not in COMPACTIONS:
            self._add_keys(self.keys, winner, key_sets or ())
        self.special = alters or max(len(self.partitions), len(self.app_ids)) > limits.WINNER_BLOCK_NAMES_MAX
        if self.special:  # it is never looked into again
            self.partitions, self.app_ids, self.keys = {}, set(), None

    def _add_keys(self, keys: dict[Place, array[int] | None], winner: Footprint, key_sets: Sequence[KeySet]) -> None:
        named = {(key_set.partition, key_set.bucket): key_set.hashes for key_set in key_sets}
        self.keys_left -= sum(len(hashes) for hashes in named.values())
        for place in {(partition, bucket) for _, partition, bucket in winner.added}:
            hashes, before = named.get(place), keys.setdefault(place, array("q"))
            if hashes is None or before is None:
                keys[place] = None
            else:
                before.extend(hashes)
        names = max(len(winner.added), len(keys))
        if self.keys_left < 0 or names > limits.WINNER_BLOCK_NAMES_MAX:
            self.keys = None


class WinnerBlocks:
    """The blocks of a table's newest commits since the service started, within a limit."""

    __slots__ = ("_blocks", "_bytes", "_commits", "_worth")

    def __init__(
        self, commits: int = limits.WINNER_BLOCK_COMMITS, worth: int = limits.WINNER_BLOCK_COMMITS_WORTH
    ) -> None:
        """`commits`: of a block. `worth`: with fewer commits to come a block is not looked at."""
        self._commits = commits
        self._worth = worth
        self._blocks: dict[int, WinnerBlock] = {}
        self._bytes = 0

    def add(self, winner: Footprint, key_sets: Sequence[KeySet] | None, meta: TableMeta) -> None:
        """Adds the commit at the head."""
        version = winner.version
        number = version // self._commits
        block = self._blocks.get(number)
        if block is None or block.last != version - 1:
            if not version:
                return  # nobody read an earlier version
            block = self._begin(number, version, meta)
        block.add(winner, key_sets)

    def _begin(self, number: int, version: int, meta: TableMeta) -> WinnerBlock:
        with_keys = meta.keyed and meta.profile is Profile.ROW_LEVEL
        if self._blocks:
            self._bytes += next(reversed(self._blocks.values())).size_bytes
        while self._blocks and self._bytes > limits.WINNER_BLOCKS_BYTES_KEPT:
            oldest = next(iter(self._blocks))
            self._bytes -= self._blocks.pop(oldest).size_bytes
        block = self._blocks[number] = WinnerBlock(version, with_keys=with_keys)
        return block

    def covering(self, version: int) -> WinnerBlock | None:
        """The block with a version, if many commits of it follow."""
        block = self._blocks.get(version // self._commits)
        if block is None or block.first > version or block.last - version < self._worth:
            return None
        return block


def meet_block(judging: Judging, block: WinnerBlock) -> Conflict | None:
    """Passes all commits of a block if none of them can matter; else `judging.met` stays as it is.

    A conflict is one with earlier winners, which judging had put off. May raise Paused.
    """
    own = judging.judged
    change, keyed = own.change, own.meta.keyed
    if judging.keys_across is not None:
        return None  # a block knows keys by partition
    own.work.begin_winner(5 + len(block.partitions))
    if judging.passes_inserts and block.only_blind_inserts and not block.special:
        judging.pass_until(block.last)
        return None
    if block.special or not block.app_ids.isdisjoint(change.app_ids_read):
        return None
    if not judging.grouped.isdisjoint(block.partitions) and (keyed or not block.only_adds):
        return None  # rebasing a compaction looks at these
    if judging.rows is not None:
        return _meet_by_rows(judging, judging.rows, block)
    passes = _passes_by_table(judging, block) if judging.by_table else _passes_delta(judging, block)
    if passes:
        judging.pass_until(block.last)
    return None


def _passes_by_table(judging: Judging, block: WinnerBlock) -> bool:
    own = judging.judged
    follows = FOLLOWS[own.change.operation]
    return not any(
        own.may_concern(partition) for partition, done in block.partitions.items() if not done.issubset(follows)
    )


def _passes_delta(judging: Judging, block: WinnerBlock) -> bool:
    own = judging.judged
    if own.blind and not own.buckets:
        return True
    alteration = own.change.alteration
    if (
        block.only_blind_inserts
        and not own.meta.keyed
        and own.level is not Profile.DELTA_SERIALIZABLE
        and not (alteration is not None and alteration.changes_metadata)
    ):
        return True
    if not own.meta.partitioning.columns:
        return not block.partitions
    return not any(own.may_concern(partition) for partition in block.partitions)


def _meet_by_rows(judging: Judging, me: RowChange, block: WinnerBlock) -> Conflict | None:
    own = judging.judged
    change, keyed = own.change, own.meta.keyed
    reads_order = bool(change.app_versions)
    if not any(own.may_concern(partition) for partition in block.partitions) or _has_other_keys(judging, me, block):
        conflict = None if block.is_calm(keyed=keyed) and not reads_order else judging.settle(may_skip=False)
        if conflict is None:
            judging.pass_until(block.last)
        return conflict
    reads_and_replaces = bool(me.readings) and CLASS_OF.get(change.operation) is OpClass.INSERT_OVERWRITE
    if block.only_blind_appends and not (keyed or reads_order or reads_and_replaces):
        judging.put_off_until(block.last)
    return None


def _has_other_keys(judging: Judging, me: RowChange, block: WinnerBlock) -> bool:
    """Whether the block's commits concern the change by the keys that they wrote alone, and wrote none of its keys."""
    change = judging.judged.change
    replaced = any(CLASS_OF.get(done) is OpClass.INSERT_OVERWRITE for done in block.operations)
    if not judging.judged.meta.keyed or me.readings or replaced or change.scope is not None or block.keys is None:
        return False
    if change.key_sets is None:
        return True
    for place in me.places:
        if place not in block.keys:
            continue
        keys, own_keys = block.keys[place], me.key_hashes(place)
        if keys is None or own_keys is None:
            return False
        judging.judged.work.left -= len(keys) // _KEYS_AT_ONCE
        if not own_keys.isdisjoint(keys):
            return False
    return True
