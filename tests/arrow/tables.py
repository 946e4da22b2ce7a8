"""Tables of tests without Spark, read with Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laketx.arrow_reads import ArrowReads
from metaservice.client.folder_service import open_folder
from tests.spark.reading import LabLake, LabTable


class Reads(ArrowReads):
    """The reads of a table that was made without the front door."""

    def __init__(self, table: LabTable) -> None:
        self.view = table.view


@contextmanager
def open_lake(folder: Path) -> Iterator[LabLake]:
    with LabLake(open_folder(folder), str(folder), None, uri=str(folder)) as lake:
        yield lake


def texts(rows: Any) -> list[str]:
    """The rows of an Arrow table, comparable: NaN equals itself, and 0.0 differs from -0.0."""
    return sorted(repr(tuple(row.values())) for row in rows.to_pylist())
