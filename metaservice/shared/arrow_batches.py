"""The batches of a stream of Arrow as one: small batches take far longer to read than their rows.

The bytes are put together without Arrow, which the service runs without. The columns are numbers, times, truths, texts
and bytes; a stream with others stays as it is.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from metaservice.shared.arrow_streams import CONTINUES, END, head_of

RECORD_BATCH: Final = 3  # kinds of messages
VERSION: Final = 4  # of the format: V5
TEXT: Final = -1  # columns whose values have a width of their own
BITS: Final = 0  # columns of truths
Widths: TypeAlias = tuple[int, ...]  # of a value of each column, in bytes
Bits: TypeAlias = tuple[int, bytes | None]  # how many, and which are set; None: all

# of a message: where its table is, and what is where in it; its table; the same of the batch in it; its nodes
_MESSAGE: Final = struct.Struct("<I 6H iI q hB5x 5H2x i q II 4xI")
_INT, _LONG, _SHORT = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<h")
_UNSIGNED, _PLACE = struct.Struct("<I"), struct.Struct("<H")


class Batch(NamedTuple):
    """A record batch in a stream: its rows, their NULLs by column, and its buffers."""

    rows: int
    nulls: Sequence[int]
    buffers: Sequence[bytes]


def in_one_batch(stream: bytes) -> bytes | None:
    """The rows of the stream in one batch; None if it has fewer than two, or can't be read here."""
    try:
        head = head_of(stream)
        widths = _widths(head)
        batches = [batch for batch in _batches(stream, len(head), widths) if batch.rows] if widths else []
        return head + _merge_batches(batches, widths) + END if len(batches) > 1 else None
    except (struct.error, LookupError, ValueError, OverflowError):  # some other program's stream, or no stream at all
        return None


def _merge_batches(batches: Sequence[Batch], widths: Widths) -> bytes:
    rows = sum(batch.rows for batch in batches)
    nodes: list[int] = []
    buffers: list[bytes] = []
    at = 0
    content: tuple[bytes, ...]
    for column, width in enumerate(widths):
        nulls = sum(batch.nulls[column] for batch in batches)
        values = [(batch.rows, batch.buffers[at + 1]) for batch in batches]
        if width == TEXT:
            content = _texts(values, [batch.buffers[at + 2] for batch in batches])
        elif width == BITS:
            content = (_bits(values),)
        else:
            content = (b"".join(_exactly(part, count * width) for count, part in values),)
        validity = [(batch.rows, batch.buffers[at] if batch.nulls[column] else None) for batch in batches]
        nodes += (rows, nulls)
        buffers += (_bits(validity) if nulls else b"", *content)
        at += 2 + (width == TEXT)
    return _message(rows, nodes, buffers)


def _exactly(content: bytes, size: int) -> bytes:
    if len(content) < size:
        raise ValueError("a buffer is too short")
    return content[:size]


def _bits(parts: Sequence[Bits]) -> bytes:
    joined = at = 0
    for count, content in parts:
        all_set = (1 << count) - 1
        some = all_set if content is None else int.from_bytes(_exactly(content, (count + 7) // 8), "little") & all_set
        joined |= some << at
        at += count
    return joined.to_bytes((at + 7) // 8, "little")


def _texts(places: Sequence[tuple[int, bytes]], contents: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Where the texts begin, and the texts."""
    begins, texts, size = array("i", [0]), [], 0
    for (count, place), content in zip(places, contents, strict=True):
        own = array("i", _exactly(place, 4 * (count + 1)))
        first, last = own[0], own[-1]
        if not 0 <= first <= last <= len(content):
            raise ValueError("a text is outside of its buffer")
        texts.append(content[first:last])
        shift = size - first
        begins.extend([begin + shift for begin in own[1:]])
        size += last - first
    return begins.tobytes(), b"".join(texts)


# -- messages, which are flatbuffers -----------------------------------------------------------------------------------


def _message(rows: int, nodes: Sequence[int], buffers: Sequence[bytes]) -> bytes:
    body: list[bytes] = []
    places: list[int] = []
    at = 0
    for content in buffers:
        padding = -len(content) % 8
        places += (at, len(content))
        body += (content, bytes(padding))
        at += len(content) + padding
    columns = len(nodes) // 2
    batch = (10, 20, 4, 12, 16, 12, rows, 12, 16 + 16 * columns, columns)
    head = _MESSAGE.pack(16, 12, 24, 16, 18, 4, 8, 12, 32, at, VERSION, RECORD_BATCH, *batch)
    vectors = struct.pack(f"<{len(nodes)}q4xI{len(places)}q", *nodes, len(buffers), *places)
    return b"".join([CONTINUES, _INT.pack(len(head) + len(vectors)), head, vectors, *body])


def _batches(stream: bytes, at: int, widths: Widths) -> Iterator[Batch]:
    columns, buffers = len(widths), sum(2 + (width == TEXT) for width in widths)
    while at < len(stream) - len(END):
        (size,) = _INT.unpack_from(stream, at + 4)
        body = at + 8 + size
        message = _table(stream, at + 8)
        kind, batch, length = (_field(stream, message, number) for number in (1, 2, 3))
        (body_bytes,) = _LONG.unpack_from(stream, length) if length else (0,)
        if not kind or stream[kind] != RECORD_BATCH or size <= 0 or body_bytes < 0:
            raise ValueError("not a batch of rows")
        batch = _table(stream, batch)
        rows, nodes, places, *others = (_field(stream, batch, number) for number in range(5))
        if any(others):
            raise ValueError("compressed, or of views")
        counts = struct.unpack_from(f"<{2 * columns}q", stream, _vector(stream, nodes, columns))
        ranges = struct.unpack_from(f"<{2 * buffers}q", stream, _vector(stream, places, buffers))
        if min(counts) < 0 or min(ranges) < 0 or len(stream) < body + body_bytes:
            raise ValueError("a batch is outside of the stream")
        yield Batch(
            _LONG.unpack_from(stream, rows)[0] if rows else 0,
            counts[1::2],
            [
                stream[body + begin : body + begin + count]
                for begin, count in zip(ranges[::2], ranges[1::2], strict=True)
            ],
        )
        at = body + body_bytes


@lru_cache(maxsize=1 << 6)
def _widths(head: bytes) -> Widths:
    """Of the columns of a stream with this schema; empty if some are of another kind, or there are none."""
    schema = _table(head, _field(head, _table(head, 8), 2))
    endianness, fields = _field(head, schema, 0), _field(head, schema, 1)
    if endianness and head[endianness]:
        return ()
    fields += _UNSIGNED.unpack_from(head, fields)[0]
    (count,) = _UNSIGNED.unpack_from(head, fields)
    widths = [_width(head, _table(head, fields + 4 + 4 * number)) for number in range(count)]
    return tuple(width for width in widths if width is not None) if None not in widths else ()


def _width(head: bytes, field: int) -> int | None:
    kind, definition, dictionary = (_field(head, field, number) for number in (2, 3, 4))
    if dictionary or not kind:
        return None
    definition = _table(head, definition)

    def number(at: int, default: int, form: struct.Struct = _INT) -> int:
        place = _field(head, definition, at)
        return int(form.unpack_from(head, place)[0]) if place else default

    match head[kind]:
        case 2:  # integers
            return number(0, 0) // 8 or None
        case 3:  # floats
            return {0: 2, 1: 4, 2: 8}[number(0, 0, _SHORT)]
        case 4 | 5:  # bytes, texts
            return TEXT
        case 6:
            return BITS
        case 7:  # decimals
            return number(2, 128) // 8
        case 8:  # dates: days, or milliseconds
            return 8 if number(0, 1, _SHORT) else 4
        case 10:  # timestamps
            return 8
        case _:
            return None


def _table(content: bytes, at: int) -> int:
    """Where the table is to which the offset there leads."""
    return at + int(_UNSIGNED.unpack_from(content, at)[0])


def _field(content: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it is left out."""
    fields = table - _INT.unpack_from(content, table)[0]
    slot = 4 + 2 * number
    if slot >= _PLACE.unpack_from(content, fields)[0]:
        return 0
    (place,) = _PLACE.unpack_from(content, fields + slot)
    return table + place if place else 0


def _vector(content: bytes, at: int, count: int) -> int:
    """Where the items of a vector are, which must be so many."""
    begin = _table(content, at)
    if not at or _UNSIGNED.unpack_from(content, begin)[0] != count:
        raise ValueError("another number of items")
    return begin + 4
