"""Parquet files whose pages can't be read, while their footers and filters can: who reads on has not opened them."""

from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

PAGE_BYTES = 8  # of a page's header


def parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.parquet"))


def damage_pages(folder: Path, column: str, kept: AbstractSet[Any]) -> int:
    """Damages the pages of all files in which no row has one of the values in the column; returns how many files."""
    damaged = 0
    for path in parquet_files(folder):
        if kept & set(pq.read_table(path, columns=[column]).column(column).to_pylist()):
            continue
        metadata, content = pq.read_metadata(path), bytearray(path.read_bytes())
        for group in range(metadata.num_row_groups):
            for at in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(at)
                offsets = [
                    chunk.data_page_offset,
                    *([chunk.dictionary_page_offset] if chunk.has_dictionary_page else []),
                ]
                begin = min(offsets)
                content[begin : begin + PAGE_BYTES] = b"\xff" * PAGE_BYTES
        path.write_bytes(content)
        damaged += 1
    return damaged
