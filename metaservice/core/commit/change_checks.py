"""Checks that refuse a change that could never commit, whatever other transactions do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from metaservice.core.errors import MetaError, invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import (
    COMPACTIONS,
    ROW_CHANGES,
    SCOPED,
    Change,
    Entry,
    FileKind,
    Group,
    Live,
    Operation,
)
from metaservice.core.table.rows import Place
from metaservice.core.table.snapshots import Snapshots

VERIFY = "compaction.verify"


def check(change: Change, meta: TableMeta, snapshots: Snapshots) -> None:
    """Refuses a change that could never commit, whatever other transactions do."""
    if is_blind_insert(change):
        _check_adds(change, meta)
        check_key_sets(change, meta)
    else:
        check_change(change, meta, snapshots)


def is_blind_insert(change: Change) -> bool:
    """Whether it only adds files: most commits do, and few of the following checks concern them."""
    return change.operation is Operation.INSERT and not (
        change.reads or change.removes or change.groups or change.scope or change.alteration
    )


def check_change(change: Change, meta: TableMeta, snapshots: Snapshots) -> None:
    """Refuses a change that breaks the rules of its table by itself."""
    operation = change.operation
    custom = operation is Operation.CUSTOM
    if custom and not meta.profile.is_delta:
        raise invalid("CUSTOM_NOT_ALLOWED", profile=meta.profile)
    if operation is Operation.CREATE:
        raise invalid("OPERATION_INVALID", operation=operation.name)
    if change.removes and not custom:
        raise invalid("REMOVES_NOT_ALLOWED", operation=operation.name)
    if (change.scope is not None) != (operation in SCOPED):
        raise invalid("SCOPE_MISMATCH", operation=operation.name)
    if bool(change.groups) != (operation in COMPACTIONS):
        raise invalid("GROUPS_MISMATCH", operation=operation.name)
    if not custom and not _may_alter(change):
        raise invalid("ALTERATION_MISMATCH", operation=operation.name)
    if operation in (Operation.TRUNCATE, Operation.RESTORE, Operation.ALTER) and change.adds:
        raise invalid("FILES_NOT_ALLOWED", operation=operation.name)
    if meta.key_spans_partitions:
        _check_spanning(change)
    if operation is Operation.RESTORE and not 0 <= change.restore_version <= change.read_version:
        raise invalid("RESTORE_VERSION_INVALID", restore=change.restore_version, read=change.read_version)
    _check_adds(change, meta)
    check_key_sets(change, meta)
    _check_refs(change, snapshots)
    _check_groups(change, meta, snapshots)


def _check_spanning(change: Change) -> None:
    """Refuses what could bring a second row of a key back, in another partition, without naming the key."""
    operation, scope = change.operation, change.scope
    if operation is Operation.CUSTOM:
        raise invalid("KEY_SPANS_PARTITIONS", operation=operation.name)
    if operation is Operation.RESTORE and scope is not None and scope.partitions is not None:
        raise invalid(
            "KEY_SPANS_PARTITIONS",
            "the key is unique across partitions, and a row may live in another one since: restore the whole table",
            operation=operation.name,
        )


def _may_alter(change: Change) -> bool:
    """Whether the change may have, or lack, its alteration. An overwrite of everything may come with one."""
    alteration, scope = change.alteration, change.scope
    if alteration is not None and change.operation is Operation.OVERWRITE:
        return scope is not None and scope.partitions is None
    redefines = alteration is not None and alteration.replacement is not None
    return (change.operation is Operation.ALTER) == (alteration is not None) and not redefines


def _check_adds(change: Change, meta: TableMeta) -> None:
    seen: set[str] = set()
    scope = change.scope
    for entry in change.adds:
        if entry.path in seen:
            raise invalid("PATH_TWICE", path=entry.path)
        seen.add(entry.path)
        if scope is not None and not scope.touches(entry.partition):
            raise invalid("FILE_OUTSIDE_SCOPE", path=entry.path, partition=entry.partition)
        if entry.is_delete_set:
            if change.operation not in ROW_CHANGES and change.operation is not Operation.CUSTOM:
                raise invalid("DELETE_SET_NOT_ALLOWED", operation=change.operation.name)
            continue
        if change.operation is Operation.MAJOR_COMPACT and meta.keyed and entry.kind is not FileKind.BASE:
            raise invalid("FILE_KIND_INVALID", "a major compaction must write base files", path=entry.path)
        is_upsert = change.operation is Operation.INSERT or change.operation in ROW_CHANGES
        if is_upsert and meta.keyed and entry.kind is not FileKind.DELTA:
            raise invalid("FILE_KIND_INVALID", "changes of rows must write delta files", path=entry.path)


def _check_refs(change: Change, snapshots: Snapshots) -> None:
    for ref in change.removes:
        live = snapshots.find(change.read_version, ref.partition, ref.bucket, ref.path)
        if live is None or live.entry.is_delete_set:
            raise invalid("FILE_NOT_LIVE", path=ref.path, partition=ref.partition, read=change.read_version)
    if len({ref.path for ref in change.removes}) != len(change.removes):
        raise invalid("PATH_TWICE", "the change removes a file twice: name each file once")
    for entry in change.adds:
        for path in entry.touches:
            live = snapshots.find(change.read_version, entry.partition, 0, path)
            if live is None or live.entry.is_delete_set:
                raise invalid(
                    "FILE_NOT_LIVE", "the delete set touches a file that was not live at the read version", path=path
                )


def _check_groups(change: Change, meta: TableMeta, snapshots: Snapshots) -> None:
    outputs: set[str] = set()
    places: set[tuple[str, int]] = set()
    by_path = {entry.path: entry for entry in change.adds}
    for group in change.groups:
        place = (group.partition, group.bucket)
        if place in places:
            raise invalid("GROUP_TWICE", partition=group.partition, bucket=group.bucket)
        places.add(place)
        if not group.inputs or len(set(group.inputs)) != len(group.inputs):
            raise invalid("GROUP_INPUTS_INVALID", partition=group.partition)
        for path in group.outputs:
            entry = by_path.get(path)
            if entry is None or path in outputs or (entry.partition, entry.bucket) != place:
                raise invalid("GROUP_OUTPUT_INVALID", "an output must be a file of the group's bucket", path=path)
            outputs.add(path)
        check_inputs(change, meta, snapshots, group)
        check_digests(group, by_path, meta)
    if change.groups and outputs != by_path.keys():
        raise invalid(
            "GROUP_OUTPUT_INVALID",
            "a file of the compaction belongs to no group: name it as an output",
            count=len(by_path),
        )


def check_inputs(change: Change, meta: TableMeta, snapshots: Snapshots, group: Group) -> None:
    """Refuses inputs that are not live at the read version, or that leave out a required file."""
    files = files_of(snapshots.live(change.read_version, group.partition, group.bucket))
    for path in group.inputs:
        if path not in files:
            raise invalid("INPUT_NOT_LIVE", path=path, partition=group.partition, read=change.read_version)
    if change.operation is Operation.MAJOR_COMPACT:
        left_out = files.keys() - set(group.inputs)
    elif meta.keyed:
        left_out = set(run_between(files, group.inputs)) - set(group.inputs)
    else:
        left_out = set()
    if left_out:
        raise invalid("COMPACTION_INCOMPLETE", path=min(left_out), partition=group.partition, bucket=group.bucket)


def files_of(live: Iterable[Live]) -> dict[str, Live]:
    """Return the files by path, without delete sets."""
    return {file.entry.path: file for file in live if not file.entry.is_delete_set}


def run_between(files: Mapping[str, Live], inputs: Sequence[str]) -> list[str]:
    """Every file between the lowest and the highest data version of the inputs, ends included."""
    versions = [files[path].data_version for path in inputs if path in files]
    low, high = min(versions), max(versions)
    return [path for path, live in files.items() if low <= live.data_version <= high]


def check_digests(group: Group, outputs: Mapping[str, Entry], meta: TableMeta) -> None:
    """Refuses a group whose outputs don't hold the rows of its inputs.

    Given counts and digests are always compared. With the property set to `true` both digests are required; if it isn't
    set, a compaction without digests is accepted.
    """
    written = sum(outputs[path].rows for path in group.outputs)
    given = (bool(group.input_digest), bool(group.output_digest))
    is_required = meta.properties.get(VERIFY) == "true"
    if any(given) != all(given) or (is_required and not all(given)):
        raise invalid("COMPACTION_DIGEST_MISSING", **_facts(group))
    counted = all(count in (None, written) for count in (group.input_rows, group.output_rows))
    if not counted or group.input_digest != group.output_digest:
        raise _mismatch(group, written)


def _mismatch(group: Group, written: int) -> MetaError:
    declared = {
        "input_rows": group.input_rows,
        "output_rows": group.output_rows,
        "input_digest": group.input_digest.hex() or None,
        "output_digest": group.output_digest.hex() or None,
    }
    facts = {**_facts(group), "rows": written, **{name: value for name, value in declared.items() if value is not None}}
    return invalid(
        "COMPACTION_DIGEST_MISMATCH",
        **facts,
    )


def _facts(group: Group) -> dict[str, object]:
    return {"partition": group.partition, "bucket": group.bucket}


def check_key_sets(change: Change, meta: TableMeta) -> None:
    """Checks that a key set has a key for each row that the change writes to its bucket."""
    if not change.key_sets:
        return
    if not meta.keyed or change.operation in COMPACTIONS:
        raise invalid("KEY_SET_NOT_ALLOWED")
    rows: dict[Place, int] = {}
    for entry in change.adds:
        place = (entry.partition, entry.bucket)
        rows[place] = rows.get(place, 0) + entry.rows
    for key_set in change.key_sets:
        written = rows.get((key_set.partition, key_set.bucket), 0)
        if len(key_set.hashes) != written:
            facts = {
                "partition": key_set.partition,
                "bucket": key_set.bucket,
                "keys": len(key_set.hashes),
                "rows": written,
            }
            raise invalid("KEY_SET_INCOMPLETE", **facts)
