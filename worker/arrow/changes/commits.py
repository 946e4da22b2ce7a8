"""The logical commits of a range: the entries that each added, and the buckets that it replaced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from metaservice.client import is_partial
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.arrow.scan.inlined_rows import fetch_rows
from worker.base.errors import InputError
from worker.base.schema import CHANGE_TYPE, COMMIT_TIME, COMMIT_VERSION, SET_COLUMNS
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView

MODES: Final = ("latest", "changes", "log")
INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"

Bucket = tuple[PartitionKey, int]


@dataclass(slots=True)
class RangeCommit:
    """A logical commit: the entries that it added, and the buckets that it replaced."""

    version: int
    time_us: int
    files: list[common_pb2.DataFile] = field(default_factory=list)
    sets: list[common_pb2.DeleteSet] = field(default_factory=list)
    resets: dict[Bucket, common_pb2.Partition] = field(default_factory=dict)


def commits_of(table: TableView, begin: int, end: int) -> list[RangeCommit]:
    """Return the commits in (begin, end], without entries in buckets that a commit replaced: the snapshot has them."""
    commits: dict[int, RangeCommit] = {}
    for part in table.client.plan_changes(table.table_id, begin, end, mode=read_pb2.CHANGES_MODE_LOG):
        if not part.HasField("version"):
            continue
        commit = commits.setdefault(
            part.version.version, RangeCommit(part.version.version, part.version.commit_time_us)
        )
        for entry in part.added:
            if entry.data_version != commit.version:
                _reset(commit, entry)  # a restore brought it back
            elif entry.HasField("file"):
                commit.files.append(entry.file)
            else:
                commit.sets.append(entry.delete_set)
        for entry in part.removed:
            _reset(commit, entry)
    for commit in commits.values():
        commit.files = [
            file for file in commit.files if (partition_key(file.partition), file.bucket) not in commit.resets
        ]
        commit.sets = [
            delete_set for delete_set in commit.sets if (partition_key(delete_set.partition), 0) not in commit.resets
        ]
    fetch_rows(table, [file for commit in commits.values() for file in commit.files])
    return list(commits.values())


def _reset(commit: RangeCommit, entry: common_pb2.LiveEntry) -> None:
    commit.resets[bucket_of(entry)] = (entry.file if entry.HasField("file") else entry.delete_set).partition


def bucket_of(entry: common_pb2.LiveEntry) -> Bucket:
    if entry.HasField("file"):
        return partition_key(entry.file.partition), entry.file.bucket
    return partition_key(entry.delete_set.partition), 0


def touched_buckets(commits: Iterable[RangeCommit], *, keyed: bool) -> dict[Bucket, common_pb2.Partition]:
    """Return the buckets that are replaced, upserted to, or have rows hidden."""
    buckets: dict[Bucket, common_pb2.Partition] = {}
    for commit in commits:
        buckets |= commit.resets
        buckets |= {(partition_key(delete_set.partition), 0): delete_set.partition for delete_set in commit.sets}
        if keyed:
            buckets |= {(partition_key(file.partition), file.bucket): file.partition for file in commit.files}
    return buckets


def check_mode(mode: str) -> None:
    if mode not in MODES:
        raise InputError("MODE_INVALID", f"mode is one of {', '.join(MODES)}, not {mode!r}")


def check_range(begin: int, end: int) -> None:
    if begin > end:
        raise InputError("RANGE_INVALID", f"the range ends at {end}, before it begins at {begin}")


def check_own_columns(meta: catalog_pb2.Table) -> None:
    """Refuse a table with the columns of increments: it was created before these names were reserved."""
    own = {CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIME, *([SET_COLUMNS] if is_partial(meta) else [])}
    for column in meta.columns:
        if column.name.lower() in own:
            raise InputError("COLUMN_RESERVED", f"{column.name} is a column of increments themselves: rename it")
