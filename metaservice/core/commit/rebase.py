"""The form of a change on top of the head: its removals now, and its data versions.

`change_checks.py` has already refused changes that could never commit; here metadata is recomputed against the head. A
compaction's group commits only if every input is live, or (maxcompute, MAJOR over MINOR only) ends in live files that
come from the group's inputs alone. Everything else is a conflict (LINEAGE).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from metaservice.core.commit.change_checks import check, files_of, is_blind_insert
from metaservice.core.commit.judge import judge
from metaservice.core.commit.judged_change import JudgedChange, advice_for, removals_at
from metaservice.core.errors import BrokenInvariantError, invalid
from metaservice.core.table.external import identity_of
from metaservice.core.table.meta import Profile, TableMeta
from metaservice.core.table.model import (
    COMPACTIONS,
    SCOPED,
    Advice,
    Change,
    Conflict,
    Entry,
    Footprint,
    Group,
    Live,
    Operation,
    Principal,
    Removed,
    Rule,
    TableCommit,
    hides_beyond,
)
from metaservice.core.table.profiles import writers_look_at
from metaservice.core.table.snapshots import Snapshots


@dataclass(slots=True)
class Author:
    """The author of a change."""

    txn_id: str
    principal: Principal


@dataclass(slots=True)
class _Swap:
    """The entries that leave and enter the snapshot."""

    removed: list[Live] = field(default_factory=list)
    added: list[Live] = field(default_factory=list)
    kept: list[Live] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


def decide(
    change: Change,
    meta: TableMeta,
    winners: Sequence[Footprint],
    snapshots: Snapshots,
    author: Author,
    head: int,
    time_us: int,
) -> TableCommit | Conflict:
    """Judges, then rebases. Raises MetaError if the change could never commit."""
    check(change, meta, snapshots)
    conflict = judge(change, meta, winners, snapshots)
    return conflict or commit_on_top(change, meta, winners, snapshots, author, head, time_us)


def commit_on_top(
    change: Change,
    meta: TableMeta,
    winners: Sequence[Footprint],
    snapshots: Snapshots,
    author: Author,
    head: int,
    time_us: int,
) -> TableCommit | Conflict:
    """The commit of a change that was checked and that no winner conflicts with.

    Only winners that changed a partition of its groups matter.
    """
    if is_blind_insert(change):
        return _insert(change, snapshots, author, head, time_us)
    return commit_any(change, meta, winners, snapshots, author, head, time_us)


def _insert(
    change: Change,
    snapshots: Snapshots,
    author: Author,
    head: int,
    time_us: int,
) -> TableCommit | Conflict:
    """The same as `commit_any`, at less cost."""
    version = head + 1
    live, added, partitions, external = [], [], set(), False
    for entry in change.adds:
        live.append(Live(entry, version, version))
        added.append((entry.path, entry.partition, entry.bucket))
        partitions.add(entry.partition)
        external = external or entry.external
    if external:
        _check_external(change, _Swap(added=live), snapshots)
    footprint = Footprint(
        version,
        time_us,
        author.txn_id,
        Operation.INSERT,
        author.principal,
        frozenset(partitions),
        tuple(added),
        blind=change.others_blind,
        app_ids=tuple(app_id for app_id, _ in change.app_versions),
    )
    return TableCommit(version, time_us, change, head - change.read_version, footprint, live, [])


def commit_any(
    change: Change,
    meta: TableMeta,
    winners: Sequence[Footprint],
    snapshots: Snapshots,
    author: Author,
    head: int,
    time_us: int,
) -> TableCommit | Conflict:
    """The general way, for a change of any kind."""
    swap = _swap(change, meta, winners, snapshots, head)
    if isinstance(swap, Conflict):
        return swap
    _check_external(change, swap, snapshots)
    if not meta.keyed:
        swap.removed += _idle_delete_sets(swap, snapshots, head)
    footprint = _footprint(change, meta, swap, snapshots, author, head, time_us)
    after = meta.altered(change.alteration) if change.alteration is not None else None
    passed = head - change.read_version
    return TableCommit(head + 1, time_us, change, passed, footprint, swap.added, swap.removed, after)


def _check_external(change: Change, swap: _Swap, snapshots: Snapshots) -> None:
    """A staged path belongs to its transaction; an external file may be live already, also under another spelling."""
    given: dict[str, str] = {}
    for entry in change.adds:
        if not entry.external:
            continue
        identity = identity_of(entry.path)
        if identity in given:
            raise invalid(
                "PATH_TWICE", "two entries name the same file: name it once", path=entry.path, other=given[identity]
            )
        given[identity] = entry.path
    removed = {_place(live.entry) for live in swap.removed} if given else set()
    for path in given.values():
        for live in snapshots.find_imports(path):
            if _place(live.entry) not in removed:
                raise invalid(
                    "PATH_LIVE", "the file is already in the table: leave it out", path=path, live=live.entry.path
                )


def _place(entry: Entry) -> tuple[str, int, str]:
    return entry.partition, entry.bucket, entry.path


def _swap(
    change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Snapshots, head: int
) -> _Swap | Conflict:
    if change.groups:
        return _swap_groups(change, meta, winners, snapshots, head)
    swap = _Swap()
    if change.operation in SCOPED and meta.profile.is_delta:
        then = {live.entry.path for live in removals_at(change, snapshots, change.read_version)}
        swap.removed = [live for live in removals_at(change, snapshots, head) if live.entry.path in then]
    else:
        swap.removed = list(removals_at(change, snapshots, head))
        if len(swap.removed) != len(change.removes) and change.removes:
            raise BrokenInvariantError("a file that may be removed is not live")
    if change.operation is Operation.RESTORE:
        _bring_back(change, snapshots, swap)
    swap.added += [Live(entry, head + 1, head + 1) for entry in change.adds]
    return swap


def _bring_back(change: Change, snapshots: Snapshots, swap: _Swap) -> None:
    """A restored entry keeps its old data version; an entry that stayed live is unchanged."""
    scope = change.scope
    if scope is None:
        raise BrokenInvariantError("a restore without a scope")
    now = {live.entry.path: live for live in swap.removed}
    for live in snapshots.live(change.restore_version):
        if not scope.touches(live.entry.partition):
            continue
        current = now.get(live.entry.path)
        if current is not None and current.data_version == live.data_version:
            swap.kept.append(now.pop(live.entry.path))
        else:
            swap.added.append(Live(live.entry, live.data_version, 0))
    swap.removed = list(now.values())


def _swap_groups(
    change: Change, meta: TableMeta, winners: Sequence[Footprint], snapshots: Snapshots, head: int
) -> _Swap | Conflict:
    swap = _Swap()
    by_path = {entry.path: entry for entry in change.adds}
    steps = _steps(winners)
    for group in change.groups:
        then = files_of(snapshots.live(change.read_version, group.partition, group.bucket))
        now = files_of(snapshots.live(head, group.partition, group.bucket))
        gone = _follow(change, meta, steps, group)
        if isinstance(gone, Footprint):
            return _lineage(change, group, gone)
        missing = gone - now.keys()
        if missing:
            raise BrokenInvariantError(f"inputs vanished without a commit: {sorted(missing)[:3]}")
        whole = change.operation is Operation.MAJOR_COMPACT or not meta.keyed
        highest = max(then[path].data_version for path in group.inputs)
        data_version = change.read_version if whole else highest
        stray = _stray(change, meta, group, then, now, gone)
        if stray is not None:
            winner = next((w for w in winners if w.version == stray.added), winners[-1] if winners else None)
            if winner is None:
                raise BrokenInvariantError("a file strayed into a run without a commit")
            return _lineage(change, group, winner)
        swap.removed += [now[path] for path in sorted(gone)]
        swap.added += [Live(by_path[path], data_version, head + 1) for path in group.outputs]
        swap.groups.append(Group(group.partition, group.bucket, tuple(sorted(gone)), group.outputs))
    return swap


def _stray(
    change: Change,
    meta: TableMeta,
    group: Group,
    then: Mapping[str, Live],
    now: Mapping[str, Live],
    gone: set[str],
) -> Live | None:
    """A live file that the outputs' data versions would order wrongly (a RESTORE brought it back)."""
    if not meta.keyed:
        return None
    versions = [then[path].data_version for path in group.inputs]
    low = 0 if change.operation is Operation.MAJOR_COMPACT else min(versions)
    high = change.read_version if change.operation is Operation.MAJOR_COMPACT else max(versions)
    for path, live in now.items():
        if path not in gone and low <= live.data_version <= high:
            return live
    return None


@dataclass(slots=True)
class _Step:
    """The effect of one winner in one bucket: its groups, and its other removals."""

    winner: Footprint
    groups: list[Group] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)


_Steps = Mapping[tuple[str, int], Sequence[_Step]]


def _steps(winners: Iterable[Footprint]) -> _Steps:
    """Return the winners' compactions and removals by bucket, in version order."""
    by_place: dict[tuple[str, int], list[_Step]] = {}

    def step(place: tuple[str, int], winner: Footprint) -> _Step:
        steps = by_place.setdefault(place, [])
        if not steps or steps[-1].winner is not winner:
            steps.append(_Step(winner))
        return steps[-1]

    for winner in winners:
        regrouped = {path for done in winner.groups for path in done.inputs}
        for done in winner.groups:
            step(done.place, winner).groups.append(done)
        for gone in winner.removed:
            if gone.path not in regrouped:
                step((gone.partition, gone.bucket), winner).taken.add(gone.path)
    return by_place


def _follow(change: Change, meta: TableMeta, steps: _Steps, group: Group) -> set[str] | Footprint:
    """Return the live files that the group removes; or the winner that removed an input.

    A MINOR that began later than the MAJOR may be followed too: it applied no deletes that the MAJOR lacks, because the
    outcome table lets no MAJOR follow an UPDATE, DELETE, MERGE or RESTORE of its partition.
    """
    may_follow = meta.profile is Profile.MAXCOMPUTE and change.operation is Operation.MAJOR_COMPACT
    inputs = set(group.inputs)
    for step in steps.get(group.place, ()):
        for done in step.groups:
            if inputs.isdisjoint(done.inputs):
                continue
            follows = may_follow and step.winner.operation in (Operation.MINOR_COMPACT, Operation.CLUSTER)
            if not follows or not inputs.issuperset(done.inputs):
                return step.winner
            inputs = inputs.difference(done.inputs).union(done.outputs)
        if not inputs.isdisjoint(step.taken):
            return step.winner
    return inputs


def _lineage(change: Change, group: Group, winner: Footprint) -> Conflict:
    advice = advice_for(change, Rule.LINEAGE, blind=False)
    return Conflict(
        table_id=change.table_id,
        rule=Rule.LINEAGE,
        winner=winner,
        operation=change.operation,
        read_version=change.read_version,
        advice=Advice(advice),
        partition=group.partition,
        path=group.inputs[0],
    )


def _idle_delete_sets(swap: _Swap, snapshots: Snapshots, head: int) -> list[Live]:
    """Return delete sets that no longer hide a row of any live file."""
    removed = {live.entry.path for live in swap.removed}
    dropped: list[Live] = []
    for partition in sorted({live.entry.partition for live in swap.removed}):
        remaining = [live for live in snapshots.live(head, partition) if live.entry.path not in removed]
        sets = [live for live in remaining if live.entry.is_delete_set]
        files = [live for live in remaining if not live.entry.is_delete_set]
        files += [live for live in swap.added if live.entry.partition == partition and not live.entry.is_delete_set]
        dropped += [delete_set for delete_set in sets if not any(_may_hide(delete_set, live) for live in files)]
    return dropped


def _may_hide(delete_set: Live, live: Live) -> bool:
    if live.data_version >= delete_set.data_version:
        return False
    entry, hidden = live.entry, delete_set.entry
    if entry.row_id_min < 0 or hidden.row_id_min < 0:
        return True
    return entry.row_id_min <= hidden.row_id_max and hidden.row_id_min <= entry.row_id_max


def _removed(live: Live, *, data_change: bool) -> Removed:
    entry = live.entry
    return Removed(
        entry.path,
        entry.partition,
        entry.bucket,
        live.added,
        live.data_version,
        entry.rows,
        entry.size_bytes,
        entry.is_delete_set,
        data_change,
    )


def lineage_lost(change: Change, meta: TableMeta, winners: Iterable[Footprint]) -> Conflict | None:
    """Return the conflict over its inputs that a compaction already has, whatever its outputs will be."""
    steps = _steps(winners)
    for group in change.groups:
        followed = _follow(change, meta, steps, group)
        if not isinstance(followed, set):
            return _lineage(change, group, followed)
    return None


def _footprint(
    change: Change, meta: TableMeta, swap: _Swap, snapshots: Snapshots, author: Author, head: int, time_us: int
) -> Footprint:
    for live in swap.added:
        live.added = head + 1
    reorganises = change.operation in COMPACTIONS
    quiet = {ref.path for ref in change.removes if not ref.data_change}
    removed = tuple(
        _removed(live, data_change=not reorganises and live.entry.path not in quiet) for live in swap.removed
    )
    touched = [_removed(live, data_change=True) for live in swap.kept if not live.entry.is_delete_set]
    for entry in change.adds:
        for path in entry.touches:
            touched_file = snapshots.find(head, entry.partition, 0, path)
            if touched_file is not None:
                touched.append(_removed(touched_file, data_change=entry.data_change))
    live_paths = frozenset(file.path for file in touched)
    partitions = frozenset(live.entry.partition for live in swap.added) | frozenset(r.partition for r in removed)
    alteration = change.alteration
    return Footprint(
        head + 1,
        time_us,
        author.txn_id,
        change.operation,
        author.principal,
        partitions=partitions,
        added=tuple(
            (live.entry.path, live.entry.partition, live.entry.bucket)
            for live in swap.added
            if not live.entry.is_delete_set
        ),
        removed=removed,
        touched=tuple(touched),
        hid_anywhere=frozenset(
            entry.partition for entry in change.adds if entry.is_delete_set and hides_beyond(entry.touches, live_paths)
        ),
        groups=tuple(swap.groups),
        blind=JudgedChange(change, meta, snapshots).blind,
        metadata_changed=alteration is not None and writers_look_at(meta, alteration),
        features_changed=alteration is not None and bool(meta.features_after(alteration) ^ meta.features),
        features_removed=alteration is not None and bool(meta.features - meta.features_after(alteration)),
        altered=alteration is not None,
        app_ids=tuple(app_id for app_id, _ in change.app_versions),
    )
