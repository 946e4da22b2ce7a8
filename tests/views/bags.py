"""Bags of rows, and an oracle that computes a query as it was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from worker.views.delta import N
from worker.views.engine import Engine

Tables = Mapping[str, pa.Table]


def bag(rows: pa.Table) -> Counter[tuple[object, ...]]:
    """The rows with their multiplicities; of a difference, with N."""
    plain = [column for column in rows.column_names if column != N]
    copies = rows.column(N).to_pylist() if N in rows.column_names else [1] * len(rows)
    found: Counter[tuple[object, ...]] = Counter()
    for row, count in zip(rows.select(plain).to_pylist(), copies, strict=True):
        found[tuple(row.values())] += count
    return found


def by_oracle(text: str, tables: Tables) -> pa.Table:
    """The query as it was written, over tables of those names."""
    with Engine() as engine:
        for name, rows in tables.items():
            engine.add(name, rows)
        ctes = ", ".join(f'"{name}_" AS (FROM "{name}")' for name in tables)
        for name in tables:
            text = text.replace(name, f'"{name}_"')
        return engine.run(f"WITH {ctes} SELECT * FROM ({text})")
