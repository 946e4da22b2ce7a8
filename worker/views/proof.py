"""The proof of a view's version: its rows against its query over its sources at its vector, computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from worker.arrow.scan.version_rows import VersionRows
from worker.arrow.write.input_rows import fitted
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.services.compaction.digests import Digest, digest_of, named, row_hashes
from worker.views.definition import Definition
from worker.views.delta import N, whole_text
from worker.views.engine import run_with
from worker.views.key_rows import WHOLE
from worker.views.refresh import Vector, last_refresh, query_of, subtract
from worker.views.sources import SourceTables, named_if_dropped

ROWS_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether a version of a view has the rows of its query at its vector, with some of the rows that differ.

    `missing` are rows of the query that the view lacks, `surplus` rows that it has too many.
    """

    version: int
    vector: Vector
    holds: bool
    rows: int
    digest: str
    missing: Sequence[dict[str, Any]] = ()
    surplus: Sequence[dict[str, Any]] = ()


def verify(view: TableView, version: int | None = None) -> Proof:
    """Compute a version's query again, at its vector, and compare.

    Raises InputError if the view had not been refreshed by then, GoneError if a source no longer keeps its version,
    BlockedError or NotFoundError if a source was dropped.
    """
    definition = Definition.of(view.meta)
    with ExitStack() as pins:
        pin, pinned = view.lake.pins.own_many({view.table_id: version})
        pins.callback(pin.release)
        then = view.at(pinned[view.table_id])
        last = last_refresh(view, definition, pinned[view.table_id])
        if last is None:
            raise InputError(
                "VIEW_EMPTY", f"{view.name} was not refreshed by version {pinned[view.table_id]}: nothing to verify"
            )
        with named_if_dropped(definition):
            held, _ = view.lake.pins.own_many(
                {source.table_id: last.vector[name] for name, source in definition.sources.items()}
            )
        pins.callback(held.release)
        sources = SourceTables(view.lake, definition.sources, last.vector, last.vector)
        text = whole_text(query_of(definition, sources).operator)
        answer = fitted(run_with(sources.relations(text), text), then.meta)
        reader = VersionRows(then, pinned[view.table_id])
        names = list(reader.schema.names)
        stored = pa.concat_tables([reader.empty(names), *reader.tables(names, None, WHOLE)])
    digest = content_digest(stored)
    facts = (pinned[view.table_id], last.vector)
    if digest == content_digest(answer):
        return Proof(*facts, True, digest.rows, _text(digest))
    difference = subtract(answer, stored)
    missing = difference.filter(pc.greater(difference.column(N), 0))
    surplus = difference.filter(pc.less(difference.column(N), 0))
    shown = [part.slice(0, ROWS_SHOWN).select(names).to_pylist() for part in (missing, surplus)]
    return Proof(*facts, not len(difference), digest.rows, _text(digest), *shown)


def content_digest(rows: pa.Table) -> Digest:
    """Return a digest of the rows in any order; 0.0 and -0.0 are the same, and so is every NaN."""
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    floats = [name for name, kind in frame.schema.items() if kind in (pl.Float32, pl.Float64)]
    plain = [
        pl.when(named(name).is_nan()).then(float("nan")).otherwise(named(name) + 0.0).alias(name) for name in floats
    ]
    return digest_of(row_hashes(frame.with_columns(plain), frame.columns))


def _text(digest: Digest) -> str:
    return f"{digest.sum:016x}{digest.scrambled:016x}"
