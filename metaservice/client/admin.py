"""Calls for operators. `MetaClient` has them all."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from metaservice.client.calling import PAGE_SIZE, Caller
from metaservice.client.errors import decode_rpc_error
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import admin_pb2, admin_pb2_grpc


class AdminCalls(Caller):
    """Status, backup, check, and what an operator confirms."""

    _admin: admin_pb2_grpc.AdminServiceStub

    def get_status(self) -> admin_pb2.GetStatusResponse:
        """The service's version, uptime, counts, quotas and settings."""
        return self._call(self._admin.GetStatus, admin_pb2.GetStatusRequest())

    def backup(
        self, path: str = "", *, request_id: str | None = None, validate_only: bool = False, full: bool = False
    ) -> admin_pb2.BackupResponse:
        """Copies the store to a repository of backups, s3://bucket/path or file:///folder; by default the service's.

        Or to a folder on the server, below its backup root. It takes as long as it takes. A repository gets what it
        does not have yet; with `full` everything.
        """
        request = admin_pb2.BackupRequest(
            path=path, request_id=request_id or uuid7(), validate_only=validate_only, full=full
        )

        def attempt() -> admin_pb2.BackupResponse:
            try:
                return self._admin.Backup(request, timeout=None, metadata=self._metadata)
            except grpc.RpcError as error:
                raise decode_rpc_error(error) from error

        return self._retries.run(attempt)

    def check(self, table_id: str = "") -> Iterator[admin_pb2.CheckResponse]:
        """Checks the store, or one table, in parts as it goes; the last one is done."""
        return self._stream(self._admin.Check, admin_pb2.CheckRequest(table_id=table_id))

    def release_purge(self, *, validate_only: bool = False) -> str:
        """Why the purge had waited; empty: it had not."""
        request = admin_pb2.ReleasePurgeRequest(validate_only=validate_only)
        return self._call(self._admin.ReleasePurge, request).reason

    def confirm_clock(self, *, validate_only: bool = False) -> admin_pb2.ConfirmClockResponse:
        """Says that the service's wall clock is right, after it jumped; the answer says what was held until then."""
        return self._call(self._admin.ConfirmClock, admin_pb2.ConfirmClockRequest(validate_only=validate_only))

    def step_down(self, *, validate_only: bool = False) -> int:
        """Lets another process lead; the leader ends, which gives back the lease with the epoch in the answer."""
        return self._call(self._admin.StepDown, admin_pb2.StepDownRequest(validate_only=validate_only)).lease_epoch

    def list_pins(self, *, page_size: int = PAGE_SIZE) -> Iterator[admin_pb2.Pin]:
        """Oldest first, one for each version that is held."""
        request = admin_pb2.ListPinsRequest(page_size=page_size)
        for page in self._pages(self._admin.ListPins, request):
            yield from page.pins
