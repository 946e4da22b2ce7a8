"""Thrift's compact protocol, as far as Parquet's headers and footers use it.

A struct is read as a dict of its fields' numbers; it is written field by field. The specification is
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

TRUE, FALSE, I32, I64, BINARY, LIST, STRUCT = 1, 2, 5, 6, 8, 9, 12


class UnknownBytesError(Exception):
    """The bytes are in no form that this reader supports."""


class Reader:
    """Reads one value after another. Raises IndexError if the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def struct(self) -> dict[int, Any]:
        return {number: self.value(kind) for number, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the type of each field. The caller reads its value before the next field."""
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            yield number, head & 15

    def list_begin(self) -> tuple[int, int]:
        head = self._byte()
        return (head >> 4 if head < 0xF0 else self._unsigned()), head & 15

    def value(self, kind: int) -> Any:
        match kind:
            case 1 | 2:
                return kind == TRUE
            case 4 | 5 | 6:
                return self._signed()
            case 8:
                return self._bytes(self._unsigned())
            case 12:
                return self.struct()
            case 3:
                return self._byte()
            case 7:
                return self._bytes(8)
            case 9 | 10:
                count, of = self.list_begin()
                return [self._byte() if of in (TRUE, FALSE) else self.value(of) for _ in range(count)]
            case _:
                raise UnknownBytesError(f"a value of type {kind}")

    def _byte(self) -> int:
        byte = self.data[self.at]
        self.at += 1
        return byte

    def _bytes(self, count: int) -> bytes:
        begin, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise IndexError
        return self.data[begin : self.at]

    def _unsigned(self) -> int:
        number = shift = 0
        while (byte := self._byte()) > 127:
            number |= (byte & 127) << shift
            shift += 7
        return number | byte << shift

    def _signed(self) -> int:
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)


def struct_bytes(fields: dict[int, tuple[int, bytes]]) -> bytes:
    """Return the bytes of a struct. Its field numbers ascend by at most 15."""
    parts, before = [], 0
    for number, (kind, value) in fields.items():
        parts += [bytes([(number - before) << 4 | kind]), value]
        before = number
    return b"".join([*parts, b"\0"])


def list_bytes(kind: int, values: list[bytes]) -> bytes:
    """Return the bytes of a list of fewer than 15 values."""
    return bytes([len(values) << 4 | kind]) + b"".join(values)


def number_bytes(value: int) -> bytes:
    return varint_bytes(value << 1)


def text_bytes(value: str) -> bytes:
    content = value.encode()
    return varint_bytes(len(content)) + content


def varint_bytes(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
