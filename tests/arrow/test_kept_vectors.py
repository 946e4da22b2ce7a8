"""Kept deletion vectors change no answer: whoever finds, keeps, damages or deletes them, at whatever version."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.arrow.tables import Reads, open_lake, texts
from tests.spark.histories import COLUMNS, grow_many, new_rows, step
from tests.spark.reading import LabLake, LabTable, Row, Rows
from worker.arrow.scan import bucket_vectors
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas, entries_of
from worker.files import kept_vectors
from worker.files.kept_vectors import FOLDER, FileId, decode, encode, name_of
from worker.files.position_blocks import Positions
from worker.files.warehouse import adopt
from worker.iceberg.live_files import LiveFiles
from worker.services.deletion_vectors import VectorKeeper
from worker.services.fsck import Fsck
from worker.services.generated_files import KEEP_S
from worker.services.purge import Purge

META = catalog_pb2.Table(
    table_id="t",
    columns=[catalog_pb2.Column(name=name, column_id=at) for at, name in enumerate(["id", "day"], 1)],
    primary_key=["id"],
)
FILES: list[FileId] = [(1, "a"), (1, "b"), (4, "c"), (7, "d")]
NAME = name_of(META, FILES)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lake(tmp_path_factory.mktemp("vectors")) as made:
        yield made


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[LabLake]:
    """A lake with no other tables."""
    with open_lake(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def another_process() -> None:
    bucket_vectors.MEMORY.clear()


def positions(*numbers: int) -> Positions:
    return np.array(numbers, np.uint64)


def shows(table: LabTable, rows: Rows, version: int | None = None) -> None:
    found = Reads(table).to_arrow(version=version)
    wanted = sorted(repr(tuple(row[name] for name in found.schema.names)) for row in rows.values())
    assert texts(found) == wanted, version
    assert Reads(table).count(version=version) == len(rows), version


def vectors_in(table: LabTable) -> list[Path]:
    return sorted((Path(table.folder) / FOLDER).glob("*.dv"))


def dirty(lake: LabLake, name: str) -> LabTable:
    """A table of one bucket, with a base file, an upsert and a delete."""
    table = lake.create(name, COLUMNS, key=["id"], buckets=1)
    table.insert([row_of(number, 1.0) for number in range(20)])
    table.insert([row_of(number, 2.0) for number in range(0, 20, 4)])
    table.delete(sorted(table.rows)[:3])
    return table


def row_of(number: int, amount: float) -> Row:
    return {"id": number, "day": "1", "amount": amount, "status": "new"}


# -- names and bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "files",
    [
        [(1, "a"), (1, "b"), (4, "c")],  # the newest is missing
        [*FILES, (9, "e")],  # a newer one
        [(1, "a"), (1, "b"), (4, "c"), (8, "d")],  # of another data version
        [(1, "a"), (1, "b"), (4, "c"), (7, "x")],  # another file
        [(1, "a"), (1, "b"), (4, "d"), (7, "c")],  # the other way round
    ],
)
def test_other_newer_files_have_other_vectors(files: list[FileId]) -> None:
    assert name_of(META, files) != NAME


def test_the_name_is_that_of_the_newer_files_in_any_order_whatever_they_hide_rows_of() -> None:
    assert name_of(META, FILES[::-1]) == NAME
    assert name_of(META, [*FILES[1:], (0, "z")]) != NAME  # b is a newer one now
    assert name_of(META, FILES[1:]) == NAME
    assert name_of(META, [(2, "z"), *FILES[2:]]) == NAME


def test_tables_and_keys_share_no_vectors() -> None:
    other, keyed = catalog_pb2.Table(), catalog_pb2.Table()
    other.CopyFrom(META)
    other.table_id = "u"
    keyed.CopyFrom(META)
    keyed.primary_key[:] = ["id", "day"]
    assert len({name_of(one, FILES) for one in (META, other, keyed)}) == 3


@pytest.mark.parametrize("files", [[], [(1, "a")], [(3, "a"), (3, "b")]])
def test_files_of_one_version_need_no_vectors(files: list[FileId]) -> None:
    assert name_of(META, files) == ""


def test_vectors_come_back_as_they_were() -> None:
    kept = {(1, "a"): positions(), (4, "ünï"): positions(0, 5, 70_000, (1 << 31) - 1)}
    found = decode(NAME, encode(NAME, kept))
    assert list(found) == list(kept)
    for file, expected in kept.items():
        assert found[file].tolist() == expected.tolist()
        assert found[file].dtype == np.uint64


def test_damaged_vectors_and_those_of_another_name_are_refused() -> None:
    content = encode(NAME, {(1, "a"): positions(1, 2, 3)})
    other = name_of(META, [*FILES, (9, "e")])
    with pytest.raises(ValueError):
        decode(other, content)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1
        with pytest.raises(ValueError):
            decode(NAME, bytes(damaged))
        with pytest.raises(ValueError):
            decode(NAME, content[:at])


def test_files_with_too_many_rows_are_not_kept(tmp_path: Path) -> None:
    assert not kept_vectors.write(str(tmp_path), NAME, {(1, "a"): positions(1 << 31)})
    assert kept_vectors.read(str(tmp_path), NAME) is None


# -- reads -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_every_version_shows_its_rows_whenever_vectors_are_kept(lake: LabLake, seed: int) -> None:
    """Upserts, deletes, overwrites, restores, compactions, inlined rows; reads of old versions meanwhile."""
    chance = random.Random(seed)
    table = lake.create(f"h{seed}", COLUMNS, key=["id"], partition_by=["day"])
    keeper = VectorKeeper(lake, now_s=lambda: 0.0)
    kept = 0
    table.insert(new_rows(chance, True))
    for _ in range(14):
        step(table, chance, keyed=True)
        if chance.random() < 0.7:
            kept += keeper.run_once()
        if chance.random() < 0.5:
            bucket_vectors.MEMORY.clear()
        version = chance.choice([*table.at][-3:])
        shows(table, table.at[version], version)
    assert kept
    for version, rows in table.at.items():
        shows(table, rows, version)
        bucket_vectors.MEMORY.clear()
        shows(table, rows, version)


@pytest.mark.parametrize("seed", range(2))
def test_columns_change_meanwhile(lake: LabLake, seed: int) -> None:
    table = grow_many(lake, f"m{seed}", seed, keyed=True, cases=5, sites=2, steps=12, alters=4)
    VectorKeeper(lake).run_once()
    for version in table.at:
        found = Reads(table).to_arrow(version=version)
        rows = table.at[version].values()
        assert texts(found) == sorted(repr(tuple(row[name] for name in found.schema.names)) for row in rows), version


def test_readers_use_them_and_read_no_keys(alone: LabLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = dirty(alone, "used")
    assert VectorKeeper(alone).run_once() == 1
    [kept] = vectors_in(table)
    bucket_vectors.MEMORY.clear()
    monkeypatch.setattr(bucket_vectors, "_by_keys", _no_keys)
    shows(table, table.rows)
    live = LiveFiles(table.view)
    live.apply(table.view, entries_of(table.view, table.head), [])
    assert sum(len(one.hidden) for files in (live.inlined(), *live.shown().values()) for one in files) > 0
    kept.unlink()
    shows(table, table.rows)  # remembered
    bucket_vectors.MEMORY.clear()
    with pytest.raises(AssertionError, match="keys were read"):
        shows(table, table.rows)


def test_a_reader_keeps_nothing_in_storage(lake: LabLake) -> None:
    table = dirty(lake, "reader")
    shows(table, table.rows)
    assert not (Path(table.folder) / FOLDER).exists()


def test_the_iceberg_catalog_keeps_what_it_finds(lake: LabLake) -> None:
    table = dirty(lake, "iceberg")
    LiveFiles(table.view).apply(table.view, entries_of(table.view, table.head), [])
    assert len(vectors_in(table)) == 1


def test_wrong_vectors_are_not_used(alone: LabLake) -> None:
    """Damaged ones, those of another bucket's files under the name, those with rows that the file doesn't have."""
    table, other = dirty(alone, "wrong"), dirty(alone, "other")
    VectorKeeper(alone).run_once()
    [mine], [theirs] = vectors_in(table), vectors_in(other)
    vectors = decode(mine.stem, mine.read_bytes())
    far = encode(mine.stem, dict.fromkeys(vectors, positions(1_000)))
    older = encode(mine.stem, {(version - 1, path): positions(0) for version, path in vectors})
    for content in (theirs.read_bytes(), mine.read_bytes()[:-1], b"", far, older):
        mine.write_bytes(content)
        bucket_vectors.MEMORY.clear()
        shows(table, table.rows)
        assert vectors_in(table) == [mine]  # a reader mends nothing


def test_two_files_of_one_version_have_vectors_of_their_own(lake: LabLake, monkeypatch: pytest.MonkeyPatch) -> None:
    view = dirty(lake, "two_files").view
    files = [
        ScannedFile(common_pb2.DataFile(path=path, rows=5), version) for version, path in [(1, "a"), (1, "b"), (2, "c")]
    ]
    found = [positions(0), positions(3, 4), positions()]
    monkeypatch.setattr(bucket_vectors, "_by_keys", lambda *_: found)
    bucket_vectors.hidden_rows(view, WrittenSchemas(view), files, keep=True)
    monkeypatch.setattr(bucket_vectors, "_by_keys", _no_keys)
    for _ in ("remembered", "kept"):
        again = bucket_vectors.hidden_rows(view, WrittenSchemas(view), files)
        assert [one.tolist() for one in again] == [one.tolist() for one in found]
        bucket_vectors.MEMORY.clear()


def test_an_entry_of_another_data_version_is_another_file(lake: LabLake) -> None:
    """A vector holds for a file as old as it was."""
    table = dirty(lake, "older")
    files = [ScannedFile(one.file, one.data_version) for one in entries_of(table.view, table.head)]
    found = bucket_vectors.hidden_rows(table.view, WrittenSchemas(table.view), files)
    newest = max(files, key=lambda one: one.data_version)
    turned = [one._replace(data_version=0) if one is newest else one for one in files]
    again = bucket_vectors.hidden_rows(table.view, WrittenSchemas(table.view), turned)
    assert [one.tolist() for one in found] != [one.tolist() for one in again]


# -- the keeper --------------------------------------------------------------------------------------------------------


def test_a_pass_looks_at_what_has_changed(alone: LabLake) -> None:
    table = dirty(alone, "passes")
    now_s = [0.0]
    keeper = VectorKeeper(alone, now_s=lambda: now_s[0])
    assert keeper.run_once() > 0
    assert keeper.run_once() == 0
    table.insert([row_of(1, 3.0)])
    assert keeper.run_once() == 1
    assert len(vectors_in(table)) == 2


def test_a_table_that_takes_long_is_given_a_rest(alone: LabLake) -> None:
    table = dirty(alone, "rests")
    clock = iter(range(0, 1_000_000, 100))
    keeper = VectorKeeper(alone, now_s=lambda: float(next(clock)))
    keeper.run_once()
    table.insert([row_of(1, 3.0)])
    assert keeper.run_once() == 0
    for _ in range(10):
        keeper.run_once()
    assert len(vectors_in(table)) == 2


def test_a_failure_is_not_the_readers(alone: LabLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = dirty(alone, "full")
    (Path(table.folder) / FOLDER).write_text("a file where the folder should be")
    VectorKeeper(alone).run_once()
    shows(table, table.rows)
    monkeypatch.setattr(bucket_vectors, "_by_keys", _no_disk)
    table.insert([row_of(1, 3.0)])
    other = dirty(alone, "later")
    assert VectorKeeper(alone).run_once() == 0
    monkeypatch.undo()
    assert VectorKeeper(alone).run_once() == 2
    assert len(vectors_in(other)) == 1


# -- purge and fsck ----------------------------------------------------------------------------------------------------


def test_the_purge_deletes_old_vectors_that_the_newest_version_does_not_use(lake: LabLake) -> None:
    table = dirty(lake, "purged")
    VectorKeeper(lake).run_once()
    [before] = vectors_in(table)
    table.insert([row_of(2, 5.0)])
    VectorKeeper(lake).run_once()
    assert len(vectors_in(table)) == 2
    adopt(lake.client, lake.warehouse)
    Purge(lake.client, lake.warehouse).run(table.table_id)
    assert len(vectors_in(table)) == 2
    later = Purge(lake.client, lake.warehouse, now_s=lambda: time.time() + KEEP_S + 60)
    assert later.run(table.table_id).swept == 1
    [after] = vectors_in(table)
    assert after != before
    shows(table, table.rows)
    for version, rows in table.at.items():
        shows(table, rows, version)
    table.compact()
    later.run(table.table_id)
    assert not vectors_in(table)


def test_fsck_finds_damaged_vectors_and_no_strays(lake: LabLake) -> None:
    table = dirty(lake, "checked")
    VectorKeeper(lake).run_once()
    [kept] = vectors_in(table)
    adopt(lake.client, lake.warehouse)
    assert not list(Fsck(lake.client, lake.warehouse, table.meta).run())
    kept.write_bytes(kept.read_bytes()[:-1])
    [found] = Fsck(lake.client, lake.warehouse, table.meta).run()
    assert (found.word, found.path) == ("VECTORS_UNREADABLE", f"{FOLDER}/{kept.name}")


def _no_keys(*_: object) -> list[Positions]:
    raise AssertionError("keys were read")


def _no_disk(*_: object) -> list[Positions]:
    raise OSError("the disk is away")
