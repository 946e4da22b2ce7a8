"""Rows that a condition chooses: read late, or with all columns and those of other files, they are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.arrow.conditions import some_condition
from tests.arrow.tables import Reads, open_lake
from tests.spark.histories import grow
from tests.spark.reading import LabLake
from worker.arrow.scan import late_materialization, small_files
from worker.arrow.scan.file_rows import InputFile, OpenedFile, read_tables
from worker.arrow.scan.late_materialization import chosen_in, read_chosen
from worker.base.schema import OP, ROW_ID
from worker.files.arrow_types import ARROW_ID
from worker.files.parquet_pages import PagedFile
from worker.files.position_blocks import Numbers

WHOLE = float("inf")
ALWAYS, NEVER = 0, 1 << 62  # the least bytes to be read late
MOMENT = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lake(tmp_path_factory.mktemp("late")) as made:
        yield made


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_both_ways_show_the_same_rows(lake: LabLake, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    table = grow(lake, f"t{seed}", seed, keyed=bool(seed % 2), steps=8)
    for _ in range(15):
        condition, _ = some_condition(chance)
        found = []
        for least, runs in ((ALWAYS, small_files.RUNS_PER_THREAD), (NEVER, 1)):
            monkeypatch.setattr(late_materialization, "LATE_BYTES_AT_LEAST", least)
            monkeypatch.setattr(small_files, "RUNS_PER_THREAD", runs)
            scan = Reads(table).scanner(where=condition)
            parts = [scan.to_arrow(), scan.to_batches().read_all()]
            found.append([repr(part.to_pylist()) for part in parts])
        assert found[0] == found[1], condition


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(10, 40))])
def test_both_ways_read_the_same_rows_of_a_file(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    rows = some_rows(chance, chance.choice([1, 700, 5_000, 20_000]))
    written(tmp_path / "f.parquet", rows, chance)
    file = some_file(tmp_path / "f.parquet", rows, chance)
    wanted = some_schema(rows, chance)
    first = {"k", *chance.sample(wanted.names, chance.randint(0, min(3, len(wanted))))}
    groups = pq.read_metadata(tmp_path / "f.parquet").num_row_groups
    read = sorted(chance.sample(range(groups), chance.randint(1, groups)))
    memory_bytes = chance.choice([WHOLE, 50_000.0])
    chosen_numbers = chance.choice([[], [0], range(100, 160), range(0, len(rows), 997), range(0, len(rows), 3)])

    def chosen(some: pa.Table, at: int) -> Numbers:
        assert {*some.schema.names} >= first
        return np.flatnonzero(np.isin(np.arange(at, at + len(some)), list(chosen_numbers)))

    expected = [part.take(pa.array(chosen(part, at))) for at, part in read_tables(file, wanted, WHOLE, lambda *_: read)]
    for least in (ALWAYS, NEVER):
        monkeypatch.setattr(late_materialization, "LATE_BYTES_AT_LEAST", least)
        parts = list(read_chosen(file, wanted, first, chosen, memory_bytes, lambda *_: read))
        found = pa.concat_tables([wanted.empty_table(), *parts])
        assert found.schema.equals(wanted)
        assert repr(found.to_pylist()) == repr(pa.concat_tables([wanted.empty_table(), *expected]).to_pylist()), least


@pytest.mark.parametrize("memory_bytes", [WHOLE, 4e6])
def test_a_look_up_reads_few_bytes(tmp_path: Path, memory_bytes: float) -> None:
    count = 300_000
    random_numbers = np.random.default_rng(1)
    fields = [pa.field(f"c{at}", pa.float64(), metadata={ARROW_ID: str(at).encode()}) for at in range(9)]
    rows = pa.table([np.arange(count, dtype=float), *random_numbers.random((8, count))], pa.schema(fields))
    path = tmp_path / "f.parquet"
    pq.write_table(rows, path, compression="zstd", use_dictionary=False)
    size = path.stat().st_size
    keys = pq.read_metadata(path).row_group(0).column(0).total_compressed_size
    rows_at_once = count if memory_bytes == WHOLE else int(memory_bytes / 72)

    def chosen(some: pa.Table, _: int) -> Numbers:
        return np.flatnonzero(some.column("c0").to_numpy() == 222_222)

    with path.open("rb") as opened:
        counting = Counting(opened)
        stream = pa.PythonFile(counting, mode="r")
        file = InputFile(path=str(path), data_version=1, rows=count, bytes=size)
        source = OpenedFile(file, stream, pq.ParquetFile(stream), rows_at_once, is_local=True)
        [found] = chosen_in(source, pa.schema(fields[:1]), pa.schema(fields[1:]), chosen, memory_bytes, [0])
    assert found.to_pylist() == rows.slice(222_222, 1).to_pylist()
    assert counting.bytes < keys + (size - keys) / 8


class Counting:
    """An opened file that counts the bytes it reads."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self.bytes = 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._opened.read(size)
        self.bytes += len(found)
        return found

    def seek(self, at: int, whence: int = 0) -> int:
        return int(self._opened.seek(at, whence))

    def tell(self) -> int:
        return int(self._opened.tell())

    def size(self) -> int:
        return Path(self._opened.name).stat().st_size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_pages_come_without_a_dictionary_that_they_do_not_need(tmp_path: Path) -> None:
    path = str(tmp_path / "f.parquet")
    rows = pa.table({"word": [f"word {number:05}" for number in range(20_000)]})
    pq.write_table(rows, path, dictionary_pagesize_limit=1 << 14, data_page_size=1 << 12, write_batch_size=100)
    with pa.OSFile(path) as stream:
        paged = PagedFile(stream, pq.read_metadata(path))
        first, last = (paged.pages(0, 0, np.array([position])) for position in (0, 19_999))
        chunks = [
            pq.ParquetFile(pa.BufferReader(found.file())).metadata.row_group(0).column(0) for found in (first, last)
        ]
        assert [one.has_dictionary_page for one in chunks] == [True, False]
        for found, number in ((first, 0), (last, 19_999)):
            read = pq.read_table(pa.BufferReader(found.file())).take(pa.array(found.places))
            assert read.column(0).to_pylist() == [f"word {number:05}"]


def some_rows(chance: random.Random, count: int) -> pa.Table:
    def values(of: Any, kind: pa.DataType) -> pa.Array:
        nulls = chance.choice([0.0, 0.1, 0.99, 1.0])
        return pa.array([None if chance.random() < nulls else of(at) for at in range(count)], kind)

    words = [f"word {at}" for at in range(chance.choice([3, 3_000]))]
    columns = {
        "k": pa.array(range(count), pa.int64()),
        "b": values(lambda at: at % 3 == 0, pa.bool_()),
        "i": values(lambda _: chance.randint(-5, 1 << 30), pa.int32()),
        "t": values(lambda _: chance.randint(-128, 127), pa.int8()),
        "f": values(lambda _: chance.choice([0.5, float("nan"), -0.0]), pa.float32()),
        "s": values(lambda _: chance.choice(words), pa.string()),
        "y": values(lambda _: chance.randbytes(chance.randint(0, 40)), pa.binary()),
        "d": values(lambda _: Decimal(chance.randint(-999, 999)) / 100, pa.decimal128(20, 2)),
        "u": values(lambda at: MOMENT + timedelta(microseconds=at), pa.timestamp("us", "UTC")),
        "l": values(lambda at: list(range(at % 4)), pa.list_(pa.field("element", pa.int32()))),
        "x.y": values(lambda at: at, pa.int64()),
        "x": values(lambda at: {"y": at}, pa.struct([pa.field("y", pa.int64())])),
        ROW_ID: values(lambda at: at + 77, pa.int64()),
        OP: pa.array([at % 2 for at in range(count)], pa.int8()),
    }
    chosen = ["k", *chance.sample([name for name in columns if name != "k"], chance.randint(2, len(columns) - 1))]
    chance.shuffle(chosen)
    fields = [
        pa.field(name, columns[name].type, name != "k", {ARROW_ID: str(ids(name)).encode()} if name[0] != "_" else None)
        for name in chosen
    ]
    return pa.table([columns[name] for name in chosen], schema=pa.schema(fields))


def ids(name: str) -> int:
    return 10 + ["k", "b", "i", "t", "f", "s", "y", "d", "u", "l", "x.y", "x", "gone"].index(name)


def written(path: Path, rows: pa.Table, chance: random.Random) -> None:
    has_dictionary = chance.random() < 0.5
    integers = [one.name for one in rows.schema if pa.types.is_integer(one.type)]
    differences = [] if has_dictionary else chance.choice([[], integers])
    pq.write_table(
        rows,
        path,
        compression=chance.choice(["none", "snappy", "gzip", "zstd", "lz4", "brotli"]),
        data_page_version=chance.choice(["1.0", "2.0"]),
        data_page_size=chance.choice([100, 4_000, 1 << 20]),
        max_rows_per_page=chance.choice([64, 1_000, 20_000]),
        use_dictionary=has_dictionary,
        column_encoding=dict.fromkeys(differences, "DELTA_BINARY_PACKED") or None,
        dictionary_pagesize_limit=chance.choice([100, 1 << 20]),
        row_group_size=chance.choice([300, 6_000, 1 << 20]) if len(rows) < 1_000 else chance.choice([6_000, 1 << 20]),
        write_page_index=chance.choice([True, False]),
        store_schema=chance.choice([True, False]),
        store_decimal_as_integer=chance.choice([True, False]),
        use_deprecated_int96_timestamps=chance.choice([True, False]),
    )


def some_file(path: Path, rows: pa.Table, chance: random.Random) -> InputFile:
    """A file of the table, or one that was imported: without ids, with values from its path."""
    file = InputFile(str(path), 1, len(rows), path.stat().st_size, is_delta=chance.random() < 0.5, first_row_id=1_000)
    if chance.random() < 0.7:
        return file
    names = {ids(name): name for name in rows.schema.names if name[0] != "_" and name != "i"}
    return replace(file, names=names, constants={"i": 5})


def some_schema(rows: pa.Table, chance: random.Random) -> pa.Schema:
    """Some of the columns, renamed perhaps, of wider types, and one that the file lacks."""
    fields = []
    for one in rows.schema:
        wider = {pa.int8(): pa.int32(), pa.int32(): pa.int64(), pa.float32(): pa.float64()}.get(one.type, one.type)
        fields.append(
            one.with_nullable(True).with_type(chance.choice([one.type, wider]) if one.name != OP else one.type)
        )
    fields.append(pa.field("gone", pa.string(), True, {ARROW_ID: str(ids("gone")).encode()}))
    if "_row_id" not in rows.schema.names:
        fields.append(pa.field(ROW_ID, pa.int64()))
    chance.shuffle(fields)
    others = [one for one in fields if one.name != "k"]
    kept = {"k", *(one.name for one in chance.sample(others, chance.randint(1, len(others))))}
    return pa.schema([one for one in fields if one.name in kept])
