"""Records of CSV: cells, lines and refusals are the same wherever the text is cut into blocks."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.formats import text_blocks
from worker.formats.csv_records import read_records
from worker.formats.rejects import UnfitError
from worker.formats.text_values import csv_line

Found = tuple[list[list[str | None]], list[int]]
CELLS = st.none() | st.text('a,"\r\né', max_size=4)


def read(text: bytes, block_bytes: int) -> Found:
    """The records, and the line of each."""
    before = text_blocks.BLOCK_BYTES
    text_blocks.BLOCK_BYTES = block_bytes  # type: ignore[misc]
    try:
        rows: list[list[str | None]] = []
        lines: list[int] = []
        for part in read_records(io.BytesIO(text)):
            rows += [list(row.values()) for row in part.cells.to_pylist()]
            lines += part.lines.tolist()
        return rows, lines
    finally:
        text_blocks.BLOCK_BYTES = before  # type: ignore[misc]


@pytest.mark.parametrize("width", [1, 2, 3])
@given(data=st.data())
def test_records_and_lines_are_found_in_blocks_of_any_size(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=5))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    records = [csv_line(row).removesuffix("\n") for row in rows]
    lines = [2 + sum(one.count("\n") + 1 for one in records[:at]) for at in range(len(records))]
    text = end.join([",".join("hij"[:width]), *records]) + data.draw(
        st.sampled_from([end, "" if records and records[-1] else end])
    )
    assert read(text.encode(), data.draw(st.integers(3, 60))) == (rows, lines)


@pytest.mark.parametrize("block_bytes", [3, 4, 5, 7, 11, 1 << 20])
@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('a,b\n1,2\n3,x"y"\n', 3, "a quote stands inside a cell"),
        ('a,b\n1,2\n3,"x"y\n', 3, "a quote stands inside a cell"),
        ('a,b\n1, "2"\n', 2, "a quote stands inside a cell"),
        ('a,b\n"1\n","2\n\n', 3, "a quote is not closed; does the file end in the middle of a line?"),
        ("a,b\n1,2\n3\n", 3, "there are 1 cells, and 2 names in the header"),
        ('a,b\n"1\n1",2\n3,4,5\n', 4, "there are 3 cells, and 2 names in the header"),
        ("a,b\n1,2\n3", 3, "1 cells, and 2 names in the header; does the file end in the middle of a line?"),
        ("a,b\n1,2\n\n\n3\n", 5, "there are 1 cells"),
        ("a,b\n1\r2,3\n", 2, "a carriage return stands alone"),
        ("a,b\n1,2\r", 2, "a carriage return stands alone"),
        ("a,\n1,2\n", 1, "a column without a name"),
        ("\n", 1, "a column without a name"),
        ("a,b\n1,2\n3,\udcff\n", 3, "this is not UTF-8"),
        ("", None, "the file is empty"),
        ("\ufeff", None, "the file is empty"),
    ],
)
def test_what_breaks_the_rules_is_refused_with_its_line(
    text: str, line: int | None, said: str, block_bytes: int
) -> None:
    with pytest.raises(UnfitError) as refused:
        read(text.encode(errors="surrogateescape"), block_bytes)
    assert refused.value.reason == "LINE_INVALID"
    assert refused.value.place == (None if line is None else ("line", line))
    assert said in refused.value.message


def test_empty_lines_are_null_in_a_column_alone_and_nothing_beside_others() -> None:
    assert read(b'\xef\xbb\xbfa\n\n""\r\n\r\nx', 1 << 20) == ([[None], [""], [None], ["x"]], [2, 3, 4, 5])
    assert read(b'a,b\n\n1,2\r\n\r\n,""\n\n', 1 << 20) == ([["1", "2"], [None, ""]], [3, 5])


def test_a_record_without_an_end_is_not_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_blocks, "RECORD_BYTES_MAX", 100)
    text = b'a,b\n1,2\n3,"' + b"x\n" * 200
    with pytest.raises(UnfitError, match="a record has more than") as refused:
        read(text, 16)
    assert refused.value.place == ("line", 3)
