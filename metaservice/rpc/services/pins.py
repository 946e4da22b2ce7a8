"""Pins at the edge: check, ask the decider, convert."""

from __future__ import annotations

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.rpc.convert import wire
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.service.retention.pins import PinRequest
from protos.laketx.v1 import read_pb2 as pb


class PinMethods(Servicer):
    """Pins, for readers."""

    def PinVersions(self, request: pb.PinVersionsRequest, context: Context) -> pb.PinVersionsResponse:
        requested = pin_request(request)
        pin, granted_ms = self._ask(lambda: self._calls.pins.pin(requested))
        tables = [pb.TableVersion(table_id=table_id, version=version) for table_id, version in pin.versions]
        return pb.PinVersionsResponse(tables=tables, lease_ms=granted_ms)

    def RenewPin(self, request: pb.RenewPinRequest, context: Context) -> pb.RenewPinResponse:
        identity, requested_ms = pin_id(request.pin_id), wire.count(request.lease_ms, "lease_ms")
        return pb.RenewPinResponse(lease_ms=self._ask(lambda: self._calls.pins.renew(identity, requested_ms)))

    def Unpin(self, request: pb.UnpinRequest, context: Context) -> pb.UnpinResponse:
        identity = pin_id(request.pin_id)
        self._ask(lambda: self._calls.pins.unpin(identity))
        return pb.UnpinResponse()


def pin_id(text: str) -> str:
    if not wire.UUID7.match(text):
        raise invalid("PIN_ID_INVALID", "the id is not a UUIDv7 in lower case", pin_id=text[:64])
    return text


def pin_request(message: pb.PinVersionsRequest) -> PinRequest:
    identity = pin_id(message.pin_id)
    if not 1 <= len(message.tables) <= limits.TABLES_PER_TRANSACTION_MAX:
        raise invalid("TABLES_INVALID", count=len(message.tables))
    tables = tuple(
        (wire.table_id(table.table_id), wire.version(table.version) if table.HasField("version") else None)
        for table in message.tables
    )
    if len(set(tables)) != len(tables):
        raise invalid("TABLE_TWICE", "the pin names a version of a table twice: name each once", pin_id=identity)
    requested_ms = wire.count(message.lease_ms, "lease_ms")
    content = pb.PinVersionsRequest()
    content.CopyFrom(message)
    content.ClearField("lease_ms")
    return PinRequest(identity, tables, wire.principal(message.principal), requested_ms, wire.digest(content))
