"""Calls of branches and clones. `MetaClient` has them all.

client.create_branch("etl")
client.get_table("shop.orders@etl")
client.merge_branch("etl")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from metaservice.client import features
from metaservice.client.calling import PAGE_SIZE, Caller, in_parts
from metaservice.client.errors import MetaServiceError, decode_status
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import catalog_pb2, catalog_pb2_grpc, common_pb2

BATCH_MAX: Final = 1_000  # branches of one call


class BranchCalls(Caller):
    """Branches: all tables as they are at an instant, to change and to merge. Their tables are named TABLE@BRANCH."""

    _catalog: catalog_pb2_grpc.CatalogServiceStub
    _principal: common_pb2.Principal

    def create_branch(
        self,
        name: str,
        *,
        parent: str = "",
        keep_ms: int = 0,
        comment: str = "",
        tables: Iterable[str] = (),
        request_id: str | None = None,
    ) -> catalog_pb2.Branch:
        """Makes a branch of the lake, or of another branch. It ends by itself after `keep_ms`, by default 7 days.

        `tables` limits it, and what it holds, to tables by name or NAMESPACE.*.
        """
        request = catalog_pb2.CreateBranchRequest(
            request_id=request_id or uuid7(),
            name=name,
            parent=parent,
            keep_ms=keep_ms,
            comment=comment,
            principal=self._principal,
            tables=tables,
        )
        return self._call(self._catalog.CreateBranch, request).branch

    def create_branches(
        self, names: Iterable[str], *, parent: str = "", keep_ms: int = 0, comment: str = "", tables: Iterable[str] = ()
    ) -> list[catalog_pb2.Branch | MetaServiceError]:
        """Makes branches as `create_branch` does, but up to 1,000 in a call. Returns each, or its refusal."""
        self._need(features.BRANCHES)
        limited = list(tables)
        requests = [
            catalog_pb2.CreateBranchRequest(
                request_id=uuid7(),
                name=name,
                parent=parent,
                keep_ms=keep_ms,
                comment=comment,
                principal=self._principal,
                tables=limited,
            )
            for name in names
        ]
        inherited = self.get_branch(parent).branch.tables if parent and not limited else ()
        made: list[catalog_pb2.Branch | MetaServiceError] = []
        for part in in_parts(requests, BATCH_MAX):
            answer = self._call(self._catalog.CreateBranches, catalog_pb2.CreateBranchesRequest(branches=part))
            for item in answer.items:
                if item.HasField("error"):
                    made.append(decode_status(item.error))
                else:
                    item.branch.tables.extend(inherited)
                    made.append(item.branch)
        return made

    def list_branches(self, *, page_size: int = PAGE_SIZE) -> Iterator[catalog_pb2.Branch]:
        """Branches by name."""
        for page in self._pages(self._catalog.ListBranches, catalog_pb2.ListBranchesRequest(page_size=page_size)):
            yield from page.branches

    def get_branch(self, name: str) -> catalog_pb2.GetBranchResponse:
        """A branch, and its tables that were asked for, made or dropped on it."""
        branch = catalog_pb2.GetBranchResponse()
        for page in self._pages(self._catalog.GetBranch, catalog_pb2.GetBranchRequest(name=name)):
            branch.branch.CopyFrom(page.branch)
            branch.tables.extend(page.tables)
            branch.names.extend(page.names)
        return branch

    def list_branch_events(self, *, after: int = 0, page_size: int = PAGE_SIZE) -> Iterator[catalog_pb2.BranchEvent]:
        """What happened to branches after the event of that number, up to now; 0: from the oldest one that is kept.

        Numbers follow each other. Where some are missing, the service keeps these events no longer.
        """
        self._need(features.BRANCHES)
        while True:
            request = catalog_pb2.ListBranchEventsRequest(page_size=page_size, after=after)
            page = self._call(self._catalog.ListBranchEvents, request)
            yield from page.events
            if not page.events or page.events[-1].number >= page.newest:
                return
            after = page.events[-1].number

    def extend_branch(self, name: str, keep_ms: int) -> catalog_pb2.Branch:
        """Sets how long from now a branch lives."""
        return self._call(
            self._catalog.ExtendBranch, catalog_pb2.ExtendBranchRequest(name=name, keep_ms=keep_ms)
        ).branch

    def drop_branch(self, name: str) -> catalog_pb2.DropBranchResponse:
        """Drops a branch with what was committed on it."""
        return self._call(self._catalog.DropBranch, catalog_pb2.DropBranchRequest(name=name, principal=self._principal))

    def drop_branches(self, names: Iterable[str]) -> list[catalog_pb2.DropBranchResponse | MetaServiceError]:
        """Drops branches, up to 1,000 in a call: each by itself. Returns what each drop did, or its refusal."""
        self._need(features.BRANCHES)
        requests = [catalog_pb2.DropBranchRequest(name=name, principal=self._principal) for name in names]
        dropped: list[catalog_pb2.DropBranchResponse | MetaServiceError] = []
        for part in in_parts(requests, BATCH_MAX):
            answer = self._call(self._catalog.DropBranches, catalog_pb2.DropBranchesRequest(branches=part))
            dropped += [decode_status(item.error) if item.HasField("error") else item.branch for item in answer.items]
        return dropped

    def merge_branch(
        self,
        name: str,
        *,
        keep: bool = False,
        validate_only: bool = False,
        txn_id: str | None = None,
        checked_table_ids: Iterable[str] = (),
    ) -> catalog_pb2.MergeBranchResponse:
        """Merges a branch into its parent: everything in one transaction, or nothing.

        `checked_table_ids`: tables whose `merge.checks` the caller has run on the branch, and which held.
        """
        request = catalog_pb2.MergeBranchRequest(
            txn_id=txn_id or uuid7(),
            name=name,
            principal=self._principal,
            keep=keep,
            validate_only=validate_only,
            checked_table_ids=checked_table_ids,
        )
        return self._call(self._catalog.MergeBranch, request)

    def merge_checked_branch(
        self,
        name: str,
        run_check: Callable[[str, str], object],
        *,
        keep: bool = False,
        validate_only: bool = False,
        txn_id: str | None = None,
    ) -> catalog_pb2.MergeBranchResponse:
        """Merges a branch, and runs the checks of `merge.checks` first if nothing else stops the merge.

        `run_check` gets a query and the name of the table that has it, and raises an error if it does not hold.
        """
        txn_id, checked = txn_id or uuid7(), set[str]()
        while True:
            answer = self.merge_branch(
                name, keep=keep, validate_only=validate_only, txn_id=txn_id, checked_table_ids=sorted(checked)
            )
            failed = [table for table in answer.tables if table.reason or table.HasField("conflict")]
            is_stopped = any(name.reason for name in answer.names)
            if is_stopped or not failed or not all(table.checks for table in failed):
                return answer
            for table in failed:
                for query in table.checks:
                    run_check(query, table.name)
                checked.add(table.table_id)

    def refresh_branch(
        self, name: str, *, validate_only: bool = False, txn_id: str | None = None
    ) -> catalog_pb2.RefreshBranchResponse:
        """Moves a branch's fork point to now, with its commits on top: those of all its tables, or nothing."""
        request = catalog_pb2.RefreshBranchRequest(
            txn_id=txn_id or uuid7(), name=name, principal=self._principal, validate_only=validate_only
        )
        return self._call(self._catalog.RefreshBranch, request)

    def clone_table(
        self, table_id: str, name: str, *, version: int | None = None, request_id: str | None = None
    ) -> catalog_pb2.Table:
        """Makes a table that begins as another one is, or was at a version."""
        request = catalog_pb2.CloneTableRequest(
            request_id=request_id or uuid7(), table_id=table_id, name=name, version=version, principal=self._principal
        )
        return self._call(self._catalog.CloneTable, request).table
