"""What changed on a branch and in its parent since, from metadata: commits, their rows and files, columns.

diffs = diff_branch(client, "etl")
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from metaservice.client.meta_client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2

REWRITES: Final = frozenset(
    {common_pb2.OPERATION_MINOR_COMPACT, common_pb2.OPERATION_MAJOR_COMPACT, common_pb2.OPERATION_CLUSTER}
)


@dataclass(frozen=True, slots=True)
class BranchedChanges:
    """The changes of one table on both lines, commits newest first.

    Rows and files are sums over the branch's commits without compactions, so a row that two commits changed counts
    twice. `columns` has `+ name type` for a new column, `-` for one that is gone, `~` for a changed one.
    """

    table: catalog_pb2.BranchTable
    commits: list[read_pb2.Version] = field(default_factory=list)
    parent_commits: list[read_pb2.Version] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    @property
    def change(self) -> str:
        """The kind of the change: new, dropped or changed."""
        if self.table.dropped:
            return "dropped"
        return "changed" if self.table.parent_table_id else "new"

    @property
    def is_parent_dropped(self) -> bool:
        """Whether the parent has the table no more."""
        return bool(self.table.parent_table_id) and not self.table.HasField("parent_head_version")

    def total(self, count: str) -> int:
        """A sum over the branch's commits: of rows_added, rows_removed, files_added or files_removed."""
        return sum(getattr(commit, count) for commit in self.commits if commit.operation not in REWRITES)


def is_changed(table: catalog_pb2.BranchTable) -> bool:
    """Whether a table was changed, made or dropped on its branch."""
    return table.dropped or not table.parent_table_id or table.head_version > table.base_version


def diff_branch(client: MetaClient, name: str) -> list[BranchedChanges]:
    """The tables that were changed, made or dropped on a branch, by name."""
    return [_diff_table(client, table) for table in client.get_branch(name).tables if is_changed(table)]


def _diff_table(client: MetaClient, table: catalog_pb2.BranchTable) -> BranchedChanges:
    diff = BranchedChanges(table)
    if table.HasField("parent_head_version"):
        diff.parent_commits.extend(_since(client, table.parent_table_id, table.base_version))
    if not table.dropped:
        first = table.base_version if table.parent_table_id else -1
        diff.commits.extend(_since(client, table.table_id, first))
        if table.parent_table_id:
            diff.columns.extend(_columns(client, table))
    return diff


def _since(client: MetaClient, table_id: str, version: int) -> Iterable[read_pb2.Version]:
    return client.list_versions(table_id, matching=read_pb2.VersionFilter(from_version=version + 1))


def _columns(client: MetaClient, table: catalog_pb2.BranchTable) -> list[str]:
    """The columns that differ between the base version and the newest one, by their ids."""
    schemas = list(client.list_schemas(table.table_id))
    newest = schemas[-1]
    base = next((schema for schema in reversed(schemas) if schema.version <= table.base_version), schemas[0])
    before = {column.column_id: f"{column.name} {column.type}" for column in base.columns}
    after = {column.column_id: f"{column.name} {column.type}" for column in newest.columns}
    removed = [f"- {text}" for number, text in before.items() if number not in after]
    changed = [f"~ {before[number]} -> {text}" for number, text in after.items() if before.get(number, text) != text]
    return removed + changed + [f"+ {text}" for number, text in after.items() if number not in before]
