"""Records of CSV, with their lines: cells of text, of which an empty one is NULL and a quoted empty one is a text.

Commas separate cells, and a line ends with LF or CR LF. A cell with a comma, a quote or a line end is quoted, and a
quote in it is doubled. What breaks these rules is refused with its line: a lenient reader would make other rows of it.
numpy finds the structure, pyarrow takes the cells out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from worker.formats.rejects import UnfitError
from worker.formats.text_blocks import Block, text_blocks

QUOTE, COMMA, NEWLINE, RETURN = 34, 44, 10, 13
CUT_OFF: Final = "; does the file end in the middle of a line?"


@dataclass(frozen=True, slots=True)
class Records:
    """Cells as texts, in columns named by their number, and the line in which each record begins."""

    names: list[str]
    cells: pa.Table
    lines: Any


def read_records(file: BinaryIO) -> Iterator[Records]:
    """Yield an empty part with the names in the header, then all records, part by part."""
    names: list[str] = []
    for block in text_blocks(file, _whole):
        shape = _Shape(block)
        if names:
            yield shape.records(names, begin=0)
        else:
            names = shape.header()
            yield Records(names, _no_cells(len(names)), np.array([], int))
            yield shape.records(names, begin=1)
    if not names:
        raise UnfitError("LINE_INVALID", "the file is empty: CSV begins with a line of column names")


def _whole(block: Block) -> int:
    """Return the position after the last complete record."""
    ends = _Shape(block).ends
    return int(ends[-1]) + 1 if len(ends) else 0


class _Shape:
    """Where the records of a text begin and end, and what separates their cells."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._bytes = np.frombuffer(block.data, np.uint8)
        self._newlines = self._places(NEWLINE)
        self._quotes = self._places(QUOTE)
        self._check_quotes()
        self.ends = self._outside(self._newlines)
        if block.is_last and (not len(self.ends) or self.ends[-1] != len(self._bytes) - 1):
            self.ends = np.append(self.ends, len(self._bytes))  # the last line has no end
        self._starts = np.append(0, self.ends[:-1] + 1) if len(self.ends) else self.ends

    def header(self) -> list[str]:
        text = self._block.data[: int(self.ends[0])].decode().removesuffix("\r")
        try:
            names = next(csv.reader([text], strict=True), [])
        except csv.Error as error:
            raise UnfitError("LINE_INVALID", str(error), place=("line", 1)) from error
        if not all(names) or not names:
            raise UnfitError("LINE_INVALID", "the header has a column without a name", place=("line", 1))
        return names

    def records(self, names: list[str], begin: int) -> Records:
        width = len(names)
        starts, ends = self._starts[begin:], self.ends[begin:]
        lines = self._block.line + np.searchsorted(self._newlines, starts)
        ended = ends - ((ends > starts) & (self._bytes[ends - 1] == RETURN)) if len(ends) else ends
        is_there = (ended > starts) | (width == 1)  # a column alone has NULL in an empty line
        commas = self._outside(self._places(COMMA))
        counts = 1 + np.searchsorted(commas, ends) - np.searchsorted(commas, starts)
        wrong = np.flatnonzero(is_there & (counts != width))
        if len(wrong):
            at = int(wrong[0])
            cut = CUT_OFF if int(ends[at]) == len(self._bytes) else ""
            message = f"there are {counts[at]} cells, and {width} names in the header{cut}"
            raise UnfitError("LINE_INVALID", message, place=("line", int(lines[at])))
        text = self._block.data[int(starts[0]) :] if len(starts) else b""
        cells = _cells(text, width) if is_there.any() else _no_cells(width)
        assert len(cells) == is_there.sum(), "both find the same records"
        return Records(names, cells, lines[is_there])

    def _places(self, sign: int) -> Any:
        return np.flatnonzero(self._bytes == sign)

    def _outside(self, places: Any) -> Any:
        """Return the places that are outside of quotes."""
        return places[np.searchsorted(self._quotes, places) % 2 == 0] if len(self._quotes) else places

    def _check_quotes(self) -> None:
        """Check that each quote begins a cell, ends it, or is one of two in it."""
        quotes, size = self._quotes, len(self._bytes)
        if len(quotes):
            padded = np.concatenate(([NEWLINE], self._bytes, [NEWLINE]))
            before, after = padded[quotes], padded[quotes + 2]
            opens = np.arange(len(quotes)) % 2 == 0
            follows = np.append(False, np.diff(quotes) == 1)  # the quote before stands right there
            followed = np.append(np.diff(quotes) == 1, False)
            misplaced = np.where(
                opens,
                ~(np.isin(before, (COMMA, NEWLINE)) | follows),
                ~(np.isin(after, (COMMA, NEWLINE, RETURN)) | followed),
            )
            if misplaced.any():
                message = "a quote stands inside a cell: quote the whole cell, and double the quote in it"
                raise self._refused(quotes[misplaced][0], message)
            if self._block.is_last and len(quotes) % 2:
                raise self._refused(quotes[-1], f"a quote is not closed{CUT_OFF}")
        returns = self._outside(self._places(RETURN))
        decided = returns[returns < size - 1]
        bare = decided[self._bytes[decided + 1] != NEWLINE]
        if self._block.is_last and len(returns) > len(decided):
            bare = np.append(bare, returns[-1])
        if len(bare):
            raise self._refused(bare[0], "a carriage return stands alone: lines end with \\n or \\r\\n")

    def _refused(self, place: Any, message: str) -> UnfitError:
        line = self._block.line + int(np.searchsorted(self._newlines, place))
        return UnfitError("LINE_INVALID", message, place=("line", line))


def _cells(text: bytes, width: int) -> pa.Table:
    names = [str(at) for at in range(width)]
    if not text.endswith(b"\n"):
        text += b"\n"  # pyarrow takes an empty cell at the very end for a quoted one where the one before is
    return pcsv.read_csv(
        pa.BufferReader(text),
        pcsv.ReadOptions(column_names=names, block_size=len(text) + 1, use_threads=False),
        pcsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=width > 1),
        pcsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,  # it was decoded already
        ),
    )


def _no_cells(width: int) -> pa.Table:
    return pa.schema([(str(at), pa.string()) for at in range(width)]).empty_table()
