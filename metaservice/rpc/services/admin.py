"""The servicer for operators."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc.convert import answers, wire
from metaservice.rpc.convert.paging import fitting, in_parts, page_size, page_start, page_token
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer, UseCases
from metaservice.service.operate.operators import Operators
from metaservice.service.retention.pins import Held
from metaservice.shared.log import PURGE_RELEASED, event
from protos.laketx.v1 import admin_pb2 as pb
from protos.laketx.v1 import admin_pb2_grpc


class AdminServicer(Servicer, admin_pb2_grpc.AdminServiceServicer):
    """Operators: status, backup, check, pins."""

    def __init__(self, calls: UseCases, operators: Operators) -> None:
        super().__init__(calls)
        self._operators = operators

    def GetStatus(self, request: pb.GetStatusRequest, context: Context) -> pb.GetStatusResponse:
        return pb.GetStatusResponse(**asdict(self._operators.status()))

    def Backup(self, request: pb.BackupRequest, context: Context) -> pb.BackupResponse:
        request_id = wire.text(request.request_id, "request_id", 128)
        done = self._operators.backups.backup(
            request.path, request_id, validate_only=request.validate_only, full=request.full
        )
        return pb.BackupResponse(
            bytes=done.size_bytes,
            path=done.path,
            tables=done.tables,
            history_epoch=done.epoch,
            begin_time_us=done.begin_us,
            end_time_us=done.end_us,
            stalled_us=done.stalled_us,
            backup_id=done.backup_id,
            uploaded_bytes=done.uploaded_bytes,
        )

    def Check(self, request: pb.CheckRequest, context: Context) -> Iterator[pb.CheckResponse]:
        table_id = wire.table_id(request.table_id) if request.table_id else ""
        for progress in self._operators.check(table_id):
            *before, last = list(in_parts(progress.problems, limits.PAGE_SIZE_MAX)) or [[]]
            for part in before:
                yield pb.CheckResponse(tables_checked=progress.tables, entries_read=progress.entries, problems=part)
            yield pb.CheckResponse(
                tables_checked=progress.tables, entries_read=progress.entries, problems=last, done=progress.done
            )

    def ReleasePurge(self, request: pb.ReleasePurgeRequest, context: Context) -> pb.ReleasePurgeResponse:
        dry = request.validate_only
        reason = self._ask(lambda: self._operators.release_purge(validate_only=dry))
        if reason and not dry:
            event(PURGE_RELEASED, reason=reason)
        return pb.ReleasePurgeResponse(reason=str(reason))

    def ConfirmClock(self, request: pb.ConfirmClockRequest, context: Context) -> pb.ConfirmClockResponse:
        dry = request.validate_only
        hold = self._ask(lambda: self._operators.confirm_clock(validate_only=dry))
        return pb.ConfirmClockResponse(reason=hold.reason, off_ms=hold.off_ms)

    def StepDown(self, request: pb.StepDownRequest, context: Context) -> pb.StepDownResponse:
        return pb.StepDownResponse(lease_epoch=self._operators.step_down(validate_only=request.validate_only))

    def ListPins(self, request: pb.ListPinsRequest, context: Context) -> pb.ListPinsResponse:
        size, after = page_size(request.page_size), pin_place(page_start(request.page_token))
        held = self._ask(lambda: self._calls.pins.list_held(after, size))
        shown = list(fitting(map(pin_answer, held)))
        is_last = len(held) < size and len(shown) == len(held)
        last = None if is_last else held[len(shown) - 1]
        place = f"{last.pin.pin_id}:{last.row}" if last is not None else ""
        return pb.ListPinsResponse(pins=shown, next_page_token=page_token(place))


def pin_place(token: str) -> tuple[str, int]:
    """The last row of the page."""
    if not token:
        return ("", -1)
    identity, _, row = token.partition(":")
    if not wire.UUID7.match(identity) or not (row.isascii() and row.isdecimal() and len(row) <= 4):
        raise invalid("PAGE_TOKEN_INVALID")
    return identity, int(row)


def pin_answer(held: Held) -> pb.Pin:
    table_id, version = held.version
    return pb.Pin(
        pin_id=held.pin.pin_id,
        table_id=table_id,
        version=version,
        principal=answers.principal(held.pin.principal),
        begin_time_us=held.pin.begin_us,
        age_ms=held.age_ms,
        lease_left_ms=held.lease_left_ms,
    )
