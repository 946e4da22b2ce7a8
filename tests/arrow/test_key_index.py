"""The key index changes no answer: whoever keeps, damages or deletes it, and however little of the table it covers."""

from __future__ import annotations

import io
import random
import time
import tracemalloc
from collections.abc import Iterator
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laketx import Lake, Table, connect
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.key_files import is_narrow, key_files_of, living_files
from worker.arrow.scan.key_places import KeyPlaces, are_hashes_exact, key_hashes, key_places
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas, entries_of, newest_plan
from worker.arrow.write.key_lookups import fitted_keys, near_keys
from worker.files import key_coverage, key_index
from worker.files.key_index import FOLDER, KeyIndex
from worker.files.key_layer import (
    BLOCK_IMAGES,
    DamagedIndexError,
    Images,
    Layer,
    decode_head,
    encode,
    find_in,
    read_blocks,
)
from worker.services.fsck import Fsck
from worker.services.generated_files import KEEP_S
from worker.services.key_indexes import COVERAGE_COMMITS, GROWTH, IMAGES_MAX, KeyIndexKeeper, images_of, work_of
from worker.services.purge import Purge

Row = dict[str, Any]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("index")) as made:
        yield made


@pytest.fixture(autouse=True)
def another_process() -> None:
    key_index.forget_all()


def made(lake: Lake, name: str, columns: str = "id bigint, day string, n int", **other: Any) -> Table:
    keyed: dict[str, Any] = {"primary_key": ["id"], "buckets": 2, "properties": {"write.inline.rows": "0"}} | other
    return lake.create_table(name, columns, partition_by=["day"], key_scope="table", **keyed)


def kept(lake: Lake) -> int:
    """Covers every file of every table."""
    return KeyIndexKeeper(lake, now_s=lambda: 0.0, rows_at_least=1, files_at_least=1).run_once()


def layers_of(table: Table) -> list[Path]:
    return sorted(Path(table.view.folder).glob(f"{FOLDER}/*/*.keys"))


def places_of(table: Table, keys: list[Any]) -> KeyPlaces:
    view = table.refresh().view
    entries = entries_of(view, view.meta.head_version)
    files = [ScannedFile(one.file, one.data_version) for one in entries if one.HasField("file")]
    return key_places(view, files, key_hashes(fitted_keys(keys_of(keys), view.meta), view.meta))


def keys_of(keys: list[Any]) -> pa.Table:
    return pa.table({"id": keys})


def found(table: Table) -> dict[Any, Row]:
    rows = table.to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), rows
    return {row["id"]: row for row in rows}


# -- content -----------------------------------------------------------------------------------------------------------


def layer_of(hashes: list[int], numbers: list[int], files: list[str]) -> tuple[bytes, Images]:
    order = np.argsort(np.array(hashes, np.uint64), kind="stable")
    images = Images(np.array(hashes, np.uint64)[order], np.array(numbers, np.int64)[order])
    partitions = {path: f"p{at % 3}".encode() for at, path in enumerate(files)}
    return bytes(encode("facts", 3, partitions, images)), images


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3 * BLOCK_IMAGES),
    st.sampled_from([2, 500, 1 << 64]),
    st.integers(0, 2**32),
    st.sampled_from([1, 300, (1 << 15) + 1]),
)
def test_all_images_of_keys_are_found(count: int, spread: int, seed: int, files: int) -> None:
    chance = random.Random(seed)
    hashes = [chance.randrange(spread) for _ in range(count)]
    numbers = [chance.randrange(2 * files) for _ in range(count)]
    content, images = layer_of(hashes, numbers, [f"f{at}" for at in range(files)])
    stream = io.BytesIO(content)
    layer = decode_head("facts", "x", stream)
    assert (layer.bucket, layer.images, len(layer.files)) == (3, count, files)
    assert layer.partitions == tuple(f"p{at % 3}".encode() for at in range(files))
    assert len(content) <= 12 * count + 1_000 + 12 * files
    asked = sorted({*chance.sample(hashes, min(count, 50)), *(chance.randrange(spread) for _ in range(20)), 0})
    places, got = find_in(layer, partial(read_blocks, layer, stream), np.array(asked, np.uint64))
    expected = [
        (at, int(number)) for at, key in enumerate(asked) for number in images.numbers[images.hashes == np.uint64(key)]
    ]
    assert sorted(zip(places.tolist(), got.tolist(), strict=True)) == sorted(expected)


def find_all(content: bytes, images: Images) -> None:
    stream = io.BytesIO(content)
    layer = decode_head("facts", "x", stream)
    find_in(layer, partial(read_blocks, layer, stream), images.hashes)


def test_damage_of_any_byte_is_noticed() -> None:
    content, images = layer_of([chance * 7 for chance in range(200)], [0] * 200, ["a", "b"])
    for at in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(DamagedIndexError):
            find_all(bytes(damaged), images)
    for end in range(0, len(content), 7):
        with pytest.raises(DamagedIndexError):
            find_all(content[:end], images)
    with pytest.raises(DamagedIndexError):
        decode_head("other facts", "x", io.BytesIO(content))


def test_tables_and_keys_share_no_layers() -> None:
    def meta(table_id: str, key: list[str], buckets: int) -> catalog_pb2.Table:
        columns = [catalog_pb2.Column(name=name, column_id=at) for at, name in enumerate(["id", "day"], 1)]
        return catalog_pb2.Table(table_id=table_id, columns=columns, primary_key=key, buckets=buckets)

    different = [meta("t", ["id"], 1), meta("u", ["id"], 1), meta("t", ["id", "day"], 1), meta("t", ["id"], 2)]
    assert len({key_index.facts_of(one) for one in different}) == 4


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        ("bigint", True),
        ("int", True),
        ("date", True),
        ("double", True),
        ("decimal(18,2)", True),
        ("string", False),
        ("binary", False),
        ("decimal(19,2)", False),
    ],
)
def test_which_hashes_are_exact(kind: str, *, exact: bool) -> None:
    columns = [catalog_pb2.Column(name="id", type=kind), catalog_pb2.Column(name="n", type="int")]
    assert are_hashes_exact(catalog_pb2.Table(columns=columns, primary_key=["id"])) == exact
    assert not are_hashes_exact(catalog_pb2.Table(columns=columns, primary_key=["id", "n"]))


# -- layers ------------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["add", "compact"]), st.integers(1, 50_000)), max_size=40))
def test_layers_cover_all_but_few_rows_and_are_few(steps: list[tuple[str, int]]) -> None:
    rows: dict[str, int] = {}
    layers: list[Layer] = []
    written = 0
    for at, (step, count) in enumerate(steps):
        if step == "compact":
            rows = {f"c{at}": sum(rows.values())} if rows else {}
        else:
            rows[f"f{at}"] = count
        work = work_of(layers, rows)
        assert len({layer.path for layer in work.replaced}) == len(work.replaced)
        layers = [layer for layer in layers if layer not in work.replaced]
        covered = {path for layer in layers for path in layer.files}
        own = [path for layer in work.replaced for path in layer.files if path in rows and path not in covered]
        new = list(dict.fromkeys([*own, *work.files]))
        assert covered.isdisjoint(new)
        if new:
            size = sum(rows[path] for path in new)
            written += size
            empty = np.empty(0, np.uint64)
            layers.append(Layer(f"l{at}", 0, size, tuple(new), (b"",) * len(new), empty, empty, 0))
        covered |= set(new)
        left = [path for path in rows if path not in covered]
        assert sum(rows[path] for path in left) < 10_000
        assert len(left) < 8
        dead = sum(layer.images for layer in layers) - sum(rows[path] for path in covered if path in rows)
        assert dead <= sum(rows.values()) or not rows
    sizes = sorted(layer.images for layer in layers)
    assert all(small * GROWTH <= large * 2 or large > IMAGES_MAX // 4 for small, large in pairwise(sizes))


def test_the_keeper_covers_files_once_and_merges_layers(lake: Lake) -> None:
    table = made(lake, "covered", buckets=1)
    for day in range(6):
        table.upsert([{"id": day * 10 + at, "day": f"d{day}", "n": 0} for at in range(10)])
        assert kept(lake) >= 1
        places = places_of(table, list(range(100)))
        assert (len(places.covered), places.others) == (day + 1, [])
        assert sorted(places.keys.tolist()) == list(range(day * 10 + 10))
    assert len(layers_of(table)) == 1  # the larger ones took the smaller ones in
    assert KeyIndexKeeper(lake).run_once() == 0
    table.compact("major")
    table.upsert([{"id": 0, "day": "d5", "n": 1}])
    assert len(places_of(table, [0]).others) == 8  # nothing is known of new files
    kept(lake)
    assert len(layers_of(table)) == 1
    table.truncate()
    kept(lake)
    assert not layers_of(table)


def test_layers_that_are_merged_say_what_their_files_have(lake: Lake) -> None:
    table = made(lake, "merged", buckets=1)
    for turn in range(6):
        table.upsert([{"id": at, "day": f"d{(at + turn) % 3}", "n": 0} for at in range(turn, 20, turn + 1)])
        kept(lake)
        assert not list(Fsck(lake.client, lake.warehouse, table.refresh().meta).run())
    assert len(layers_of(table)) < 6


def test_a_damaged_layer_is_made_anew_from_its_files(lake: Lake) -> None:
    table = made(lake, "anew", buckets=1)
    for n in range(2):
        table.upsert([{"id": at, "day": f"d{n}", "n": n} for at in range(20)])
        kept(lake)
        [path] = layers_of(table)
        content = bytearray(path.read_bytes())
        assert not list(Fsck(lake.client, lake.warehouse, table.refresh().meta).run())
        content[-1] ^= 1  # among the images: its head is read
        path.write_bytes(content)


def test_a_layer_is_made_in_little_memory(lake: Lake) -> None:
    count = 200_000
    table = made(lake, "large", "id bigint, day int", buckets=1)
    table.upsert(pa.table({"id": np.arange(count), "day": np.arange(count, dtype=np.int32) % 20}))
    tracemalloc.start()
    try:
        kept(lake)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / count < 45  # bytes; hashes and numbers are there twice, beside their order
    assert len(layers_of(table)) == 1


def test_few_files_wait_for_others(lake: Lake) -> None:
    table = made(lake, "waiting", buckets=1)
    keeper = KeyIndexKeeper(lake, now_s=lambda: 0.0)
    for at in range(8):
        assert not layers_of(table)
        table.upsert([{"id": at, "day": "d", "n": 0}])
        keeper.run_once()
    assert len(layers_of(table)) == 1


# -- answers -----------------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bigint": ("id bigint, day string, n int", {}),
    "string": ("id string, day string, n int", {"profile": "row_level", "properties": {"write.inline.rows": "2"}}),
    "needed": ("id bigint, day string, n int not null", {"buckets": 1}),
    "typed": ("id date, day decimal(9,2), n int", {}),
}
DAYS: dict[str, list[Any]] = {"typed": [1, 2.5, None]}


def key_of(kind: str, at: int) -> Any:
    return {"string": f"k{at}", "typed": date(2026, 1, 1 + at)}.get(kind, at)


class History:
    """Random writes against a dict, while an index comes, goes, and is damaged."""

    def __init__(self, lake: Lake, kind: str, seed: int) -> None:
        columns, other = KINDS[kind]
        self.lake, self.kind = lake, kind
        self.chance = random.Random(f"{kind} {seed}")
        self.table = made(lake, f"h_{kind}_{seed}", columns, **other)
        self.days = DAYS.get(kind, ["a", "b", None])
        self.rows: dict[Any, Row] = {}
        self.states: dict[int, dict[Any, Row]] = {0: {}}

    def some(self) -> list[Row]:
        ids = [key_of(self.kind, at) for at in self.chance.sample(range(12), self.chance.randint(1, 4))]
        return [{"id": one, "day": self.chance.choice(self.days), "n": self.chance.randint(0, 99)} for one in ids]

    def step(self) -> None:
        rows = self.some()
        keys = [row["id"] for row in rows]
        match self.chance.choice(
            ["upsert"] * 4 + ["delete", "move", "merge", "empty", "keep", "keep", "lose", "compact", "restore"]
        ):
            case "upsert":
                self.table.upsert(rows)
                self.rows |= {row["id"]: row for row in rows}
            case "merge":
                self.table.merge(rows, on=["id", "day"]).when_matched_update().when_not_matched_insert().execute()
                self.rows |= {row["id"]: row for row in rows}
            case "delete":
                self.table.delete(keys=keys)
                self.rows = {key: row for key, row in self.rows.items() if key not in keys}
            case "move":
                day = self.chance.choice(self.days)
                word = "NULL" if day is None else repr(day)
                self.table.update({"day": word}, where=f"n <= {rows[0]['n']}")
                self.rows = {
                    key: {**row, "day": day} if row["n"] <= rows[0]["n"] else row for key, row in self.rows.items()
                }
            case "empty":
                day = self.chance.choice(self.days)
                self.table.truncate(partition={"day": day})
                self.rows = {key: row for key, row in self.rows.items() if row["day"] != day}
            case "keep":
                kept(self.lake)
            case "lose":
                self.lose()
            case "compact":
                self.table.compact(self.chance.choice(["minor", "major"]))
            case _:
                version = self.chance.choice(sorted(self.states))
                self.table.restore(version=version)
                self.rows = dict(self.states[version])
        for count in (1, 5):
            asked = [key_of(self.kind, at) for at in self.chance.sample(range(12), count)]
            looked_up = self.shown(self.table.get(asked).to_pylist())
            assert looked_up == {key: self.rows[key] for key in asked if key in self.rows}
        self.states[self.table.refresh().meta.head_version] = dict(self.rows)

    def lose(self) -> None:
        for path in layers_of(self.table):
            content = bytearray(path.read_bytes())
            match self.chance.choice(["delete", "cut", "flip", "leave"]):
                case "delete":
                    path.unlink()
                case "cut":
                    path.write_bytes(content[: self.chance.randrange(len(content))])
                case "leave":
                    continue
                case _:
                    content[self.chance.randrange(len(content))] ^= 1 << self.chance.randrange(8)
                    path.write_bytes(content)
        key_index.forget_all()

    def shown(self, rows: list[Row]) -> dict[Any, Row]:
        assert len({row["id"] for row in rows}) == len(rows), rows
        return {row["id"]: {**row, "day": self.day(row["day"])} for row in rows}

    def day(self, value: Any) -> Any:
        return next(one for one in self.days if one == value)


@pytest.mark.parametrize("kind", KINDS)
def test_the_index_changes_no_answer(lake: Lake, kind: str) -> None:
    history = History(lake, kind, 0)
    for _ in range(30):
        history.step()
        assert history.shown(history.table.to_arrow().to_pylist()) == history.rows


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(1, 25))
def test_the_index_changes_no_answer_in_many_histories(lake: Lake, kind: str, seed: int) -> None:
    history = History(lake, kind, seed)
    for _ in range(80):
        history.step()
        assert history.shown(history.table.to_arrow().to_pylist()) == history.rows


def test_an_older_index_says_nothing_of_newer_files(lake: Lake) -> None:
    table = made(lake, "older")
    table.upsert([{"id": at, "day": "a", "n": 0} for at in range(20)])
    kept(lake)
    table.upsert([{"id": at, "day": "b", "n": 1} for at in range(20)])  # to where the index knows of no key
    table.upsert([{"id": at, "day": "c", "n": 2} for at in range(20)])
    assert found(table) == {at: {"id": at, "day": "c", "n": 2} for at in range(20)}
    table.restore(version=1)
    table.upsert([{"id": at, "day": "b", "n": 3} for at in range(20)])
    assert found(table) == {at: {"id": at, "day": "b", "n": 3} for at in range(20)}


def test_a_damaged_index_is_not_believed(lake: Lake) -> None:
    table = made(lake, "damaged", buckets=1)
    table.upsert([{"id": at, "day": "a", "n": 0} for at in range(50)])
    kept(lake)
    [path] = layers_of(table)
    content = bytearray(path.read_bytes())
    content[-100:-90] = bytes(10)  # among the numbers: other files
    content[-300:-290] = bytes(10)
    path.write_bytes(content)
    table.upsert([{"id": at, "day": "b", "n": 1} for at in range(50)])
    assert found(table) == {at: {"id": at, "day": "b", "n": 1} for at in range(50)}
    words = [(one.word, one.path) for one in Fsck(lake.client, lake.warehouse, table.refresh().meta).run()]
    assert words == [("KEY_INDEX_UNREADABLE", f"{FOLDER}/{path.parent.name}/{path.name}")]
    kept(lake)
    assert not list(Fsck(lake.client, lake.warehouse, table.refresh().meta).run())


def test_a_tombstone_of_another_key_with_the_same_hash_hides_nothing(lake: Lake) -> None:
    table = made(lake, "collides", "id string, day string, n int", buckets=1)
    table.upsert([{"id": key, "day": "a", "n": 1} for key in ("left", "mine", "other")])
    table.delete(keys=["left", "other"])  # whose bounds have the other key between them
    view = table.refresh().view
    mine, other = key_hashes(keys_of(["mine", "other"]), view.meta).view(np.uint64).tolist()
    index, written = KeyIndex(view.folder, view.meta), WrittenSchemas(view)
    entries = entries_of(view, view.meta.head_version)
    parts = [images_of(view, written, ScannedFile(one.file, one.data_version)) for one in entries]
    hashes = np.concatenate([part.hashes for part in parts])
    numbers = np.concatenate([part.numbers + 2 * at for at, part in enumerate(parts)])
    hashes[hashes == np.uint64(other)] = mine  # as if both keys had it
    order = np.argsort(hashes, kind="stable")
    partitions = {one.file.path: one.file.partition.SerializeToString() for one in entries}
    index.write(0, partitions, Images(hashes[order], numbers[order]))
    assert len(places_of(table, ["mine"]).keys) == 3
    table.upsert([{"id": "mine", "day": "b", "n": 2}])
    assert found(table) == {"mine": {"id": "mine", "day": "b", "n": 2}}
    table.upsert([{"id": "new", "day": "b", "n": 2}])
    words = {one.word for one in Fsck(lake.client, lake.warehouse, table.refresh().meta).run()}
    assert words == {"KEY_INDEX_WRONG"}


def test_a_read_of_a_key_reads_the_files_that_have_it(lake: Lake) -> None:
    table = made(lake, "narrow", buckets=1)
    for day in range(12):
        table.upsert([{"id": day + 12 * at, "day": f"d{day}", "n": at} for at in range(10)])
    kept(lake)
    assert [one.file.partition.values[0].value.text for one in places_of(table, [29]).files_with_keys()] == ["d5"]
    assert places_of(table, [12 * 10]).files_with_keys() == []
    assert table.get([29]).to_pylist() == [{"id": 29, "day": "d5", "n": 2}]


def planned(table: Table, key: int, **other: Any) -> list[str]:
    """The days of the files that a look-up of a key plans, though `other` says something else."""
    view, keys = table.refresh().view, keys_of([key])
    known = key_files_of(view, key_hashes(fitted_keys(keys, view.meta), view.meta))
    assert known is not None
    key_files = known.request
    assert key_files.history_epoch == view.client.get_warehouse().history_epoch
    for name, value in other.items():
        setattr(key_files, name, value)
    plan = newest_plan(view, near_keys(keys, view.meta), key_files)
    assert plan is not None
    assert is_narrow(plan, known) == (len(plan.entries) < 12)
    return sorted(one.file.partition.values[0].value.text for one in plan.entries)


def living(table: Table, *keys: int) -> int | None:
    """How many files a look-up reads by the index alone; None: all that are planned."""
    view, rows = table.refresh().view, keys_of(list(keys))
    known = key_files_of(view, key_hashes(fitted_keys(rows, view.meta), view.meta))
    assert known is not None
    plan = newest_plan(view, near_keys(rows, view.meta), known.request)
    assert plan is not None
    found = living_files(plan, known)
    return None if found is None else len(found)


def test_a_look_up_reads_the_files_that_have_the_rows(lake: Lake) -> None:
    table = made(lake, "living", buckets=1)
    table.upsert([{"id": at, "day": "a", "n": 0} for at in range(10)])
    table.upsert([{"id": 3, "day": "b", "n": 1}, {"id": 7, "day": "b", "n": 1}])
    table.upsert([{"id": 4, "day": "a", "n": 2}, {"id": 7, "day": "a", "n": 2}])
    table.delete(keys=[{"id": 6}])
    kept(lake)
    rows = found(table)
    assert len(rows) == 9
    read = {(3,): 1, (4,): 1, (5,): 1, (6,): 0, (7,): 1, (4, 7): 1, (3, 4): 2, (5, 8): 1, (3, 5): None, (5, 6): None}
    for keys, files in read.items():
        assert living(table, *keys) == files, keys
        assert {row["id"]: row for row in table.get(keys).to_pylist()} == {
            key: rows[key] for key in keys if key in rows
        }
    table.upsert([{"id": 5, "day": "c", "n": 3}])
    assert living(table, 5) is None, "no layer covers the newest file yet"
    assert table.get([5]).to_pylist() == [{"id": 5, "day": "c", "n": 3}]


def test_a_look_up_plans_the_files_that_may_have_the_key(lake: Lake) -> None:
    table = made(lake, "planned", buckets=1)
    assert table.get([29]).num_rows == 0
    for day in range(12):
        table.upsert([{"id": day + 12 * at, "day": f"d{day}", "n": at} for at in range(10)])
    kept(lake)
    assert planned(table, 29) == ["d5"]
    assert planned(table, 12 * 10) == []
    before = table.refresh().meta.head_version
    assert len(planned(table, 29, history_epoch="another")) == 12
    assert len(planned(table, 29, version=before + 1)) == 12
    table.upsert([{"id": 29, "day": "e", "n": 0}])
    table.upsert([{"id": 30, "day": "e", "n": 0}])  # whose file has no other key between its bounds
    assert planned(table, 29) == ["d5", "d5", "e"]
    kept(lake)
    assert planned(table, 29) == ["d5", "d5", "e"]
    table.truncate(partition={"day": "d5"})
    assert planned(table, 29) == ["e"]
    table.compact("major")  # what it writes isn't known
    assert len(planned(table, 29)) == 12
    kept(lake)
    assert planned(table, 29) == ["e"]
    table.restore(version=before)
    assert len(planned(table, 29)) == 12
    assert KeyIndexKeeper(lake, rows_at_least=1).run_once()
    assert planned(table, 29) == ["d5"]
    assert table.get([29]).to_pylist() == [{"id": 29, "day": "d5", "n": 2}]


def test_what_is_known_of_a_table_lacks_no_file_that_no_layer_covers(lake: Lake) -> None:
    table = made(lake, "partly", buckets=1)
    table.upsert([{"id": at, "day": "a", "n": 0} for at in range(20)])
    kept(lake)
    [coverage] = Path(table.view.folder).glob(f"{FOLDER}/*/*{key_coverage.SUFFIX}")
    for at in range(COVERAGE_COMMITS):
        table.upsert([{"id": 100 + at % 3, "day": "b", "n": at}])
    KeyIndexKeeper(lake, now_s=lambda: 0.0, files_at_least=1 << 20).run_once()  # they are too few for a layer
    [later] = Path(table.view.folder).glob(f"{FOLDER}/*/*{key_coverage.SUFFIX}")
    assert later.name > coverage.name
    last = max(at for at in range(COVERAGE_COMMITS) if at % 3 == 1)
    assert planned(table, 101) == ["b"] * (last // 3 + 1)
    assert table.get([101]).to_pylist() == [{"id": 101, "day": "b", "n": last}]
    later.write_bytes(later.read_bytes()[:-1])
    key_index.forget_all()
    assert table.get([101]).to_pylist() == [{"id": 101, "day": "b", "n": last}]


# -- table services ----------------------------------------------------------------------------------------------------


def test_a_purge_deletes_the_index_of_a_dropped_clone_alone(tmp_path: Path) -> None:
    with connect(tmp_path) as lake:
        table = made(lake, "kept")
        table.upsert([{"id": at, "day": "a", "n": 0} for at in range(20)])
        clone = lake.clone_table("kept", "copy")
        clone.upsert([{"id": 1, "day": "b", "n": 1}])
        kept(lake)
        folders = {path.parent.name for path in layers_of(table)}
        assert len(folders) == 2
        later = Purge(lake.client, lake.warehouse, now_s=lambda: time.time() + KEEP_S + 60.0)
        later.run()
        assert {path.parent.name for path in layers_of(table)} == folders
        lake.drop_table("copy")
        Purge(lake.client, lake.warehouse).run()
        assert {path.parent.name for path in layers_of(table)} == folders
        later.run()
        assert {path.parent.name for path in layers_of(table)} == {key_index.facts_of(table.meta)}


def test_a_branch_uses_the_index_of_its_parent(lake: Lake) -> None:
    table = made(lake, "parent")
    table.upsert([{"id": at, "day": "a", "n": 0} for at in range(20)])
    kept(lake)
    lake.branch("side")
    branch = lake.table("parent@side")
    branch.upsert([{"id": at, "day": "b", "n": 1} for at in range(10)])
    places = places_of(branch, list(range(20)))
    assert (len(places.keys), len(places.covered), len(places.others)) == (20, 2, 4)
    branch.upsert([{"id": at, "day": "c", "n": 2} for at in range(5, 15)])
    days = {row["id"]: row["day"] for row in branch.to_arrow().to_pylist()}
    assert days == {at: "b" if at < 5 else "c" if at < 15 else "a" for at in range(20)}
    assert {row["day"] for row in table.to_arrow().to_pylist()} == {"a"}
