"""Tag, cursor <-> bytes."""

from __future__ import annotations

from metaservice.core.retention.marks import Cursor, Tag
from metaservice.core.table.model import Principal
from metaservice.store import keys
from protos.laketx.storage.v1 import records_pb2 as pb


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
    one = pb.TagRecord.FromString(raw)
    table_id = keys.uuid_text(keys.table_of_mark(key))
    return Tag(table_id, one.name, one.version, one.comment, Principal(one.principal, one.client), one.create_us)


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
    ).SerializeToString()


def decode_cursor(key: bytes, raw: bytes) -> Cursor:
    one = pb.CursorRecord.FromString(raw)
    return Cursor(
        table_id=keys.uuid_text(keys.table_of_mark(key)),
        name=one.name,
        version=one.version,
        keep_ms=one.keep_ms,
        principal=Principal(one.principal, one.client),
        create_us=one.create_us,
        used_us=one.used_us,
        request_id=one.request_id,
        epoch=one.epoch,
    )
