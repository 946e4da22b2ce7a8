"""The groups of a compaction: input files and their outputs, and which groups benefit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.values import PartitionKey, partition_key
from worker.compact.digests import KIND, Digest

OPERATIONS: Final = {
    "minor": common_pb2.OPERATION_MINOR_COMPACT,
    "major": common_pb2.OPERATION_MAJOR_COMPACT,
    "cluster": common_pb2.OPERATION_CLUSTER,
}
SMALL: Final = 0.75  # of the size aimed at


@dataclass(frozen=True)
class Group:
    """Input files of one bucket, and the delete sets of its partition."""

    partition: common_pb2.Partition
    bucket: int
    inputs: Sequence[common_pb2.LiveEntry]
    delete_sets: Sequence[common_pb2.LiveEntry] = ()

    @property
    def bytes(self) -> int:
        return sum(entry.file.bytes for entry in self.inputs)


@dataclass
class GroupOutcome:
    """The outputs of a group, and the digests of its inputs and outputs; `kind` names the hash."""

    files: list[common_pb2.DataFile] = field(default_factory=list)
    input: Digest = field(default_factory=Digest)
    output: Digest = field(default_factory=Digest)
    kind: str = KIND


def plan_groups(
    meta: catalog_pb2.Table,
    operation: common_pb2.Operation.ValueType,
    entries: Iterable[common_pb2.LiveEntry],
    file_bytes_target: int,
) -> list[Group]:
    """The groups of a version's entries, largest first."""
    files: dict[tuple[PartitionKey, int], list[common_pb2.LiveEntry]] = defaultdict(list)
    sets: dict[PartitionKey, list[common_pb2.LiveEntry]] = defaultdict(list)
    for entry in entries:
        if entry.HasField("file"):
            files[partition_key(entry.file.partition), entry.file.bucket].append(entry)
        else:
            sets[partition_key(entry.delete_set.partition)].append(entry)
    found = []
    for (key, bucket), listed in files.items():
        listed.sort(key=lambda entry: (entry.data_version, entry.file.path))
        if meta.primary_key:
            inputs = _keyed_inputs(operation, listed)
        else:
            inputs = _append_inputs(operation, listed, bool(sets[key]), file_bytes_target)
        if inputs:
            found.append(Group(listed[0].file.partition, bucket, inputs, sets[key]))
    return sorted(found, key=lambda group: -group.bytes)


def _keyed_inputs(
    operation: common_pb2.Operation.ValueType, files: Sequence[common_pb2.LiveEntry]
) -> Sequence[common_pb2.LiveEntry]:
    if operation == common_pb2.OPERATION_MAJOR_COMPACT:
        is_clean = len({entry.data_version for entry in files}) == 1 and not any(is_delta(entry) for entry in files)
        return [] if is_clean else files
    wants_deltas = operation == common_pb2.OPERATION_MINOR_COMPACT
    longest: list[common_pb2.LiveEntry] = max(_runs(files, wants_deltas), key=len, default=[])
    return longest if len(longest) > 1 or not wants_deltas else []


def _runs(files: Sequence[common_pb2.LiveEntry], wants_deltas: bool) -> list[list[common_pb2.LiveEntry]]:
    """Files of one kind with consecutive data versions, and no file of another kind between or among them."""
    versions: dict[int, list[common_pb2.LiveEntry]] = defaultdict(list)
    for entry in files:
        versions[entry.data_version].append(entry)
    runs: list[list[common_pb2.LiveEntry]] = [[]]
    for version in sorted(versions):
        if all(is_delta(entry) == wants_deltas for entry in versions[version]):
            runs[-1] += versions[version]
        else:
            runs.append([])
    return runs


def _append_inputs(
    operation: common_pb2.Operation.ValueType,
    files: Sequence[common_pb2.LiveEntry],
    has_hidden: bool,
    file_bytes_target: int,
) -> Sequence[common_pb2.LiveEntry]:
    if operation == common_pb2.OPERATION_CLUSTER:
        return files
    small = [entry for entry in files if entry.file.bytes < SMALL * file_bytes_target]
    if operation == common_pb2.OPERATION_MAJOR_COMPACT:
        return files if has_hidden or len(small) > 1 else []
    return small if len(small) > 1 else []


def is_delta(entry: common_pb2.LiveEntry) -> bool:
    return entry.file.kind == common_pb2.FILE_KIND_DELTA
