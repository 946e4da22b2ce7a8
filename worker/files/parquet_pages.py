"""Some pages of a column, as a separate Parquet file.

pyarrow reads a column of a row group from its first page on. A look-up needs a page from the middle. So the column's
pages are found by their headers, which contain their lengths and numbers of values, and the needed pages become a
small file in memory: the column's dictionary if they need it, the pages as they are, and a footer. pyarrow
reads that file, so the values are decoded by the same code as always.

Only columns without nesting are read this way, where a value is a row.
See https://parquet.apache.org/docs/file-format for the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from worker.files.position_blocks import Numbers
from worker.files.thrift_compact import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Reader,
    UnknownBytesError,
    list_bytes,
    number_bytes,
    struct_bytes,
    text_bytes,
)

MAGIC: Final = b"PAR1"
HEADER_BYTES: Final = 1 << 10  # read at once; a header is seldom longer
HEADER_BYTES_MAX: Final = 1 << 20
PAGES_MAX: Final = 1 << 9  # a column with more is read faster than their headers
TYPES: Final = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
CODECS: Final = {"UNCOMPRESSED": 0, "SNAPPY": 1, "GZIP": 2, "BROTLI": 4, "ZSTD": 6}  # "LZ4" is one of two
REPEATED: Final = 2
DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
WITHOUT_DICTIONARY: Final = frozenset([0, 3, 5, 6, 7, 9])  # encodings


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of a column in a row group that contain some positions.

    `file` reads them: a Parquet file of this column and these pages. `places` are the positions in it, `size` is its
    number of bytes, and `unpacked_size` that of its values.
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
        """Return pages of a flat column. Positions (at least one) ascend and count from the group's start."""
        chunk = self._metadata.row_group(group).column(leaf)
        if chunk.compression not in CODECS or leaf not in self._elements:
            raise UnknownBytesError(f"{chunk.path_in_schema}, {chunk.compression}")
        dictionary, data_pages, begins = [], [], []
        begin, last = 0, int(positions[-1])
        for page in self._walked(chunk):
            if page.kind == DICTIONARY_PAGE:
                dictionary.append(page)
            elif page.kind in (DATA_PAGE, DATA_PAGE_V2):
                data_pages.append(page)
                begins.append(begin)
                begin += page.values
                if begin > last:
                    break
            if len(data_pages) > PAGES_MAX:
                raise UnknownBytesError(f"{chunk.path_in_schema} has many small pages")
        if begin <= last:
            raise UnknownBytesError(f"{chunk.path_in_schema} ends at {begin}")
        numbers = np.searchsorted(np.array([*begins[1:], begin]), positions, "right")
        page_numbers = np.unique(numbers)
        chosen = [data_pages[at] for at in page_numbers.tolist()]
        if all(page.encoding in WITHOUT_DICTIONARY for page in chosen):
            dictionary = []
        counts = np.array([page.values for page in chosen])
        shifts = np.array(begins)[page_numbers] - (np.cumsum(counts) - counts)
        parts = [*dictionary, *chosen]
        return Pages(
            file=partial(self._file, chunk, self._elements[leaf], dictionary, chosen),
            places=positions - shifts[np.searchsorted(page_numbers, numbers)],
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
            reader = Reader(self._stream.read_at(size, offset))
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
        column = struct_bytes(
            {
                1: (I32, number_bytes(TYPES.index(chunk.physical_type))),
                2: (LIST, list_bytes(I32, [number_bytes(0)])),
                3: (LIST, list_bytes(BINARY, [text_bytes(chunk.path_in_schema)])),
                4: (I32, number_bytes(CODECS[chunk.compression])),
                5: (I64, number_bytes(values)),
                6: (I64, number_bytes(unpacked)),
                7: (I64, number_bytes(len(body) - len(MAGIC))),
                9: (I64, number_bytes(end)),
                **({11: (I64, number_bytes(begin))} if dictionary else {}),
            }
        )
        group = struct_bytes(
            {
                1: (LIST, list_bytes(STRUCT, [struct_bytes({2: (I64, number_bytes(begin)), 3: (STRUCT, column)})])),
                2: (I64, number_bytes(unpacked)),
                3: (I64, number_bytes(values)),
            }
        )
        root = struct_bytes({4: (BINARY, text_bytes("schema")), 5: (I32, number_bytes(1))})
        footer = struct_bytes(
            {
                1: (I32, number_bytes(2)),
                2: (LIST, list_bytes(STRUCT, [root, element])),
                3: (I64, number_bytes(values)),
                4: (LIST, list_bytes(STRUCT, [group])),
                6: (BINARY, text_bytes(self._metadata.created_by or "")),
            }
        )
        return b"".join([body, footer, len(footer).to_bytes(4, "little"), MAGIC])


def _footer(stream: Any) -> bytes:
    size = stream.size()
    end = stream.read_at(8, size - 8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length + 8 > size:
        raise UnknownBytesError("no footer")
    footer: bytes = stream.read_at(length, size - 8 - length)
    return footer


def _columns_of(footer: bytes) -> dict[int, bytes]:
    """Return the schema elements of the columns without nesting, as in the footer, by leaf."""
    reader = Reader(footer)
    try:
        for number, kind in reader.fields():
            if number == 2 and kind == LIST:
                return dict(_flat(reader))
            reader.value(kind)
    except (IndexError, UnicodeDecodeError):
        pass
    raise UnknownBytesError("no schema")


def _flat(reader: Reader) -> Iterator[tuple[int, bytes]]:
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
