"""Wire -> core: the facts for judging row by row, and compactions' facts about their rows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.model import Entry, FileKind, Group, KeySet
from protos.laketx.v1 import common_pb2

Placed = tuple[str, int, common_pb2.KeySet]  # partition and bucket, converted


def key_sets(placed: Sequence[Placed]) -> tuple[KeySet, ...]:
    if not placed:
        return ()
    keys = sum(len(message.hashes) for _, _, message in placed)
    if keys > limits.KEYS_EXACT_MAX:
        raise invalid("TOO_MANY_KEYS", count=keys, most=limits.KEYS_EXACT_MAX)
    if len({(partition, bucket) for partition, bucket, _ in placed}) != len(placed):
        raise invalid("KEY_SET_TWICE", "two key sets name one bucket: merge them")
    return tuple(KeySet(partition, bucket, array("q", message.hashes)) for partition, bucket, message in placed)


def check_ranges(message: common_pb2.DeleteSet, low: int, high: int) -> None:
    """Checks that ranges ascend, don't overlap, and reach from the smallest id to the largest."""
    spans = message.ranges
    if len(spans) > limits.ROW_RANGES_MAX:
        raise invalid("TOO_MANY_RANGES", count=len(spans), most=limits.ROW_RANGES_MAX)
    after = -1
    for span in spans:
        if not after < span.first <= span.last:
            raise invalid("ROW_ID_RANGE_INVALID", "the ranges must ascend and not overlap", path=message.path)
        after = span.last
    if spans and (spans[0].first, spans[-1].last) != (low, high):
        raise invalid(
            "ROW_ID_RANGE_INVALID",
            "the ranges must begin with the smallest id and end with the largest",
            path=message.path,
        )


def check_images(message: common_pb2.DataFile, meta: TableMeta, kind: FileKind) -> None:
    """Checks what a file says of its images: how many are tombstones, and which columns the others set."""
    if message.tombstones and not (kind is FileKind.DELTA and 0 < message.tombstones <= message.rows):
        raise invalid("TOMBSTONES_INVALID", path=message.path[:128], count=message.tombstones)
    columns = message.set_columns
    if message.no_new_rows and not columns:
        raise invalid("SET_COLUMNS_INVALID", "only files with set_columns say no_new_rows", path=message.path[:128])
    if not columns:
        return
    if not meta.is_partial or kind is not FileKind.DELTA or message.external:
        raise invalid("SET_COLUMNS_INVALID", "only delta files of a table with merge.engine=partial have them")
    if len(set(columns)) != len(columns) or not all(0 < number <= meta.last_column_id for number in columns):
        raise invalid("SET_COLUMNS_INVALID", "each is the id of a column, named once", path=message.path[:128])


def named_path(path: str) -> str:
    """The path of an existing entry, or empty."""
    if len(path) > limits.PATH_CHARS_MAX:
        raise invalid("PATH_INVALID", "too long", path=path[:128], most=limits.PATH_CHARS_MAX)
    return path


def check_size(entry: Entry) -> None:
    """Checks that an answer can carry the entry, and many of them without statistics."""
    size = len(entry.payload)
    if size > limits.ENTRY_BYTES_MAX:
        what = "keep it in a file, touch fewer" if entry.is_delete_set else "give fewer or shorter statistics"
        raise invalid("ENTRY_TOO_LARGE", what, path=entry.path, bytes=size, most=limits.ENTRY_BYTES_MAX)
    if entry.is_delete_set or size <= limits.ENTRY_PLAIN_BYTES_MAX:
        return
    plain = common_pb2.DataFile.FromString(entry.payload)
    plain.ClearField("stats")
    size, most = plain.ByteSize(), limits.ENTRY_PLAIN_BYTES_MAX
    if size > most:
        raise invalid("ENTRY_TOO_LARGE", "without its statistics", path=entry.path, bytes=size, most=most)


def group(message: common_pb2.CompactionGroup, partition: str, bucket: int) -> Group:
    for name, digest in (("input_digest", message.input_digest), ("output_digest", message.output_digest)):
        if len(digest) > limits.DIGEST_BYTES_MAX:
            raise invalid("DIGEST_TOO_LONG", what=name, bytes=len(digest), most=limits.DIGEST_BYTES_MAX)
    return Group(
        partition=partition,
        bucket=bucket,
        inputs=tuple(map(named_path, message.inputs)),
        outputs=tuple(map(named_path, message.outputs)),
        input_digest=message.input_digest,
        output_digest=message.output_digest,
        input_rows=message.input_rows if message.HasField("input_rows") else None,
        output_rows=message.output_rows if message.HasField("output_rows") else None,
    )
