"""Rows whose column has one of many numbers, and places of row ids, against plain loops."""

from __future__ import annotations

import random
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest

from protos.laketx.v1 import common_pb2
from worker.arrow.expressions.conditions import ORS_MAX
from worker.arrow.scan.chosen_rows import choice
from worker.base.values import wire_value
from worker.files.position_blocks import places_of

FIRST = date(1970, 1, 1)
KINDS = {
    "tinyint": (pa.int8(), 7),
    "smallint": (pa.int16(), 15),
    "int": (pa.int32(), 31),
    "bigint": (pa.int64(), 63),
    "date": (pa.date32(), 12),
}


def listed(kind: str, values: list[object], *, with_null: bool) -> common_pb2.Predicate:
    wire = [wire_value(value, kind) if value is not None else common_pb2.Value() for value in values]
    found = common_pb2.Predicate(in_list=common_pb2.InList(column="x", values=wire))
    if not with_null:
        return found
    null = common_pb2.Predicate(is_null=common_pb2.IsNull(column="x"))
    return common_pb2.Predicate(any_of=common_pb2.PredicateList(operands=[found, null]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_null", [False, True])
def test_rows_are_those_with_a_listed_number(kind: str, with_null: bool) -> None:
    of_arrow, bits = KINDS[kind]
    rng = random.Random(f"{kind} {with_null}")

    def number() -> object:
        found = rng.choice([rng.randrange(-9, 9), rng.randrange(-1 << bits, 1 << bits), -1 << bits, (1 << bits) - 1])
        return FIRST + timedelta(found) if kind == "date" else found

    for _ in range(40):
        rows = [None if rng.random() < 0.1 else number() for _ in range(rng.randrange(60))]
        some = [value for value in rows if value is not None]
        values = [*rng.sample(some, len(some) // 3), *(number() for _ in range(ORS_MAX + 1))]
        values += [None] * rng.randrange(2)
        whole = pa.array([*rows[:7], *rows], of_arrow).slice(min(7, len(rows)))
        cut = rng.randrange(len(rows) + 1)
        table = pa.table({"x": pa.chunked_array([whole.slice(0, cut), whole.slice(cut)], of_arrow)})
        found = choice(listed(kind, values, with_null=with_null), table.schema)(table)
        known = {value for value in values if value is not None}
        wanted = [at for at, value in enumerate(rows) if value in known or (with_null and value is None)]
        assert found.tolist() == wanted


@pytest.mark.parametrize("is_sorted", [True, False])
def test_places_are_those_of_the_wanted_numbers(is_sorted: bool) -> None:
    rng = random.Random(is_sorted)
    for _ in range(200):
        most = rng.choice([12, 1 << 62])
        numbers = rng.sample(range(most), rng.randrange(10))
        wanted = {*rng.sample(range(most), rng.randrange(10)), *rng.sample(numbers, len(numbers) // 2)}
        in_order = sorted(numbers) if is_sorted else numbers
        found = places_of(np.array(in_order, np.uint64), np.array(sorted(wanted), np.uint64))
        assert found.tolist() == [at for at, number in enumerate(in_order) if number in wanted]
