"""The changes that make a table's columns those of its source, played against a service."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from laketx import InputError, Lake, connect
from metaservice.shared.column_types import Atomic, Field, Struct, type_text
from protos.laketx.v1 import catalog_pb2
from worker.imports.facts import Columns
from worker.imports.schema_evolution import columns_changes, keep_their_names

NAMES = "abcdef"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as made:
        yield made


def random_columns(chance: random.Random, before: Columns, fresh: Iterator[int]) -> Columns:
    """Some columns go, some come, some get each other's names, all change places."""
    kept = [one for one in before if chance.random() < 0.8] or [before[0]]
    count = min(len(NAMES), len(kept) + chance.randint(0, 2))
    names = chance.sample(NAMES, count)
    found = []
    for at, name in enumerate(names):
        if at < len(kept):
            old = kept[at]
            wider = Atomic("bigint") if old.kind == Atomic("int") and chance.random() < 0.5 else old.kind
            found.append(Field(name, wider, True, old.field_id, chance.choice(["", old.comment, "said"])))
        else:
            found.append(Field(name, chance.choice([Atomic("int"), Atomic("string")]), True, next(fresh)))
    chance.shuffle(found)
    return tuple(found)


@pytest.mark.parametrize("seed", range(25))
def test_random_changes(lake: Lake, seed: int) -> None:
    chance, fresh = random.Random(seed), iter(range(3, 1_000))
    before: Columns = (Field("a", Atomic("int"), True, 1), Field("b", Atomic("string"), False, 2))
    wire = [catalog_pb2.Column(name=one.name, type=type_text(one.kind), nullable=one.nullable) for one in before]
    meta = lake.client.create_table(catalog_pb2.Table(name=f"t{seed}", columns=wire))
    ids = {one.field_id: here.column_id for one, here in zip(before, meta.columns, strict=True)}
    for _ in range(6):
        after = random_columns(chance, before, fresh)
        if changes := columns_changes(before, after):
            meta = lake.client.alter_columns(meta.table_id, *changes)
        assert [(one.name, one.type, one.comment) for one in meta.columns] == [
            (one.name, type_text(one.kind), one.comment) for one in after
        ]
        for one, here in zip(after, meta.columns, strict=True):
            assert ids.setdefault(one.field_id, here.column_id) == here.column_id
        before = after


def test_names_through_time() -> None:
    one, other = Field("a", Atomic("int"), True, 1), Field("b", Atomic("int"), True, 2)
    assert keep_their_names([(one,), (one, other), (other,)])
    assert not keep_their_names([(one,), (Field("b", Atomic("int"), True, 1),)])
    assert not keep_their_names([(one,), (Field("A", Atomic("int"), True, 2),)])
    inside = [
        Field("s", Struct((Field(name, Atomic("int"), True, number),)), True, 1)
        for name, number in (("x", 2), ("y", 2))
    ]
    with pytest.raises(InputError, match="IMPORT_SCHEMA"):
        keep_their_names([(each,) for each in inside])
