"""The tables of a branch, for lists: those of its parents at its instant, without those dropped on it, and its own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from metaservice.client import BlockedError, MetaClient, NotFoundError
from protos.laketx.v1 import catalog_pb2
from worker.iceberg.rest.warehouses import off_branch

ByName = Mapping[str, catalog_pb2.Table]  # by the name without a branch


@dataclass(frozen=True, slots=True)
class BranchTables:
    """The tables of branches, from those of the lake."""

    client: MetaClient
    in_main: ByName

    def of(self, branch: str) -> ByName:
        """Return the tables of a branch. One that was not changed there is as its parent has it now."""
        found = self.client.get_branch(branch)
        parent = found.branch.parent
        above = self.of(parent) if parent else self.in_main
        shown = {name: one for name, one in above.items() if one.create_time_us <= found.branch.time_us}
        names = {table.parent_table_id: table.name for table in found.tables}
        for name in [name for name, there in shown.items() if names.get(there.table_id, name) != name]:
            del shown[name]  # renamed in the parent since
        for one in found.tables:
            if one.dropped:
                shown.pop(one.name, None)
        for one in found.tables:
            if not one.dropped and not _is_as_shown(one, shown):
                with suppress(NotFoundError, BlockedError):  # dropped by now
                    own = self.client.get_table(table_id=one.table_id)
                    own.has_imports = one.name in shown and shown[one.name].has_imports  # lists alone tell it
                    shown[one.name] = own
        return shown


def _is_as_shown(one: catalog_pb2.BranchTable, shown: ByName) -> bool:
    """Whether a table was looked at on the branch, and neither it nor its parent's has changed."""
    there = shown.get(one.name)
    is_same = there is not None and there.table_id == one.parent_table_id
    return is_same and one.head_version == one.base_version == one.parent_head_version


def by_name(tables: list[catalog_pb2.Table]) -> ByName:
    """Return tables by their names without a branch."""
    return {off_branch(one.name): one for one in tables}
