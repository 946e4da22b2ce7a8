"""A file of a plan, and the ids that its rows may have."""

from __future__ import annotations

from typing import NamedTuple

from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2


class ScannedFile(NamedTuple):
    """A file of a plan, with the ids of its rows that are hidden."""

    file: common_pb2.DataFile
    data_version: int
    hidden: BitMap64 | None = None


def row_ids(file: common_pb2.DataFile) -> tuple[int, int]:
    """The smallest and the largest id that its rows may have."""
    first, last = file.first_row_id, file.first_row_id + max(file.rows, 1) - 1
    if not file.carries_row_ids:
        return first, last
    if not file.HasField("row_id_min") or not file.HasField("row_id_max"):
        return 0, max(last, (1 << 62) - 1)
    return min(first, file.row_id_min), max(last, file.row_id_max)
