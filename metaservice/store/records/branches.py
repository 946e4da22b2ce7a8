"""Branch, fork, what a name stood for, what a commit on a branch declared <-> bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metaservice.core.table.branches import Branch, BranchEvent, BranchEventKind
from metaservice.core.table.model import Change, Operation, Principal, Read, Scope
from protos.laketx.storage.v1 import records_pb2 as pb

ReadsOf = Callable[[Sequence[bytes]], tuple[Read, ...]]  # from the wire's messages


@dataclass(frozen=True, slots=True)
class Fork:
    """What a fork has of its base: everything up to a version, its time and its version of the schema.

    `root` is the table that has no base; the files of all its forks lie in its folder. `branch` is empty for a clone.
    `holds`: older versions of the base of which the fork restored files. `is_detached`: a clone that keeps
    nothing of its base. `made_us`: branches that were made before don't show the clone. `is_gone`: its records are
    purged; it still says in whose folder its files were. `successor`: the table that has its
    files since a merge or refresh, in these versions of it.
    """

    raw_id: bytes
    base: bytes
    version: int
    time_us: int
    schema_version: int
    root: bytes
    branch: str = ""
    holds: tuple[int, ...] = ()
    is_dropped: bool = False
    is_merged: bool = False
    left_out: tuple[int, ...] = ()  # of a merged fork: its versions whose files no other table has
    is_gone: bool = False
    successor: bytes = b""
    successor_versions: tuple[int, int] = (0, 0)  # the first and the last
    is_detached: bool = False
    made_us: int = 0  # of a clone

    def is_there(self, time_us: int) -> bool:
        """Whether the table was there at an instant. The versions that a clone has of its base are older than it."""
        return time_us >= self.made_us


def encode_branch(branch: Branch) -> bytes:
    return pb.BranchRecord(
        name=branch.name,
        branch_id=branch.branch_id,
        parent=branch.parent,
        time_us=branch.time_us,
        principal=branch.principal.name,
        client=branch.principal.client,
        comment=branch.comment,
        expire_us=branch.expire_us,
        digest=branch.digest,
        tables=branch.tables,
    ).SerializeToString()


def decode_branch(raw: bytes) -> Branch:
    record = pb.BranchRecord.FromString(raw)
    return Branch(
        record.name,
        record.branch_id,
        record.parent,
        record.time_us,
        Principal(record.principal, record.client),
        record.comment,
        record.expire_us,
        record.digest,
        tuple(record.tables),
    )


def encode_meaning(since_us: int, record: bytes) -> bytes:
    return pb.MeaningRecord(since_us=since_us, record=record).SerializeToString()


def decode_meaning(raw: bytes) -> tuple[int, bytes]:
    """Since when, and the record of what it was; empty: of nothing."""
    record = pb.MeaningRecord.FromString(raw)
    return record.since_us, record.record


def encode_fork(fork: Fork) -> bytes:
    """Field by field, as a commit: a merge ends a fork for each table."""
    record = pb.ForkRecord()
    record.base, record.version, record.time_us = fork.base, fork.version, fork.time_us
    record.schema_version, record.root, record.branch = fork.schema_version, fork.root, fork.branch
    record.is_dropped, record.is_merged = fork.is_dropped, fork.is_merged
    record.is_gone, record.is_detached, record.made_us = fork.is_gone, fork.is_detached, fork.made_us
    if fork.holds:
        record.holds.extend(fork.holds)
    if fork.left_out:
        record.left_out.extend(fork.left_out)
    if fork.successor:
        record.successor = fork.successor
        record.successor_first, record.successor_last = fork.successor_versions
    return record.SerializeToString()


def decode_fork(raw_id: bytes, raw: bytes) -> Fork:
    record = pb.ForkRecord.FromString(raw)
    return Fork(
        raw_id,
        record.base,
        record.version,
        record.time_us,
        record.schema_version,
        record.root,
        record.branch,
        tuple(record.holds),
        record.is_dropped,
        record.is_merged,
        tuple(record.left_out),
        record.is_gone,
        record.successor,
        (record.successor_first, record.successor_last),
        record.is_detached,
        record.made_us,
    )


@dataclass(frozen=True, slots=True)
class EndedRecord:
    """A fork that a merge or refresh ended: its table, the name of that, and what its record becomes."""

    raw_id: bytes
    name: str
    record: bytes


def encode_ended_forks(time_us: int, ended: Sequence[EndedRecord]) -> bytes:
    record = pb.EndedForksRecord(time_us=time_us)
    record.forks.extend([each.raw_id for each in ended])
    record.names.extend([each.name for each in ended])
    record.records.extend([each.record for each in ended])
    return record.SerializeToString()


def decode_ended_forks(raw: bytes) -> tuple[int, list[EndedRecord]]:
    """When they were dropped, and which."""
    record = pb.EndedForksRecord.FromString(raw)
    return record.time_us, list(map(EndedRecord, record.forks, record.names, record.records))


def moved_app(version: int) -> bytes:
    """In place of an application's version, which is not known: the base got a later one at this version of it."""
    return b"\x00" + version.to_bytes(8, "big")


def moved_at(raw: bytes) -> int | None:
    """That version of the base; None: it is a version of the application, which has 8 bytes."""
    return int.from_bytes(raw[1:], "big") if len(raw) > 8 else None


def encode_branch_event(event: BranchEvent) -> bytes:
    return pb.BranchEventRecord(
        kind=event.kind.value,
        branch=event.branch,
        parent=event.parent,
        time_us=event.time_us,
        principal=event.principal.name,
        client=event.principal.client,
        txn_id=event.txn_id,
        kept=event.kept,
        comment=event.comment,
    ).SerializeToString()


def decode_branch_event(raw: bytes) -> BranchEvent:
    record = pb.BranchEventRecord.FromString(raw)
    return BranchEvent(
        BranchEventKind(record.kind),
        record.branch,
        record.parent,
        record.time_us,
        Principal(record.principal, record.client),
        record.comment,
        record.txn_id,
        record.kept,
    )


def encode_declared(change: Change) -> bytes:
    """What the log's record of the commit doesn't have."""
    record = pb.DeclaredRecord(
        reads=[read.wire.SerializeToString() for read in change.reads if read.wire is not None],
        app_ids_read=change.app_ids_read,
        app_versions=[pb.AppVersionRecord(app_id=app_id, version=version) for app_id, version in change.app_versions],
        others_read=not change.others_blind,
        others_no_insert=not change.others_insert,
        others_change_data=change.others_change_data,
        restore_version=change.restore_version,
    )
    if change.scope is not None:
        record.has_scope, record.scope_written = True, change.scope.written
        record.scope_all = change.scope.partitions is None
        record.scope_partitions.extend(sorted(change.scope.partitions or ()))
    return record.SerializeToString()


def decode_declared(raw: bytes, table_id: str, operation: Operation, read_version: int, reads_of: ReadsOf) -> Change:
    """The change without what it added."""
    record = pb.DeclaredRecord.FromString(raw)
    change = Change(
        table_id,
        operation,
        read_version,
        reads_of(record.reads),
        tuple(record.app_ids_read),
        tuple((app.app_id, app.version) for app in record.app_versions),
        others_blind=not record.others_read,
        others_insert=not record.others_no_insert,
        others_change_data=record.others_change_data,
        restore_version=record.restore_version,
    )
    if record.has_scope:
        partitions = None if record.scope_all else frozenset(record.scope_partitions)
        change.scope = Scope(partitions, record.scope_written)
    return change
