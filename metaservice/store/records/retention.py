"""Pin, tag, cursor <-> bytes."""

from __future__ import annotations

from metaservice.core.retention.kept import Pin
from metaservice.core.retention.marks import Cursor, Tag
from metaservice.core.table.model import Principal
from metaservice.store import keys
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


def encode_tag(tag: Tag) -> bytes:
    return pb.TagRecord(
        name=tag.name,
        version=tag.version,
        comment=tag.comment,
        principal=tag.principal.name,
        client=tag.principal.client,
        create_us=tag.create_us,
    ).SerializeToString()


def decode_tag(key: bytes, raw: bytes) -> Tag:
    record = pb.TagRecord.FromString(raw)
    table_id = keys.uuid_text(keys.table_of_mark(key))
    return Tag(
        table_id,
        record.name,
        record.version,
        record.comment,
        Principal(record.principal, record.client),
        record.create_us,
    )


def encode_cursor(cursor: Cursor) -> bytes:
    return pb.CursorRecord(
        name=cursor.name,
        version=cursor.version,
        keep_ms=cursor.keep_ms,
        principal=cursor.principal.name,
        client=cursor.principal.client,
        create_us=cursor.create_us,
        used_us=cursor.used_us,
        request_id=cursor.request_id,
        epoch=cursor.epoch,
        inherited=cursor.inherited if cursor.holds else None,
        holds=cursor.holds,
    ).SerializeToString()


def decode_cursor(key: bytes, raw: bytes) -> Cursor:
    record = pb.CursorRecord.FromString(raw)
    return Cursor(
        table_id=keys.uuid_text(keys.table_of_mark(key)),
        name=record.name,
        version=record.version,
        keep_ms=record.keep_ms,
        principal=Principal(record.principal, record.client),
        create_us=record.create_us,
        used_us=record.used_us,
        request_id=record.request_id,
        epoch=record.epoch,
        inherited=record.inherited if record.HasField("inherited") else -1,
        holds=record.holds,
    )
