"""The rows of increments where images set single columns: what an image leaves as it is, its row had before.

    version 4   7  a=1 b=1     what was there at the begin of the range, or a whole image
    version 5   7  a=2         sets a             7 has a=2 b=1 after it
    version 6   7  tombstone
    version 7   7  b=3         sets b             7 is new: a is what the image carries unset

Here all images of a row are there, so each gets what it left as it was from the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.image_folds import SetColumns
from worker.base.schema import SET

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


def chained(rows: pa.Table, meta: catalog_pb2.Table, order: Numbers, begins: Flags) -> pa.Table:
    """The rows, each with every value that its row has after it, and without SET.

    `order` are the places of the rows of one identity after each other, in the order of their versions; `begins` says
    which of them follow no row that was there, by their places in this order.
    """
    sets = SetColumns(rows.column(SET).take(pa.array(order)))
    begins = begins | sets.are_whole
    at = np.arange(len(order))
    columns = []
    everywhere = {*meta.primary_key, *meta.partition_columns}
    for column in meta.columns:
        if column.name in everywhere:
            columns.append(rows.column(column.name))
            continue
        last = np.maximum.accumulate(np.where(begins | sets.has(column.column_id), at, 0))
        places = np.arange(len(rows))
        places[order] = order[last]
        columns.append(rows.column(column.name).take(pa.array(places)))
    return pa.table(columns, schema=pa.schema([rows.schema.field(column.name) for column in meta.columns]))
