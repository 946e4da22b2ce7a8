"""Spark reads primary-key tables by kept deletion vectors, where there are some that can be used."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.spark.histories import COLUMNS, new_rows, step
from tests.spark.reading import LabLake, LabTable, Row, open_lab
from tests.spark.sql import SqlReads
from worker.files.kept_vectors import FOLDER, FileId, decode, encode
from worker.files.position_blocks import Positions
from worker.services.deletion_vectors import VectorKeeper


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("kept vectors")) as made:
        yield made


@pytest.fixture(scope="module")
def sql(lab: LabLake) -> SqlReads:
    return SqlReads(lab)


def row_of(number: int, amount: float) -> Row:
    return {"id": number, "day": "1", "amount": amount, "status": "new"}


def dirty(lab: LabLake, name: str) -> LabTable:
    table = lab.create(name, COLUMNS, key=["id"], buckets=1)
    table.insert([row_of(number, 1.0) for number in range(20)])
    table.insert([row_of(number, 2.0) for number in range(0, 20, 4)])
    table.delete(sorted(table.rows)[:3])
    return table


def vectors_of(table: LabTable) -> tuple[Path, dict[FileId, Positions]]:
    [kept] = (Path(table.folder) / FOLDER).glob("*.dv")
    return kept, decode(kept.stem, kept.read_bytes())


def base(vectors: dict[FileId, Positions]) -> FileId:
    return min(vectors)


def test_spark_uses_them(lab: LabLake, sql: SqlReads) -> None:
    """Vectors that hide one row more: Spark leaves it out, so it has read no key."""
    table = dirty(lab, "used")
    VectorKeeper(lab).run_once()
    kept, vectors = vectors_of(table)
    file = base(vectors)
    visible = np.setdiff1d(np.arange(20, dtype=np.uint64), vectors[file])
    kept.write_bytes(encode(kept.stem, vectors | {file: np.union1d(vectors[file], visible[:1])}))
    assert sql.rows("SELECT count(*) FROM {lake}.used") == [(len(table.rows) - 1,)]


@pytest.mark.parametrize("fault", ["cut", "empty", "other", "far", "lacking"])
def test_spark_ignores_wrong_ones(lab: LabLake, sql: SqlReads, fault: str) -> None:
    table = dirty(lab, f"wrong_{fault}")
    other = dirty(lab, f"other_{fault}")
    VectorKeeper(lab).run_once()
    kept, vectors = vectors_of(table)
    theirs, _ = vectors_of(other)
    everything = np.arange(20, dtype=np.uint64)
    file = base(vectors)
    contents = {
        "cut": kept.read_bytes()[:-1],
        "empty": b"",
        "other": theirs.read_bytes(),
        "far": encode(kept.stem, vectors | {file: everything + np.uint64(10)}),
        "lacking": encode(
            kept.stem,
            {one: hidden for one, hidden in vectors.items() if one != file} | {(file[0] - 1, file[1]): everything},
        ),
    }
    kept.write_bytes(contents[fault])
    sql.check(table, [table.head])


@pytest.mark.parametrize("seed", range(2))
def test_every_version_shows_its_rows(lab: LabLake, sql: SqlReads, seed: int) -> None:
    chance = random.Random(seed)
    table = lab.create(f"h{seed}", COLUMNS, key=["id"], partition_by=["day"])
    keeper = VectorKeeper(lab, now_s=lambda: 0.0)
    table.insert(new_rows(chance, True))
    for _ in range(8):
        step(table, chance, keyed=True)
        keeper.run_once()
    assert list((Path(table.folder) / FOLDER).glob("*.dv"))
    sql.check(table)
