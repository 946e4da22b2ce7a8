"""Streams of Arrow as bytes: a schema, batches, and an end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CONTINUES: Final = b"\xff\xff\xff\xff"  # before the size of each part of a stream
END: Final = CONTINUES + bytes(4)


def head_of(stream: bytes) -> bytes:
    """The schema of a stream; all of a stream in Arrow's old format, which no other continues."""
    return stream[: 8 + int.from_bytes(stream[4:8], "little")] if stream.startswith(CONTINUES) else stream


def join_streams(streams: Sequence[bytes]) -> bytes | None:
    """One stream with the rows of all; None if their schemas are not the same bytes.

    The schemas of one kind of writer are. Reading the schemas is most of the time that small streams take.
    """
    head = head_of(streams[0])
    begin, end = len(head), -len(END)
    if not head.startswith(CONTINUES) or {(stream[:begin], stream[end:]) for stream in streams} != {(head, END)}:
        return None
    return b"".join([head, *[stream[begin:end] for stream in streams], END])
