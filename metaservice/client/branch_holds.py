"""What a branch keeps: files that it shows, and that its parent's tables have no more.

held = branch_holds(client, client.get_branch("etl"))
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from metaservice.client.meta_client import MetaClient
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
    heads = _heads_of_parent(client, shown.branch.parent)
    for fork in shown.tables:
        if fork.parent_table_id and not fork.HasField("parent_head_version"):  # the parent has the table no more
            yield _held(fork.name, fork.base_version, _files(client, fork.table_id, fork.base_version))
    for name, table_id, left in _shown_of_parent(client, shown):
        if heads.get(table_id, left) == left:
            continue
        before = _files(client, table_id, left)
        for path in _files(client, table_id, heads[table_id]):
            before.pop(path, None)
        if before:
            yield _held(name, left, before)


def _shown_of_parent(client: MetaClient, shown: catalog_pb2.GetBranchResponse) -> Iterator[tuple[str, str, int]]:
    """The tables of the parent that the branch shows: names on the branch, ids, and the version that it shows."""
    for fork in shown.tables:
        if fork.parent_table_id and not fork.dropped:
            yield fork.name, fork.parent_table_id, fork.base_version
    for table in client.list_tables(branch=shown.branch.name):
        if table.parent_table_id:
            yield table.name.partition("@")[0], table.parent_table_id, table.head_version


def _heads_of_parent(client: MetaClient, parent: str) -> dict[str, int]:
    """Newest versions, by id: of the lake, or of the forks of the parent branch, which keeps what others were."""
    if parent:
        return {fork.table_id: fork.head_version for fork in client.get_branch(parent).tables if not fork.dropped}
    return {table.table_id: table.head_version for table in client.list_tables()}


def _files(client: MetaClient, table_id: str, version: int) -> dict[str, int]:
    listed = client.list_files(table_id, version=version)
    return {entry.file.path: entry.file.bytes for entry in listed if entry.HasField("file")}


def _held(name: str, version: int, files: dict[str, int]) -> HeldFiles:
    return HeldFiles(name, version, len(files), sum(files.values()))
