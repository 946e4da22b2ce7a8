"""The fold of images against a plain dict, and that any images which follow each other can be folded first."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.image_folds import bits_of, columns_of, folded, visible
from worker.base.schema import OP, SET, TOMBSTONE, UPSERT

IDS = {"id": 1, "a": 2, "b": 9, "c": 17}  # not their places: columns came and went
VALUES = ("a", "b", "c")
META = catalog_pb2.Table(
    columns=[catalog_pb2.Column(name=name, type="int", column_id=number) for name, number in IDS.items()],
    primary_key=["id"],
)
SCHEMA = pa.schema([*(pa.field(name, pa.int32()) for name in IDS), pa.field(OP, pa.int8()), pa.field(SET, pa.binary())])
Image = dict[str, object]
GONE = 99  # the id of a column that was dropped, which old images may set

values = st.one_of(st.none(), st.integers(0, 3))


@st.composite
def images(draw: st.DrawFn) -> list[Image]:
    """Images of a few keys, one for each version."""
    found: list[Image] = []
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["whole", "tombstone", "some", "some", "some"]))
        sets = draw(st.sets(st.sampled_from([*VALUES, ""]))) if kind == "some" else None
        found.append(
            {
                "id": draw(st.integers(1, 2)),
                **{name: draw(values) for name in VALUES},
                OP: TOMBSTONE if kind == "tombstone" else UPSERT,
                SET: None if sets is None else bits_of(IDS.get(name, GONE) for name in sets),
            }
        )
    return found


def rows_of(given_images: list[Image]) -> dict[object, Image]:
    """What a dict has after the images, one after the other."""
    rows: dict[object, Image] = {}
    for image in given_images:
        key, sets = image["id"], image[SET]
        row = {name: image[name] for name in IDS}
        if image[OP] == TOMBSTONE:
            rows.pop(key, None)
        elif isinstance(sets, bytes) and key in rows:
            rows[key] = rows[key] | {name: row[name] for name in VALUES if IDS[name] in columns_of(sets)}
        else:
            rows[key] = row
    return rows


def fold(given_images: list[Image]) -> list[Image]:
    table = pa.Table.from_pylist(given_images, SCHEMA)
    return folded(table, META, ["id"], np.arange(len(table))).to_pylist()  # type: ignore[no-any-return]


@given(images())
def test_images_fold_as_a_dict_takes_them(given_images: list[Image]) -> None:
    table = pa.Table.from_pylist(given_images, SCHEMA)
    shown = visible(folded(table, META, ["id"], np.arange(len(table)))).to_pylist()
    assert {row["id"]: row for row in shown} == rows_of(given_images)


@given(images(), images(), images())
def test_images_that_follow_each_other_can_be_folded_first(
    before: list[Image], between: list[Image], after: list[Image]
) -> None:
    assert rows_of([*before, *fold(between), *after]) == rows_of([*before, *between, *after])
    once, twice = fold([*before, *between, *after]), fold([*fold(before), *fold([*between, *after])])
    assert [_plain(one) for one in _sorted(once)] == [_plain(one) for one in _sorted(twice)]


def _sorted(given_images: list[Image]) -> list[Image]:
    return sorted(given_images, key=lambda image: str(image["id"]))


def _plain(image: Image) -> Image:
    """Without what a tombstone carries, and without leading zeros."""
    bits = image[SET]
    sets = columns_of(bits) if isinstance(bits, bytes) else None
    return {"id": image["id"]} if image[OP] == TOMBSTONE else {**image, SET: sets}
