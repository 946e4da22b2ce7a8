"""Data files and delete sets: wire -> core, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from pyroaring import BitMap64

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.table.external import canonical_file
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import COMPACTIONS, Entry, FileKind, Operation
from metaservice.rpc.convert import wire, wire_rows
from protos.laketx.v1 import common_pb2


def check_path(path: str, txn: str) -> None:
    if not path or len(path) > limits.PATH_CHARS_MAX or "\x00" in path:
        raise invalid("PATH_INVALID", path=path[:128])
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != txn or any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise invalid("PATH_OUTSIDE_TRANSACTION", "stage the file in the transaction's own folder", path=path[:128])


def external_file(message: common_pb2.DataFile) -> tuple[str, common_pb2.DataFile]:
    """An external file's path in one spelling, and the message with it; the request is not changed."""
    if len(message.path) > limits.PATH_CHARS_MAX:
        raise invalid("PATH_INVALID", "too long", most=limits.PATH_CHARS_MAX)
    path = canonical_file(message.path)
    if path != message.path:
        message = common_pb2.DataFile.FromString(message.SerializeToString())
        message.path = path
    return path, message


INLINED, INLINED_DELTA = common_pb2.FILE_KIND_INLINED, common_pb2.FILE_KIND_INLINED_DELTA  # until they are stored
KEYED_KINDS = {
    **{int(kind): kind for kind in (FileKind.BASE, FileKind.DELTA)},
    int(INLINED_DELTA): FileKind.DELTA,
}
APPEND_KINDS = {int(FileKind.APPEND): FileKind.APPEND, int(INLINED): FileKind.APPEND}


def data_files(messages: Iterable[common_pb2.DataFile], meta: TableMeta, txn: str, operation: Operation) -> list[Entry]:
    """Parse data files. There may be very many, so their common parts are computed once."""
    folder, newest, partitioning = f"{txn}/", meta.schema_version, meta.partitioning
    mark, is_partitioned = schema_mark(newest), bool(partitioning.columns)
    is_plain = wire.PLAIN_NAME.match
    kinds, buckets = (KEYED_KINDS, meta.buckets) if meta.keyed else (APPEND_KINDS, 1)
    changes_data, says_itself = operation not in COMPACTIONS, operation is Operation.CUSTOM
    parsed: list[Entry] = []
    for sent in messages:
        message, path, external = sent, sent.path, sent.external
        plain = path.startswith(folder) and is_plain(path, len(folder)) and len(path) <= limits.PATH_CHARS_MAX
        if external:
            path, message = external_file(sent)
        elif not plain:
            check_path(path, txn)
        if message.HasField("first_row_id"):
            raise invalid("ROW_ID_SET", "only the server sets first_row_id: leave it unset", path=path)
        bucket_number, schema_version = message.bucket, message.schema_version
        if bucket_number and not 0 < bucket_number < buckets:
            raise invalid("BUCKET_OUT_OF_RANGE", path=path, bucket=bucket_number, buckets=buckets)
        number = message.kind
        kind = kinds.get(number)
        if kind is None:
            raise invalid("FILE_KIND_INVALID", path=path, kind=number)
        if message.tombstones or message.set_columns or message.no_new_rows:
            wire_rows.check_images(message, meta, kind)
        if not 0 <= schema_version <= newest:
            raise invalid("SCHEMA_VERSION_INVALID", path=path, asked=schema_version, newest=newest)
        is_inlined = number >= INLINED or message.inlined or bool(message.content)
        is_placed = is_partitioned or message.HasField("partition")
        entry = Entry(
            path,
            wire.partition(message.partition, partitioning) if is_placed else "",
            bucket_number,
            kind,
            wire.count(message.rows, "rows", limits.FILE_COUNT_MAX),
            wire.count(message.bytes, "bytes", limits.FILE_COUNT_MAX),
            b"" if is_inlined else message.SerializeToString() + (b"" if schema_version else mark),
            message.data_change if says_itself and message.HasField("data_change") else changes_data,
            False,
            False,
            external,
        )
        if is_inlined:
            _inline(entry, message, schema_version or newest, may_inline=changes_data)
        if len(entry.payload) > limits.ENTRY_PLAIN_BYTES_MAX:
            wire_rows.check_size(entry)
        if message.carries_row_ids:
            _carry_row_ids(entry, message)
        parsed.append(entry)
    return parsed


def _inline(entry: Entry, message: common_pb2.DataFile, schema_version: int, *, may_inline: bool) -> None:
    """Take the rows from the message; the record shows only that they are in the store. They aren't encoded again."""
    content = message.content
    if message.inlined or entry.external or not may_inline:
        why = "leave `inlined` to the service, and inline only new rows"
        raise invalid("INLINED_INVALID", why, path=entry.path)
    if len(content) > limits.INLINED_FILE_BYTES_MAX:
        raise invalid("INLINED_TOO_LARGE", path=entry.path, bytes=len(content), most=limits.INLINED_FILE_BYTES_MAX)
    if not content or message.bytes != len(content) or not entry.rows:
        raise invalid("INLINED_INVALID", "`bytes` is the length of `content`, and it has rows", path=entry.path)
    stored = common_pb2.DataFile()
    stored.CopyFrom(message)
    stored.ClearField("content")
    stored.schema_version = schema_version
    stored.kind = int(entry.kind)  # type: ignore[assignment]
    stored.inlined = True
    entry.payload, entry.content, entry.inlined = stored.SerializeToString(), content, True


def _carry_row_ids(entry: Entry, message: common_pb2.DataFile) -> None:
    entry.carries_row_ids = True
    if message.HasField("row_id_min") and message.HasField("row_id_max"):
        low, high = wire.count(message.row_id_min, "row_id_min"), wire.count(message.row_id_max, "row_id_max")
        if low > high:
            raise invalid("ROW_ID_RANGE_INVALID", path=entry.path)
        entry.row_id_min, entry.row_id_max = low, high


@lru_cache(maxsize=1_024)
def schema_mark(schema_version: int) -> bytes:
    """Bytes that set the schema_version when they follow a DataFile's bytes."""
    return common_pb2.DataFile(schema_version=schema_version).SerializeToString()


def delete_set(message: common_pb2.DeleteSet, meta: TableMeta, txn: str, operation: Operation) -> Entry:
    path = message.path
    check_path(path, txn)
    if meta.keyed:
        raise invalid("DELETE_SET_NOT_ALLOWED", "primary-key tables have no delete sets: write tombstones", path=path)
    if message.bitmap:
        try:
            bitmap = BitMap64.deserialize(message.bitmap)
            rows, low, high = len(bitmap), bitmap.min(), bitmap.max()
        except Exception as error:  # the library raises whatever it meets in foreign bytes
            raise invalid("DELETE_SET_UNREADABLE", path=path) from error
        if message.rows not in (0, rows):
            raise invalid("DELETE_SET_COUNT", path=path, declared=message.rows, found=rows)
    else:
        rows = wire.count(message.rows, "rows", limits.FILE_COUNT_MAX)
        low, high = wire.count(message.row_id_min, "row_id_min"), wire.count(message.row_id_max, "row_id_max")
        wire_rows.check_ranges(message, low, high)
    if rows == 0 or low > high:
        raise invalid("DELETE_SET_EMPTY", path=path)
    wire.count(high, "row_id_max")
    change = message.data_change if operation is Operation.CUSTOM and message.HasField("data_change") else True
    stored = common_pb2.DeleteSet()
    stored.CopyFrom(message)
    stored.rows, stored.row_id_min, stored.row_id_max = rows, low, high
    entry = Entry(
        path,
        wire.partition(message.partition, meta.partitioning),
        0,
        FileKind.APPEND,
        rows,
        wire.count(message.bytes, "bytes", limits.FILE_COUNT_MAX),
        stored.SerializeToString(deterministic=True),
        change,
        is_delete_set=True,
        row_id_min=low,
        row_id_max=high,
        touches=tuple(map(wire_rows.named_path, message.touches)),
    )
    wire_rows.check_size(entry)
    return entry


def entries(
    files: Sequence[common_pb2.DataFile],
    delete_sets: Sequence[common_pb2.DeleteSet],
    meta: TableMeta,
    txn: str,
    operation: Operation,
) -> list[Entry]:
    if len(files) + len(delete_sets) > limits.FILES_PER_MESSAGE_MAX:
        raise invalid("TOO_MANY_FILES_IN_MESSAGE", count=len(files), most=limits.FILES_PER_MESSAGE_MAX)
    parsed = data_files(files, meta, txn, operation)
    parsed += [delete_set(message, meta, txn, operation) for message in delete_sets]
    if len(parsed) > 1 and len({entry.path for entry in parsed}) != len(parsed):
        raise invalid("PATH_TWICE", "a path is named twice in one message: name it once")
    return parsed
