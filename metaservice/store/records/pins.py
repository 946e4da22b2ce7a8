"""Pin <-> bytes."""

from __future__ import annotations

from metaservice.core.retention.kept import Pin
from metaservice.core.table.model import Principal
from protos.laketx.storage.v1 import records_pb2 as pb


def encode_pin(pin: Pin) -> bytes:
    return pb.PinRecord(
        pin_id=pin.pin_id,
        versions=[pb.PinnedRecord(table_id=table_id, version=version) for table_id, version in pin.versions],
        principal=pin.principal.name,
        client=pin.principal.client,
        begin_us=pin.begin_us,
        lease_ms=pin.lease_ms,
        digest=pin.digest,
    ).SerializeToString()


def decode_pin(raw: bytes) -> Pin:
    record = pb.PinRecord.FromString(raw)
    return Pin(
        record.pin_id,
        tuple((version.table_id, version.version) for version in record.versions),
        Principal(record.principal, record.client),
        record.begin_us,
        record.lease_ms,
        record.digest,
    )
