"""The groups of a compaction: input files as MetaService plans them, and their outputs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from protos.laketx.v1 import common_pb2, maintenance_pb2
from worker.arrow.scan.plans import entries_of
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.services.compaction.digests import Digest

OPERATIONS: Final = {
    "minor": common_pb2.OPERATION_MINOR_COMPACT,
    "major": common_pb2.OPERATION_MAJOR_COMPACT,
    "cluster": common_pb2.OPERATION_CLUSTER,
}
Group = maintenance_pb2.TaskGroup  # from the plan to the commit, in tasks and by hand


@dataclass
class GroupOutcome:
    """The outputs of a group, and the digests of its inputs and outputs."""

    files: list[common_pb2.DataFile] = field(default_factory=list)
    input: Digest = field(default_factory=Digest)
    output: Digest = field(default_factory=Digest)


def planned_groups(
    table: TableView,
    operation: common_pb2.Operation.ValueType,
    partitions: Sequence[common_pb2.Partition],
    options: maintenance_pb2.TaskOptions,
    *,
    detach: bool = False,
) -> tuple[int | None, list[Group]]:
    """Return the version of MetaService's plan, and its groups.

    Pages planned at a later version, and groups that are too large for an answer, are left for the next call.
    """
    version: int | None = None
    groups: list[Group] = []
    for page in table.client.plan_maintenance(
        table.table_id, operation=operation, partitions=partitions, options=options, at_once=True, detach=detach
    ):
        if version not in (None, page.read_version):
            break
        version = page.read_version
        groups += [group for task in page.tasks for group in task.groups if group.files == len(group.inputs)]
    if version is not None and groups:
        _fill(table, version, groups)
    return version, groups


def _fill(table: TableView, version: int, groups: Sequence[Group]) -> None:
    """Completes groups of a plan, which has only the paths of the inputs: their entries and the delete sets."""
    files: dict[str, common_pb2.LiveEntry] = {}
    sets: dict[PartitionKey, list[common_pb2.LiveEntry]] = defaultdict(list)
    for entry in entries_of(table, version, None, [group.partition for group in groups]):
        if entry.HasField("file"):
            files[entry.file.path] = entry
        else:
            sets[partition_key(entry.delete_set.partition)].append(entry)
    for group in groups:
        inputs = [files[listed.file.path] for listed in group.inputs]
        del group.inputs[:]
        group.inputs.extend(inputs)
        group.delete_sets.extend(sets[partition_key(group.partition)])


def is_delta(entry: common_pb2.LiveEntry) -> bool:
    return entry.file.kind == common_pb2.FILE_KIND_DELTA
