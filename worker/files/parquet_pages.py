"""Some pages of a column, as a Parquet file of their own.

pyarrow reads a column of a row group from its first page on. A look-up wants a page from the middle. So the column's
pages are found by their headers, which say how long they are and how many values they have, and those that are wanted
become a small file in memory: the column's dictionary if they need it, the pages as they are, and a footer. pyarrow
reads that file, so the values are decoded by the same code as always.

Only columns without nesting are read this way, where a value is a row. See https://parquet.apache.org/docs/file-format
for the bytes, and https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md for their encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from worker.files.position_blocks import Numbers

MAGIC: Final = b"PAR1"
HEADER_BYTES: Final = 1 << 10  # read at once; a header is seldom longer
HEADER_BYTES_MAX: Final = 1 << 20
PAGES_MAX: Final = 1 << 9  # a column with more is read faster than their headers
TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS: Final = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}  # "LZ4" is one of two
REPEATED: Final = 2
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
WITHOUT_DICTIONARY: Final = frozenset([0, 3, 5, 6, 7, 9])  # encodings
TRUE, FALSE, I32, I64, BINARY, LIST, STRUCT = 1, 2, 5, 6, 8, 9, 12


class UnknownBytesError(Exception):
    """The file, or its column, is none that this module understands."""


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a column in a row group that hold some positions.

    `file` reads them: a Parquet file of this column and these pages. `places` are the positions in it, `size` is how
    many bytes it takes, and `unpacked_size` how many they become.
    """

    file: Callable[[], bytes]
    places: Numbers
    size: int
    unpacked_size: int


@dataclass(frozen=True, slots=True)
class _Page:
    kind: int
    offset: int
    size: int  # with the header
    unpacked_size: int
    values: int
    encoding: int


class PagedFile:
    """An open Parquet file with its metadata."""

    def __init__(self, stream: Any, metadata: Any) -> None:
        self._stream = stream
        self._metadata = metadata
        self._elements = _columns_of(_footer(stream))

    def pages(self, group: int, leaf: int, positions: Numbers) -> Pages:
        """The pages of a column without nesting; positions, one at least, ascend and count from the group's begin."""
        chunk = self._metadata.row_group(group).column(leaf)
        if chunk.compression not in CODECS or leaf not in self._elements:
            raise UnknownBytesError(f"{chunk.path_in_schema}, {chunk.compression}")
        dictionary, found, begins = [], [], []
        begin, last = 0, int(positions[-1])
        for page in self._walked(chunk):
            if page.kind == DICTIONARY_PAGE:
                dictionary.append(page)
            elif page.kind in (DATA_PAGE, DATA_PAGE_V2):
                found.append(page)
                begins.append(begin)
                begin += page.values
                if begin > last:
                    break
            if len(found) > PAGES_MAX:
                raise UnknownBytesError(f"{chunk.path_in_schema} has many small pages")
        if begin <= last:
            raise UnknownBytesError(f"{chunk.path_in_schema} ends at {begin}")
        numbers = np.searchsorted(np.array([*begins[1:], begin]), positions, "right")
        wanted = np.unique(numbers)
        chosen = [found[at] for at in wanted.tolist()]
        if all(page.encoding in WITHOUT_DICTIONARY for page in chosen):
            dictionary = []
        counts = np.array([page.values for page in chosen])
        shifts = np.array(begins)[wanted] - (np.cumsum(counts) - counts)
        parts = [*dictionary, *chosen]
        return Pages(
            file=partial(self._file, chunk, self._elements[leaf], dictionary, chosen),
            places=positions - shifts[np.searchsorted(wanted, numbers)],
            size=sum(page.size for page in parts),
            unpacked_size=sum(page.unpacked_size for page in parts),
        )

    def _walked(self, chunk: Any) -> Iterator[_Page]:
        offset, values = chunk.data_page_offset, 0
        if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < offset:
            offset = chunk.dictionary_page_offset
        while values < chunk.num_values:
            page = self._page(offset)
            offset += page.size
            values += page.values if page.kind != DICTIONARY_PAGE else 0
            yield page

    def _page(self, offset: int) -> _Page:
        size = HEADER_BYTES
        while size <= HEADER_BYTES_MAX:
            reader = _Reader(self._stream.read_at(size, offset))
            try:
                header = reader.struct()
            except IndexError:  # it is longer
                size *= 32
                continue
            about, encoding = (header[8], 4) if 8 in header else (header.get(5, {}), 2)
            if not header.keys() >= {1, 2, 3} or header[2] < 0 or header[3] < 0 or about.get(1, 0) < 0:
                break
            unpacked = reader.at + header[2]
            return _Page(header[1], offset, reader.at + header[3], unpacked, about.get(1, 0), about.get(encoding, -1))
        raise UnknownBytesError(f"no page begins at {offset}")

    def _file(self, chunk: Any, element: bytes, dictionary: list[_Page], pages: list[_Page]) -> bytes:
        body = b"".join([MAGIC, *(self._stream.read_at(page.size, page.offset) for page in (*dictionary, *pages))])
        values = sum(page.values for page in pages)
        begin, end = len(MAGIC), len(MAGIC) + sum(page.size for page in dictionary)
        unpacked = sum(page.unpacked_size for page in (*dictionary, *pages))
        column = _struct(
            {
                1: (I32, _number(TYPES.index(chunk.physical_type))),
                2: (LIST, _list(I32, [_number(0)])),
                3: (LIST, _list(BINARY, [_text(chunk.path_in_schema)])),
                4: (I32, _number(CODECS[chunk.compression])),
                5: (I64, _number(values)),
                6: (I64, _number(unpacked)),
                7: (I64, _number(len(body) - len(MAGIC))),
                9: (I64, _number(end)),
                **({11: (I64, _number(begin))} if dictionary else {}),
            }
        )
        group = _struct(
            {
                1: (LIST, _list(STRUCT, [_struct({2: (I64, _number(begin)), 3: (STRUCT, column)})])),
                2: (I64, _number(unpacked)),
                3: (I64, _number(values)),
            }
        )
        root = _struct({4: (BINARY, _text("schema")), 5: (I32, _number(1))})
        footer = _struct(
            {
                1: (I32, _number(2)),
                2: (LIST, _list(STRUCT, [root, element])),
                3: (I64, _number(values)),
                4: (LIST, _list(STRUCT, [group])),
                6: (BINARY, _text(self._metadata.created_by or "")),
            }
        )
        return b"".join([body, footer, len(footer).to_bytes(4, "little"), MAGIC])


def _footer(stream: Any) -> bytes:
    size = stream.size()
    end = stream.read_at(8, size - 8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length + 8 > size:
        raise UnknownBytesError("no footer")
    found: bytes = stream.read_at(length, size - 8 - length)
    return found


def _columns_of(footer: bytes) -> dict[int, bytes]:
    """The elements of the schema that are columns without nesting, as they are in the footer, by their leaves."""
    reader = _Reader(footer)
    try:
        for number, kind in reader.fields():
            if number == 2 and kind == LIST:
                return dict(_flat(reader))
            reader.value(kind)
    except (IndexError, UnicodeDecodeError):
        pass
    raise UnknownBytesError("no schema")


def _flat(reader: _Reader) -> Iterator[tuple[int, bytes]]:
    count, _ = reader.list_begin()
    reader.struct()  # the root
    leaf = below = 0  # elements that belong to a nested column
    for _ in range(count - 1):
        begin = reader.at
        element = reader.struct()
        children = element.get(5, 0)
        if not below and not children and element.get(3) != REPEATED:
            yield leaf, reader.data[begin : reader.at]
        leaf += not children
        below = max(0, below - 1) + children


# -- Thrift's compact protocol -----------------------------------------------------------------------------------------


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def struct(self) -> dict[int, Any]:
        return {number: self.value(kind) for number, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field; its value is to be read before the next."""
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
        found = self.data[self.at]
        self.at += 1
        return found

    def _bytes(self, count: int) -> bytes:
        begin, self.at = self.at, self.at + count
        if self.at > len(self.data):
            raise IndexError
        return self.data[begin : self.at]

    def _unsigned(self) -> int:
        found = shift = 0
        while (one := self._byte()) > 127:
            found |= (one & 127) << shift
            shift += 7
        return found | one << shift

    def _signed(self) -> int:
        found = self._unsigned()
        return found >> 1 ^ -(found & 1)


def _struct(fields: dict[int, tuple[int, bytes]]) -> bytes:
    """Numbers ascend, at most by 15."""
    parts, before = [], 0
    for number, (kind, value) in fields.items():
        parts += [bytes([(number - before) << 4 | kind]), value]
        before = number
    return b"".join([*parts, b"\0"])


def _list(kind: int, values: list[bytes]) -> bytes:
    """Fewer than 15 values."""
    return bytes([len(values) << 4 | kind]) + b"".join(values)


def _number(value: int) -> bytes:
    return _varint(value << 1)


def _text(value: str) -> bytes:
    found = value.encode()
    return _varint(len(found)) + found


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
