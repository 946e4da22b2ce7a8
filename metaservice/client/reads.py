"""Calls for readers: versions, plans, pins, all part of `MetaClient`."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

from metaservice.client.calling import PAGE_SIZE, Caller
from metaservice.client.features import VERSION_CONDITIONS
from metaservice.client.watching import Stream, watch
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import common_pb2, read_pb2, read_pb2_grpc

PATHS_MAX: Final = common_pb2.LIMIT_INLINED_PATHS  # of one request: the longest fit into a message


class ReadCalls(Caller):
    """Lists are read page by page as they are used."""

    _reads: read_pb2_grpc.ReadServiceStub
    _closed: bool

    def resolve_version(
        self,
        table_id: str,
        *,
        version: int | None = None,
        time_us: int | None = None,
        commits_ago: int | None = None,
        tag: str | None = None,
        app_id: str = "",
    ) -> read_pb2.ResolveVersionResponse:
        """The version for at most one of the arguments; without any, the head. With `app_id` also what an application
        has written.
        """
        request = read_pb2.ResolveVersionRequest(table_id=table_id, app_id=app_id)
        if version is not None:
            request.version = version
        if time_us is not None:
            request.time_us = time_us
        if commits_ago is not None:
            request.commits_ago = commits_ago
        if tag is not None:
            request.tag = tag
        return self._call(self._reads.ResolveVersion, request)

    def list_versions(
        self, table_id: str, *, matching: read_pb2.VersionFilter | None = None, page_size: int = PAGE_SIZE
    ) -> Iterator[read_pb2.Version]:
        """Returns versions, newest first; with `matching` only those that match."""
        request = read_pb2.ListVersionsRequest(table_id=table_id, page_size=page_size, filter=matching)
        for page in self._pages(self._reads.ListVersions, request):
            yield from page.versions

    def versions_with_scans(
        self, table_id: str, *, matching: read_pb2.VersionFilter, page_size: int
    ) -> Iterator[read_pb2.ListVersionsResponse]:
        """Returns pages of versions, with the number of scans that have read each version or a later one."""
        request = read_pb2.ListVersionsRequest(table_id=table_id, page_size=page_size, filter=matching, with_scans=True)
        yield from self._pages(self._reads.ListVersions, request)

    def watch(self, table_id: str, *, after_version: int | None = None) -> Generator[read_pb2.Version]:
        """The commits after a version (default: the head), in order and without end, each once.

        A broken stream is reopened at the same position; every commit that arrives renews the budget for that. Ends
        when the client is closed.
        """
        after = self.resolve_version(table_id).version if after_version is None else after_version

        def opened(request: read_pb2.WatchRequest) -> Stream:
            return self._reads.Watch(request, metadata=self._metadata)

        return watch(opened, table_id, after, self._retries.patience(), lambda: self._closed)

    def list_files(self, table_id: str, *, version: int | None = None) -> Iterator[common_pb2.LiveEntry]:
        """Every live entry of a version."""
        request = read_pb2.ListFilesRequest(table_id=table_id, version=version)
        for part in self._stream(self._reads.ListFiles, request):
            yield from part.entries

    def plan_scan(
        self,
        table_id: str,
        *,
        version: int | None = None,
        predicate: common_pb2.Predicate | None = None,
        partitions: Sequence[common_pb2.Partition] = (),
        without_stats: bool = False,
        explain: bool = False,
        pin_id: str = "",
        with_tables: bool = False,
        with_rows: bool = False,
        join_rows: bool = False,
        more: Sequence[read_pb2.TableScan] = (),
        key_files: read_pb2.KeyFiles | None = None,
    ) -> Iterator[read_pb2.PlanScanResponse]:
        """The entries that may match, in parts that name the version read; with `explain` the last part explains what
        was left out.

        The predicate uses the columns' names and types at this version: see `get_table(version=…)`.

        All that a read needs in one call: `pin_id` pins the version, and the first part has the lease; `with_tables`
        answers the metadata in the first part of a table; `with_rows` the rows of inlined files, with `join_rows` those
        of many as one; `more` are other tables at the same instant. `key_files` is what a key index says of some keys:
        the plan may leave out files that have none of them. A service of the release before leaves all of this out:
        then the lease is 0.
        """
        request = read_pb2.PlanScanRequest(
            table_id=table_id,
            version=version,
            predicate=predicate if version is None else self._understood(predicate),
            partitions=partitions,
            without_stats=without_stats,
            explain=explain,
            pin_id=pin_id,
            principal=self._principal if pin_id else None,
            with_tables=with_tables,
            with_rows=with_rows,
            join_rows=join_rows,
            more=more,
            key_files=key_files,
        )
        return self._stream(self._reads.PlanScan, request)

    def plan_changes(
        self,
        table_id: str,
        from_version: int,
        to_version: int | None = None,
        *,
        predicate: common_pb2.Predicate | None = None,
        mode: read_pb2.ChangesMode.ValueType = read_pb2.CHANGES_MODE_LOG,
    ) -> Iterator[read_pb2.PlanChangesResponse]:
        """The entries that logical commits in (from, to] added and removed, or the difference of both ends; default
        `to`: the head.
        """
        request = read_pb2.PlanChangesRequest(
            table_id=table_id,
            from_version=from_version,
            to_version=to_version,
            predicate=self._understood(predicate),
            mode=mode,
        )
        return self._stream(self._reads.PlanChanges, request)

    def _understood(self, predicate: common_pb2.Predicate | None) -> common_pb2.Predicate | None:
        """The condition; none if an older service would look up its names among the newest columns.

        Then the answer has more entries, which a plan may always have.
        """
        return predicate if predicate is None or self.offers(VERSION_CONDITIONS) else None

    def read_inlined(self, table_id: str, paths: Sequence[str]) -> Iterator[read_pb2.InlinedFile]:
        """The rows of inlined files, of a version that is kept."""
        for begin in range(0, len(paths), PATHS_MAX):
            request = read_pb2.ReadInlinedRequest(table_id=table_id, paths=paths[begin : begin + PATHS_MAX])
            for part in self._stream(self._reads.ReadInlined, request):
                yield from part.files

    # ---------------------------------------------------------------------------------------------------------- pins

    def pin(
        self, tables: Iterable[read_pb2.TableVersion], *, pin_id: str | None = None, lease_ms: int = 0
    ) -> read_pb2.PinVersionsRequest:
        """Keeps versions readable, all as of one instant; returns the granted pin, to renew within its lease."""
        request = read_pb2.PinVersionsRequest(
            pin_id=pin_id or uuid7(), tables=tables, principal=self._principal, lease_ms=lease_ms
        )
        answer = self._call(self._reads.PinVersions, request)
        return read_pb2.PinVersionsRequest(
            pin_id=request.pin_id, tables=answer.tables, principal=self._principal, lease_ms=answer.lease_ms
        )

    def renew_pin(self, pin_id: str, *, lease_ms: int = 0) -> int:
        """Renews a pin and returns the granted lease; 0 asks for the same as before."""
        request = read_pb2.RenewPinRequest(pin_id=pin_id, lease_ms=lease_ms)
        return self._call(self._reads.RenewPin, request).lease_ms

    def unpin(self, pin_id: str) -> None:
        """Ends a pin; a version that nothing else holds can then be purged."""
        self._call(self._reads.Unpin, read_pb2.UnpinRequest(pin_id=pin_id))
