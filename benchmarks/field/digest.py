"""Whether two tables hold the same rows, whatever their order, and whatever types of Arrow a system chose for them."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.arrow_data import ARROW


def digest(rows: pa.Table) -> str:
    """Return the number of rows, and a digest of their values, ordered by the first column of ARROW that they have."""
    names = [name for name in ARROW.names if name in rows.column_names]
    kinds = [pa.large_string() if ARROW.field(name).type == pa.string() else ARROW.field(name).type for name in names]
    rows = rows.select(names).cast(pa.schema(list(zip(names, kinds, strict=True)))).sort_by(names[0])
    total = hashlib.sha256()
    for column in rows.columns:
        assert column.null_count == 0
        values = column.combine_chunks()
        if pa.types.is_large_string(values.type):
            lengths = pc.binary_length(values).to_numpy()
            total.update(lengths)
            begin = np.frombuffer(values.buffers()[1], np.int64)[values.offset]
            total.update(memoryview(values.buffers()[2])[begin : begin + lengths.sum()])
        else:
            total.update(values.view(pa.int64()).to_numpy())
    return f"{rows.num_rows}:{total.hexdigest()[:16]}"
