"""How Spark looks up which rows are hidden: in arrays, or by keys."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.errors import ArrayIndexOutOfBoundsException
from pyspark.sql import SparkSession

from worker.read import hidden_rows
from worker.read.hidden_rows import ByKey, Form, InArrays, Span
from worker.read.position_blocks import blocks_of, positions_of, together


@pytest.mark.parametrize("form", [InArrays, ByKey])
def test_spark_looks_up_what_is_hidden(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, form: Callable[[Sequence[Span]], Form]
) -> None:
    """Of files with few or many positions, from 0 or from far on, told by sizes or by hashes, some without a bit."""
    monkeypatch.setattr(hidden_rows, "form_of", form)
    draw = random.Random(7)
    firsts = [draw.choice([0, 0, draw.randrange(1 << 42)]) for _ in range(40)]
    spans = [Span(draw.randrange(1 << 33), first, first + draw.choice([0, 63, 64, 511, 512, 5000])) for first in firsts]
    rows = [(at, one.number, position) for at, one in enumerate(spans) for position in range(one.first, one.last + 1)]
    chances = [draw.choice([0.0, 0.01, 0.5, 1.0]) for _ in spans]
    hidden = {(at, position) for at, _, position in rows if draw.random() < chances[at]}
    by_file: dict[int, BitMap64] = {at: BitMap64() for at in range(len(spans))}
    for at, position in hidden:
        by_file[at].add(position)
    blocks = together(blocks_of(positions_of(found), at) for at, found in by_file.items())
    look_up = hidden_rows.hidden_rows(spark, spans, blocks)
    frame = spark.createDataFrame(pa.table(dict(zip(("at", "n", "p"), zip(*rows, strict=True), strict=True))))
    shown = {(row["at"], row["p"]) for row in look_up.without(frame, "n", "p").collect()}
    assert shown == {(at, position) for at, _, position in rows} - hidden
    assert {(row["at"], row["p"]) for row in look_up.only(frame, "n", "p").collect()} == hidden


def test_many_files_or_large_ones_are_not_in_arrays(spark: SparkSession) -> None:
    """That would be much to send, for little that is hidden."""
    few = blocks_of(positions_of(BitMap64([3, 700])))
    for spans, rows in [
        ([Span(1, 0, 1 << 27)], 2),
        ([Span(number, 0, 1000) for number in range(513)], 2),
        ([Span(number, 0, 1000) for number in range(512)], 1),
    ]:
        assert hidden_rows.hidden_rows(spark, spans, few).frame.count() == rows


def test_a_file_that_nobody_knows_is_refused(spark: SparkSession) -> None:
    """Its hidden rows would show."""
    look_up = hidden_rows.hidden_rows(spark, [Span(8, 0, 9), Span(10, 0, 9)], blocks_of(np.array([1], "u8")))
    unknown = spark.range(1).selectExpr("6L n", "1L p")
    with pytest.raises(ArrayIndexOutOfBoundsException):
        look_up.without(unknown, "n", "p").collect()


@pytest.mark.parametrize("position", [100, 5000])
def test_a_position_that_its_file_does_not_have_is_refused(spark: SparkSession, position: int) -> None:
    """It would hide a row of the file before or behind."""
    spans = [Span(number, 2000, 3000) for number in range(3)]
    with pytest.raises(AssertionError, match="doesn't have"):
        hidden_rows.hidden_rows(spark, spans, blocks_of(np.array([position], "u8"), 1))
