"""Pins and the purge list at the edge: check, ask the decider, convert."""

from __future__ import annotations

from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc import answers, wire
from metaservice.rpc.paging import fitting
from metaservice.service.decider import Decider
from metaservice.service.pins import Held, PinRequest, Pins
from metaservice.service.purge import Purge
from protos.laketx.v1 import admin_pb2, maintenance_pb2, read_pb2


@dataclass(frozen=True, slots=True)
class KeepingCalls:
    """The calls, over the use cases."""

    decider: Decider
    pins: Pins
    purge: Purge

    def pin(self, request: read_pb2.PinVersionsRequest) -> read_pb2.PinVersionsResponse:
        asked = pin_request(request)
        pin, granted_ms = self.decider.call(lambda: self.pins.pin(asked))
        tables = [read_pb2.TableVersion(table_id=table_id, version=version) for table_id, version in pin.versions]
        return read_pb2.PinVersionsResponse(tables=tables, lease_ms=granted_ms)

    def renew(self, request: read_pb2.RenewPinRequest) -> read_pb2.RenewPinResponse:
        identity, asked_ms = pin_id(request.pin_id), wire.count(request.lease_ms, "lease_ms")
        return read_pb2.RenewPinResponse(lease_ms=self.decider.call(lambda: self.pins.renew(identity, asked_ms)))

    def unpin(self, request: read_pb2.UnpinRequest) -> read_pb2.UnpinResponse:
        identity = pin_id(request.pin_id)
        self.decider.call(lambda: self.pins.unpin(identity))
        return read_pb2.UnpinResponse()

    def list_pins(self, start: str, size: int) -> tuple[list[admin_pb2.Pin], str]:
        """A page, and where the next one starts."""
        after = pin_place(start)
        found = self.decider.call(lambda: self.pins.list_held(after, size))
        shown = list(fitting(map(pin_answer, found)))
        is_last = len(found) < size and len(shown) == len(found)
        last = None if is_last else found[len(shown) - 1]
        return shown, f"{last.pin.pin_id}:{last.row}" if last is not None else ""

    def list_purgeable(
        self, request: maintenance_pb2.ListPurgeableRequest, start: str
    ) -> tuple[maintenance_pb2.ListPurgeableResponse, str]:
        """A page, and where the next one starts."""
        if not 0 <= request.page_size <= limits.PAGE_SIZE_MAX:
            raise invalid("PAGE_SIZE_INVALID", asked=request.page_size, most=limits.PAGE_SIZE_MAX)
        size = request.page_size or limits.PAGE_SIZE_MAX
        if request.table_id:
            table_id = wire.table_id(request.table_id)
            found = self.decider.call(lambda: self.purge.list_paths(table_id, start, size))
            shown = list(fitting(found))
            answer = maintenance_pb2.ListPurgeableResponse(paths=shown)
        else:
            after = wire.table_id(start) if start else ""
            shown = found = self.decider.call(lambda: self.purge.list_tables(after, size))
            answer = maintenance_pb2.ListPurgeableResponse(table_ids=found)
        is_last = len(found) < size and len(shown) == len(found)
        return answer, "" if is_last else shown[-1]

    def confirm_purged(self, request: maintenance_pb2.ConfirmPurgedRequest) -> maintenance_pb2.ConfirmPurgedResponse:
        table_id, paths = wire.table_id(request.table_id), list(request.paths)
        if len(paths) > limits.PAGE_SIZE_MAX:
            raise invalid("TOO_MANY_PATHS", count=len(paths), most=limits.PAGE_SIZE_MAX)
        for path in paths:
            if not path or len(path) > limits.PATH_CHARS_MAX:
                raise invalid("PATH_INVALID", path=path[:128])
        self.decider.call(lambda: self.purge.confirm(table_id, paths))
        return maintenance_pb2.ConfirmPurgedResponse()


def pin_id(text: str) -> str:
    if not wire.UUID7.match(text):
        raise invalid("PIN_ID_INVALID", "a UUIDv7 in lower case", pin_id=text[:64])
    return text


def pin_request(message: read_pb2.PinVersionsRequest) -> PinRequest:
    identity = pin_id(message.pin_id)
    if not 1 <= len(message.tables) <= limits.TABLES_PER_TRANSACTION_MAX:
        raise invalid("TABLES_INVALID", "between one table and the limit", count=len(message.tables))
    tables = tuple(
        (wire.table_id(one.table_id), wire.version(one.version) if one.HasField("version") else None)
        for one in message.tables
    )
    if len(set(tables)) != len(tables):
        raise invalid("TABLE_TWICE", "a version of a table is pinned once", pin_id=identity)
    asked_ms = wire.count(message.lease_ms, "lease_ms")
    content = read_pb2.PinVersionsRequest()
    content.CopyFrom(message)
    content.ClearField("lease_ms")
    return PinRequest(identity, tables, wire.principal(message.principal), asked_ms, wire.digest(content))


def pin_place(token: str) -> tuple[str, int]:
    """The last row that was listed."""
    if not token:
        return ("", -1)
    identity, _, row = token.partition(":")
    if not wire.UUID7.match(identity) or not (row.isascii() and row.isdecimal() and len(row) <= 4):
        raise invalid("PAGE_TOKEN_INVALID")
    return identity, int(row)


def pin_answer(held: Held) -> admin_pb2.Pin:
    table_id, version = held.version
    return admin_pb2.Pin(
        pin_id=held.pin.pin_id,
        table_id=table_id,
        version=version,
        principal=answers.principal(held.pin.principal),
        begin_time_us=held.pin.begin_us,
        age_ms=held.age_ms,
        lease_left_ms=held.lease_left_ms,
    )
