"""Calls for tags, cursors, checks of keys and the sweep of storage, all part of `MetaClient`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from metaservice.client.calling import PAGE_SIZE, Caller, in_parts
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import maintenance_pb2, maintenance_pb2_grpc, read_pb2, read_pb2_grpc

PATHS_PER_CALL: Final = 10_000
CONFIRMED_PER_CALL: Final = 1_000


class MarkCalls(Caller):
    """Lists are read page by page as they are used."""

    _reads: read_pb2_grpc.ReadServiceStub
    _maintenance: maintenance_pb2_grpc.MaintenanceServiceStub

    # ---------------------------------------------------------------------------------------------------------- tags

    def create_tag(
        self, table_id: str, name: str, *, version: int | None = None, comment: str = "", move: bool = False
    ) -> read_pb2.Tag:
        """Tags a version, by default the newest. `move` takes the name from another version."""
        if version is None:  # looked up first: a repeat must not mean a later one
            version = self._call(self._reads.ResolveVersion, read_pb2.ResolveVersionRequest(table_id=table_id)).version
        request = read_pb2.CreateTagRequest(
            table_id=table_id, name=name, version=version, comment=comment, principal=self._principal, move=move
        )
        return self._call(self._reads.CreateTag, request).tag

    def list_tags(self, table_id: str = "", *, page_size: int = PAGE_SIZE) -> Iterator[read_pb2.Tag]:
        """Tags by table and name; of all tables if none is named."""
        request = read_pb2.ListTagsRequest(table_id=table_id, page_size=page_size)
        for page in self._pages(self._reads.ListTags, request):
            yield from page.tags

    def drop_tag(self, table_id: str, name: str) -> bool:
        """Drops a tag; returns whether there was one."""
        return self._call(self._reads.DropTag, read_pb2.DropTagRequest(table_id=table_id, name=name)).dropped

    # ------------------------------------------------------------------------------------------------------- cursors

    def create_cursor(
        self, table_id: str, name: str, *, version: int | None = None, keep_ms: int = 0, must_exist: bool = False
    ) -> read_pb2.CreateCursorResponse:
        """The cursor of that name, unchanged, or a new one at a version, by default the newest."""
        request = read_pb2.CreateCursorRequest(
            table_id=table_id,
            name=name,
            version=version,
            keep_ms=keep_ms,
            principal=self._principal,
            must_exist=must_exist,
        )
        return self._call(self._reads.CreateCursor, request)

    def advance_cursor(self, table_id: str, name: str, expected_version: int, version: int) -> read_pb2.Cursor:
        """Advances a cursor; refused with CURSOR_MOVED if it is elsewhere."""
        request = read_pb2.AdvanceCursorRequest(
            request_id=uuid7(), table_id=table_id, name=name, expected_version=expected_version, version=version
        )
        return self._call(self._reads.AdvanceCursor, request).cursor

    def list_cursors(self, table_id: str = "", *, page_size: int = PAGE_SIZE) -> Iterator[read_pb2.Cursor]:
        """Cursors by table and name; of all tables if none is named."""
        request = read_pb2.ListCursorsRequest(table_id=table_id, page_size=page_size)
        for page in self._pages(self._reads.ListCursors, request):
            yield from page.cursors

    def drop_cursor(self, table_id: str, name: str) -> bool:
        """Drops a cursor; returns whether there was one."""
        return self._call(self._reads.DropCursor, read_pb2.DropCursorRequest(table_id=table_id, name=name)).dropped

    # ---------------------------------------------------------------------------------------------------------- keys

    def advance_key_check(self, table_id: str, check: int, begin: int, end: int, *, version: int) -> int:
        """Records that no key is in two partitions at a version, in the bucket numbers from `begin` to `end`.

        Returns the version that records it.
        """
        request = maintenance_pb2.AdvanceKeyCheckRequest(
            txn_id=uuid7(),
            table_id=table_id,
            check=check,
            begin=begin,
            end=end,
            version=version,
            principal=self._principal,
        )
        return self._call(self._maintenance.AdvanceKeyCheck, request, decides=(request.txn_id,)).version

    # --------------------------------------------------------------------------------------------------------- sweep

    def list_sweepable(self, *, page_size: int = PAGE_SIZE) -> Iterator[maintenance_pb2.ListSweepableResponse]:
        """Pages of folders.

        The id that a page calls settled can be confirmed when that page and all before it are swept.
        """
        request = maintenance_pb2.ListSweepableRequest(page_size=page_size)
        yield from self._pages(self._maintenance.ListSweepable, request)

    def confirm_swept(self, settled_txn_id: str) -> None:
        """The folders of transactions up to this one are swept: the next sweep starts after it."""
        self._call(self._maintenance.ConfirmSwept, maintenance_pb2.ConfirmSweptRequest(settled_txn_id=settled_txn_id))

    def check_paths(self, table_id: str, paths: Sequence[str]) -> maintenance_pb2.CheckPathsResponse:
        """Returns which of these files in a table's folder are needed, and which wait for the purge."""
        checked = maintenance_pb2.CheckPathsResponse()
        for part in in_parts(paths, PATHS_PER_CALL):
            request = maintenance_pb2.CheckPathsRequest(table_id=table_id, paths=part)
            checked.MergeFrom(self._call(self._maintenance.CheckPaths, request))
        return checked

    def list_purgeable(self, table_id: str, *, page_size: int = PAGE_SIZE) -> Iterator[str]:
        """Paths whose bytes may be deleted. Confirm only what was deleted."""
        request = maintenance_pb2.ListPurgeableRequest(table_id=table_id, page_size=page_size)
        for page in self._pages(self._maintenance.ListPurgeable, request):
            yield from page.paths

    def list_purgeable_tables(self, *, page_size: int = PAGE_SIZE) -> Iterator[str]:
        """Tables that have something to purge, dropped ones too."""
        request = maintenance_pb2.ListPurgeableRequest(page_size=page_size)
        for page in self._pages(self._maintenance.ListPurgeable, request):
            yield from page.table_ids

    def confirm_purged(self, table_id: str, paths: Sequence[str]) -> None:
        """The bytes are gone."""
        for part in in_parts(paths, CONFIRMED_PER_CALL):
            request = maintenance_pb2.ConfirmPurgedRequest(table_id=table_id, paths=part)
            self._call(self._maintenance.ConfirmPurged, request)
