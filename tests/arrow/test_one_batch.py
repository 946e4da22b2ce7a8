"""The batches of a stream put together as bytes hold the rows that Arrow reads from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.shared.arrow_batches import in_one_batch

KINDS: dict[pa.DataType, Sequence[Any]] = {
    pa.int8(): [0, -128, 127],
    pa.int16(): [0, -1],
    pa.int32(): [1, -(2**31)],
    pa.int64(): [1, 2**62],
    pa.float32(): [0.5, float("inf")],
    pa.float64(): [0.1, -0.0],
    pa.bool_(): [True, False],
    pa.string(): ["", "a", "größer", "x" * 40],
    pa.binary(): [b"", b"\x00\xff"],
    pa.date32(): [date(2026, 1, 1), date(1500, 2, 3)],
    pa.timestamp("us", "UTC"): [datetime(2026, 1, 1, tzinfo=UTC)],
    pa.timestamp("us"): [datetime(2026, 1, 1, 2, tzinfo=UTC).replace(tzinfo=None)],
    pa.decimal128(20, 3): [Decimal("1.250"), Decimal("-99.999")],
}
OTHER = pa.list_(pa.int64())


def stream_of(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as out:
        for batch in batches:
            out.write_batch(batch)
    return bytes(sink.getvalue())


def read(stream: bytes) -> list[pa.RecordBatch]:
    found = list(pa.ipc.open_stream(stream))
    for batch in found:
        batch.validate(full=True)
    return found


@st.composite
def batches(draw: st.DrawFn) -> list[pa.RecordBatch]:
    kinds = draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=5))
    schema = pa.schema([pa.field(f"c{at}", kind, metadata={"id": str(at)}) for at, kind in enumerate(kinds)])
    made = []
    for _ in range(draw(st.integers(1, 6))):
        rows, has_nulls = draw(st.integers(0, 20)), draw(st.booleans())
        columns = []
        for kind in kinds:
            values = [*KINDS[kind], *([None] if has_nulls else [])]
            columns.append(pa.array(draw(st.lists(st.sampled_from(values), min_size=rows, max_size=rows)), kind))
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        made.append(batch.slice(draw(st.integers(0, rows))) if draw(st.booleans()) else batch)
    return made


@given(batches())
@settings(max_examples=150, deadline=None)
def test_the_rows_are_those_of_the_batches(made: list[pa.RecordBatch]) -> None:
    stream = stream_of(made, made[0].schema)
    one = in_one_batch(stream)
    assert (one is None) == (sum(1 for batch in made if len(batch)) < 2)
    if one is not None:
        (found,) = read(one)
        assert found.schema.equals(made[0].schema, check_metadata=True)
        assert pa.Table.from_batches([found]).equals(pa.Table.from_batches(made).combine_chunks())
        assert in_one_batch(one) is None


def test_other_columns_and_other_forms_stay_as_they_are() -> None:
    for kind, value in ((OTHER, [1]), (pa.large_string(), "a"), (pa.dictionary(pa.int8(), pa.string()), "a")):
        batch = pa.RecordBatch.from_arrays([pa.array([value], kind)], names=["c"])
        assert in_one_batch(stream_of([batch, batch], batch.schema)) is None
    batch = pa.record_batch({"id": list(range(1_000))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as out:
        out.write_batch(batch)
        out.write_batch(batch)
    assert in_one_batch(bytes(sink.getvalue())) is None
    none = pa.RecordBatch.from_arrays([], names=[])
    assert in_one_batch(stream_of([none, none], none.schema)) is None


def test_a_damaged_stream_is_left_to_its_reader() -> None:
    """Whatever its bytes say, nothing is raised, and nothing is read that they don't have."""
    batch = pa.record_batch({"id": [1, None, 3], "s": ["a", None, "ccc"], "b": [True, False, None]})
    stream = stream_of([batch] * 3, batch.schema)
    chance = random.Random(7)
    for _ in range(3_000):
        damaged = bytearray(stream)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        one = in_one_batch(bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))]))
        assert one is None or len(one) < 2 * len(stream)


def test_texts_may_begin_anywhere_in_their_buffer() -> None:
    batch = pa.record_batch({"s": ["ab", "cd"]})
    stream = stream_of([batch, batch], batch.schema)
    begins, later = (first.to_bytes(4, "little") + (2).to_bytes(4, "little") for first in (0, 1))
    (found,) = read(in_one_batch(stream.replace(begins + b"\4\0\0\0", later + b"\4\0\0\0")) or b"")
    assert found.to_pydict() == {"s": ["b", "cd", "b", "cd"]}


def test_a_batch_with_too_few_values_is_left_to_its_reader() -> None:
    batch = pa.record_batch({"id": [1, 2, 3]})
    stream = stream_of([batch, batch], batch.schema)
    more = stream.replace((3).to_bytes(8, "little"), (300).to_bytes(8, "little"))
    assert more != stream
    assert in_one_batch(more) is None
