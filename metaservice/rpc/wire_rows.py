"""Wire -> core, of what is judged row by row, and of what compactions say of their rows."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.model import Group, KeySet
from protos.laketx.v1 import common_pb2

Placed = tuple[str, int, common_pb2.KeySet]  # partition and bucket, converted


def key_sets(placed: Sequence[Placed]) -> tuple[KeySet, ...]:
    keys = sum(len(message.hashes) for _, _, message in placed)
    if keys > limits.KEYS_EXACT_MAX:
        raise invalid("TOO_MANY_KEYS", "leave the sets of some buckets out", count=keys, most=limits.KEYS_EXACT_MAX)
    if len({(partition, bucket) for partition, bucket, _ in placed}) != len(placed):
        raise invalid("KEY_SET_TWICE", "one key set for each bucket")
    return tuple(KeySet(partition, bucket, array("q", message.hashes)) for partition, bucket, message in placed)


def check_ranges(message: common_pb2.DeleteSet, low: int, high: int) -> None:
    """Ascending, apart, and from the smallest id to the largest."""
    spans = message.ranges
    if len(spans) > limits.ROW_RANGES_MAX:
        raise invalid("TOO_MANY_RANGES", count=len(spans), most=limits.ROW_RANGES_MAX)
    after = -1
    for span in spans:
        if not after < span.first <= span.last:
            raise invalid("ROW_ID_RANGE_INVALID", "ranges are ascending and apart", path=message.path)
        after = span.last
    if spans and (spans[0].first, spans[-1].last) != (low, high):
        raise invalid("ROW_ID_RANGE_INVALID", "ranges hold the smallest and the largest id", path=message.path)


def group(message: common_pb2.CompactionGroup, partition: str, bucket: int) -> Group:
    for name, digest in (("input_digest", message.input_digest), ("output_digest", message.output_digest)):
        if len(digest) > limits.DIGEST_BYTES_MAX:
            raise invalid("DIGEST_TOO_LONG", what=name, bytes=len(digest), most=limits.DIGEST_BYTES_MAX)
    return Group(
        partition,
        bucket,
        tuple(message.inputs),
        tuple(message.outputs),
        message.input_digest,
        message.output_digest,
        message.input_rows if message.HasField("input_rows") else None,
        message.output_rows if message.HasField("output_rows") else None,
    )
