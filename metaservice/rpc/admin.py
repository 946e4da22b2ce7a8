"""The servicer for operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import grpc

from metaservice.core import limits
from metaservice.observe import PURGE_RELEASED, event
from metaservice.rpc import wire
from metaservice.rpc.calls import Calls
from metaservice.rpc.paging import in_parts
from metaservice.rpc.servicers import AdminServicer
from metaservice.service.operators import Operators
from protos.laketx.v1 import admin_pb2


class OperatorServicer(AdminServicer):
    """Status, backup, check."""

    def __init__(self, calls: Calls, operators: Operators) -> None:
        super().__init__(calls)
        self._decider = calls.decider
        self._operators = operators

    def GetStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        return admin_pb2.GetStatusResponse(**asdict(self._operators.status()))

    def Backup(self, request: Any, context: grpc.ServicerContext) -> Any:
        request_id = wire.text(request.request_id, "request_id", 128)
        done = self._operators.backups.backup(request.path, request_id, validate_only=request.validate_only)
        return admin_pb2.BackupResponse(
            bytes=done.size_bytes,
            path=str(done.path),
            tables=done.tables,
            history_epoch=done.epoch,
            begin_time_us=done.begin_us,
            end_time_us=done.end_us,
            stalled_us=done.stalled_us,
        )

    def Check(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        table_id = wire.table_id(request.table_id) if request.table_id else ""
        for one in self._operators.check(table_id):
            *before, last = list(in_parts(one.problems, limits.PAGE_SIZE_MAX)) or [[]]
            for part in before:
                yield admin_pb2.CheckResponse(tables_checked=one.tables, entries_read=one.entries, problems=part)
            yield admin_pb2.CheckResponse(
                tables_checked=one.tables, entries_read=one.entries, problems=last, done=one.done
            )

    def ReleasePurge(self, request: Any, context: grpc.ServicerContext) -> Any:
        dry = request.validate_only
        reason = self._decider.call(lambda: self._operators.release_purge(validate_only=dry))
        if reason and not dry:
            event(PURGE_RELEASED, reason=reason)
        return admin_pb2.ReleasePurgeResponse(reason=str(reason))

    def ConfirmClock(self, request: Any, context: grpc.ServicerContext) -> Any:
        dry = request.validate_only
        hold = self._decider.call(lambda: self._operators.confirm_clock(validate_only=dry))
        return admin_pb2.ConfirmClockResponse(reason=hold.reason, off_ms=hold.off_ms)
