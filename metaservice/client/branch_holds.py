"""What a branch keeps: files that it shows, and that its parent's tables have no more.

held = branch_holds(client, client.get_branch("etl"))
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from metaservice.client.meta_client import MetaClient
from metaservice.shared.table_patterns import is_among
from protos.laketx.v1 import catalog_pb2


@dataclass(frozen=True, slots=True)
class HeldFiles:
    """Files of one table that the branch shows as it left its parent, and the parent shows no more."""

    name: str
    version: int
    files: int
    size_bytes: int


def branch_holds(client: MetaClient, shown: catalog_pb2.GetBranchResponse) -> list[HeldFiles]:
    """The tables of which a branch keeps files, by name.

    It lists the files of each table that has commits since the branch left. Retention, pins and tags may keep some of
    these files, too.
    """
    return sorted(_holds(client, shown), key=lambda table: table.name)


def _holds(client: MetaClient, shown: catalog_pb2.GetBranchResponse) -> Iterator[HeldFiles]:
    dropped = {fork.parent_table_id for fork in shown.tables if fork.dropped}
    names = {fork.parent_table_id: fork.name for fork in shown.tables}
    lost = [fork for fork in shown.tables if fork.parent_table_id and not fork.HasField("parent_head_version")]
    for fork in lost:
        yield _held(fork.name, fork.base_version, _files(client, fork.table_id, fork.base_version))
    for table in _parents_tables(client, shown.branch, names):
        if table.table_id in dropped or table.create_time_us > shown.branch.time_us:
            continue
        left = client.resolve_version(table.table_id, time_us=shown.branch.time_us).version
        if left == table.head_version:
            continue
        before = _files(client, table.table_id, left)
        for path in _files(client, table.table_id, table.head_version):
            before.pop(path, None)
        if before:
            name = names.get(table.table_id, table.name.partition("@")[0])  # the parent may have renamed it since
            yield _held(name, left, before)


def _parents_tables(
    client: MetaClient, branch: catalog_pb2.Branch, forked: Collection[str]
) -> Iterator[catalog_pb2.Table]:
    """Tables of the lake, or the forks of the parent branch: others are as the lake's were, which that one keeps."""
    if branch.parent:
        for fork in client.get_branch(branch.parent).tables:
            if not fork.dropped:
                yield client.get_table(table_id=fork.table_id)
        return
    for table in client.list_tables():
        is_held = not branch.tables or is_among(table.name, branch.tables) or table.table_id in forked
        if "@" not in table.name and is_held:
            yield table


def _files(client: MetaClient, table_id: str, version: int) -> dict[str, int]:
    listed = client.list_files(table_id, version=version)
    return {entry.file.path: entry.file.bytes for entry in listed if entry.HasField("file")}


def _held(name: str, version: int, files: dict[str, int]) -> HeldFiles:
    return HeldFiles(name, version, len(files), sum(files.values()))
