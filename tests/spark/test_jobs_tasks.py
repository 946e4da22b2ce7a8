"""The work of one task, without Spark: merged blocks against a dict, digests against faults, shapes against names."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.file_rows import InputFile
from worker.files.arrow_types import ARROW_ID, arrow_schema, in_shape
from worker.services.compaction import chunks
from worker.services.compaction.digests import Digest, digest_of, row_hashes
from worker.services.compaction.file_io import Output, read_batches
from worker.services.compaction.orders import BITS_A_COLUMN, interleaved, rank_bounds
from worker.services.compaction.sorted_merge import NotSortedError, Run, blocks, latest, without_tombstones

KEYS = ["a", "b"]
Rows = list[dict[str, Any]]


def keyed_table() -> catalog_pb2.Table:
    columns = [("a", "int"), ("b", "string"), ("v", "double")]
    return catalog_pb2.Table(
        table_id="t",
        primary_key=KEYS,
        buckets=1,
        columns=[
            catalog_pb2.Column(name=name, type=kind, column_id=at + 1, nullable=name == "v")
            for at, (name, kind) in enumerate(columns)
        ],
    )


def append_table() -> catalog_pb2.Table:
    found = keyed_table()
    del found.primary_key[:]
    found.buckets = 0
    return found


class Bench:
    """A folder with files of one bucket, and the task that compacts them."""

    def __init__(self, folder: Path, table: catalog_pb2.Table) -> None:
        self.folder = folder
        self.table = table
        self.files: list[InputFile] = []
        self.key_columns = list(table.primary_key)

    def write(self, rows: Rows, **facts: Any) -> None:
        is_delta = bool(self.key_columns) and any("_op" in row for row in rows)
        own_ids = any("_row_id" in row for row in rows)
        schema = arrow_schema(self.table, with_op=is_delta, with_row_id=own_ids)
        path = self.folder / f"in-{len(self.files)}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        version = facts.pop("data_version", len(self.files) + 1)
        file = InputFile(str(path), version, len(rows), path.stat().st_size, is_delta, carries_row_ids=own_ids, **facts)
        self.files.append(file)

    def run(self, *, is_major: bool, **settings: Any) -> chunks.Result:
        asked = {"file_bytes_target": 1 << 20, **settings}
        is_base = is_major and bool(self.key_columns)
        payload = self.table.SerializeToString()
        chosen = chunks.Settings(payload, str(self.folder), is_major=is_major, is_base=is_base, verify=True, **asked)
        return chunks.run_chunk(chosen, chunks.Chunk(0, "out/0", tuple(self.files)))

    def written(self) -> Rows:
        paths = sorted(self.folder.glob("out/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
        return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def entry(a: int, b: str, v: float | None, op: int | None = None) -> dict[str, Any]:
    return {"a": a, "b": b, "v": v} | ({} if op is None else {"_op": op})


@pytest.fixture
def keyed(tmp_path: Path) -> Bench:
    found = Bench(tmp_path, keyed_table())
    found.write([entry(at, "x", float(at)) for at in range(50)])
    found.write([entry(3, "x", -3.0, 0), entry(4, "x", None, 1), entry(60, "x", 60.0, 0), entry(61, "x", None, 1)])
    found.write([entry(3, "x", -30.0, 0), entry(5, "y", 5.0, 0), entry(60, "x", None, 1)])
    return found


@pytest.fixture
def append(tmp_path: Path) -> Bench:
    found = Bench(tmp_path, append_table())
    found.write([entry(at, "x", float(at)) for at in range(30)], first_row_id=100, hidden=BitMap64([103, 129]))
    own = [{**entry(at, "y", None), "_row_id": 7 + at if at else None} for at in range(5)]
    found.write(own, first_row_id=200, hidden=BitMap64([200, 9]))
    return found


def test_a_file_is_read_in_little_memory(keyed: Bench) -> None:
    """Whatever it holds: neither its row groups nor their bytes stay behind."""
    path, groups, rows = keyed.folder / "large.parquet", 40, 20_000
    schema = arrow_schema(keyed.table)
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for at in range(groups):
            made = pl.select(a=pl.int_range(rows, dtype=pl.Int32) + at * rows, b=pl.lit("x" * 50), v=pl.lit(1.5))
            writer.write_table(made.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema))
    file = InputFile(str(path), 1, groups * rows, path.stat().st_size)
    assert file.bytes > 40 << 20
    before, most = pa.total_allocated_bytes(), 0
    for batch in read_batches(file, schema, 2 << 20):
        most = max(most, pa.total_allocated_bytes() - before)
        assert batch.estimated_size() <= 3 << 20
    assert most < 8 << 20


def test_columns_whose_values_repeat_get_a_dictionary(tmp_path: Path) -> None:
    """All kinds of columns; a dictionary of values that don't repeat would make reads slower."""
    many, now = 5_000, datetime(2026, 11, 1, tzinfo=UTC)
    atoms: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
        "long": (pa.int64(), int),
        "real": (pa.float64(), float),
        "text": (pa.string(), str),
        "a.b": (pa.string(), str),
        "raw": (pa.binary(), lambda at: str(at).encode()),
        "day": (pa.date32(), lambda at: (now + timedelta(days=at)).date()),
        "time": (pa.timestamp("us", "UTC"), lambda at: now + timedelta(seconds=at)),
        "money": (pa.decimal128(38, 2), Decimal),
    }
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {"none": (pa.int64(), [None] * many)}
    for name, (kind, make) in atoms.items():
        columns[f"{name} few"] = kind, [None if at % 9 == 5 else make(at % 9) for at in range(many)]
        columns[f"{name} all"] = kind, [make(at) for at in range(many)]
    columns["flag"] = pa.bool_(), [at % 2 == 0 for at in range(many)]
    columns["nested"] = pa.struct([pa.field("x", pa.list_(pa.field("element", pa.int64())))]), [{"x": [1]}] * many
    columns["map"] = pa.map_(pa.string(), pa.int64()), [[("a", 1)]] * many
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in columns.items()])
    table = pa.table([pa.array(values, kind) for kind, values in columns.values()], schema=schema)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    output = Output(catalog_pb2.Table(), str(tmp_path), "out", schema, 1 << 30)
    output.write(frame)
    (written,) = output.close()
    assert pq.ParquetFile(tmp_path / written.path).read().equals(table)
    group = written.metadata.row_group(0)
    columns_of_group = [group.column(at) for at in range(group.num_columns)]
    with_one = {one.path_in_schema for one in columns_of_group if "RLE_DICTIONARY" in one.encodings}
    nested = {"nested.x.list.element", "map.key_value.key", "map.key_value.value"}
    assert with_one == {"none", *nested, *(f"{name} few" for name in atoms)}


# -- contents ----------------------------------------------------------------------------------------------------------


def test_a_major_leaves_the_newest_rows_sorted_by_key(keyed: Bench) -> None:
    result = keyed.run(is_major=True)
    want = [entry(at, "x", -30.0 if at == 3 else float(at)) for at in range(50) if at != 4]
    want = sorted([*want, entry(5, "y", 5.0)], key=lambda row: (row["a"], row["b"]))
    assert keyed.written() == want
    assert result.input == result.output
    assert result.output.rows == len(want)


def test_a_minor_keeps_tombstones_and_reads_deltas_alone(keyed: Bench) -> None:
    keyed.files = keyed.files[1:]
    result = keyed.run(is_major=False)
    assert [(row["a"], row["b"], row["v"], row["_op"]) for row in keyed.written()] == [
        (3, "x", -30.0, 0),
        (4, "x", None, 1),
        (5, "y", 5.0, 0),
        (60, "x", None, 1),
        (61, "x", None, 1),
    ]
    assert result.input == result.output


def test_an_append_compaction_carries_row_ids_and_leaves_out_what_is_hidden(append: Bench) -> None:
    result = append.run(is_major=True)
    ids = [row["_row_id"] for row in append.written()]
    assert ids == [*[at for at in range(100, 129) if at != 103], 8, 10, 11]
    assert result.input == result.output


def test_a_file_that_is_not_sorted_is_sorted_first(keyed: Bench) -> None:
    keyed.files.clear()
    keyed.write([entry(at, "x", float(at)) for at in (5, 1, 9, 3)])
    keyed.write([entry(9, "x", -9.0, 0)])
    result = keyed.run(is_major=True)
    assert [(row["a"], row["v"]) for row in keyed.written()] == [(1, 1.0), (3, 3.0), (5, 5.0), (9, -9.0)]
    assert result.input == result.output


def test_files_have_the_size_that_is_asked_for(keyed: Bench) -> None:
    keyed.write([entry(at, "x", at / 3) for at in range(100, 20_100)])
    result = keyed.run(is_major=True, file_bytes_target=5_000)
    assert len(result.files) > 2
    assert len(keyed.written()) == 20_050
    assert result.input == result.output


batches = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("xyz"), st.integers(0, 1)), max_size=12)


@given(st.lists(st.tuples(batches, st.integers(1, 4)), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_blocks_are_what_a_dict_says(
    files: list[tuple[list[tuple[int, str, int]], int]], is_major: bool, is_counted: bool
) -> None:
    want: dict[tuple[int, str], tuple[int, int]] = {}
    runs = []
    for version, (listed, rows_at_once) in enumerate(files):
        there = {(a, b): op for a, b, op in listed}
        want |= {key: (version, op) for key, op in there.items()}
        rows = [{"a": a, "b": b, "_op": there[a, b], "v": version} for a, b in sorted(there)]
        frame = pl.DataFrame(rows, schema={"a": pl.Int32, "b": pl.String, "_op": pl.Int8, "v": pl.Int64})
        slices = iter(list(frame.iter_slices(rows_at_once)) if rows else [])
        runs.append(Run(version, slices, len(frame) if is_counted else None))
    versions = [run.data_version for run in runs]
    found = [latest(block, versions, KEYS) for block in blocks(runs, KEYS)]
    rows = [row for one in found for row in (without_tombstones(one) if is_major else one).iter_rows(named=True)]
    wanted = [(key, *want[key]) for key in sorted(want) if not (is_major and want[key][1])]
    assert [((row["a"], row["b"]), row["v"], row["_op"]) for row in rows] == wanted


def test_blocks_refuse_what_is_not_sorted() -> None:
    frames = [pl.DataFrame({"a": [1, 2], "b": ["x", "x"]}), pl.DataFrame({"a": [2], "b": ["a"]})]
    with pytest.raises(NotSortedError):
        list(blocks([Run(1, iter(frames))], KEYS))


# -- digests against faults --------------------------------------------------------------------------------------------

Fault = Callable[[pl.DataFrame], pl.DataFrame]


def drop(rows: pl.DataFrame) -> pl.DataFrame:
    return rows[1:]


def double(rows: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([rows[:2], rows[1:]])


def change(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.when(pl.int_range(pl.len()) == 1).then(pl.lit(0.125)).otherwise("v").alias("v"))


def swap_values(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("v").reverse())


@pytest.mark.parametrize("fault", [drop, change, swap_values])
@pytest.mark.parametrize("is_major", [True, False])
def test_a_fault_in_the_merge_shows(
    keyed: Bench, monkeypatch: pytest.MonkeyPatch, fault: Fault, is_major: bool
) -> None:
    monkeypatch.setattr(chunks, "latest", lambda *given: fault(latest(*given)))
    keyed.files = keyed.files if is_major else keyed.files[1:]
    result = keyed.run(is_major=is_major)
    assert result.input != result.output


def test_a_key_that_is_written_twice_shows(keyed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "latest", lambda *given: double(latest(*given)))
    result = keyed.run(is_major=True)
    assert result.input != result.output


def test_a_lost_tombstone_shows(keyed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "latest", lambda *given: without_tombstones(latest(*given)))
    keyed.files = keyed.files[1:]
    result = keyed.run(is_major=False)
    assert result.input != result.output


def swap_ids(rows: pl.DataFrame) -> pl.DataFrame:
    ids = rows["_row_id"].to_list()
    return rows.with_columns(pl.Series("_row_id", [ids[1], ids[0], *ids[2:]]))


@pytest.mark.parametrize("fault", [drop, double, change, swap_ids])
def test_a_fault_in_an_append_compaction_shows(append: Bench, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    right = chunks.without_ids
    monkeypatch.setattr(chunks, "without_ids", lambda rows, hidden: fault(right(rows, hidden)))
    result = append.run(is_major=True)
    assert result.input != result.output


def test_a_row_that_should_be_hidden_shows(append: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "without_ids", lambda *given: given[0])
    result = append.run(is_major=True)
    assert result.input != result.output


def test_a_fault_of_the_writer_shows(keyed: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Output.write
    monkeypatch.setattr(Output, "write", lambda self, rows: right(self, swap_values(rows)))
    result = keyed.run(is_major=True)
    assert result.input != result.output


HASHED = """
import polars as pl
from worker.services.compaction.digests import digest_of, row_hashes
rows = pl.DataFrame({"a": [1, None, 3], "b": ["x", "yy", None], "c": [[{"k": 1.5}], [], None]})
print(digest_of(row_hashes(rows, ["a", "b", "c"])).to_bytes().hex())
"""


def test_digests_are_the_same_in_every_process() -> None:
    rows = pl.DataFrame({"a": [1, None, 3], "b": ["x", "yy", None], "c": [[{"k": 1.5}], [], None]})
    here = digest_of(row_hashes(rows, ["a", "b", "c"])).to_bytes().hex()
    there = subprocess.run([sys.executable, "-c", HASHED], check=True, capture_output=True, text=True)
    assert there.stdout.strip() == here


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(0, 20))
def test_digests_of_parts_add_up_in_any_order(numbers: list[int], cut: int) -> None:
    whole = digest_of(pl.Series(numbers, dtype=pl.UInt64))
    first, rest = (digest_of(pl.Series(part[::-1], dtype=pl.UInt64)) for part in (numbers[:cut], numbers[cut:]))
    assert first + rest == rest + first == whole
    assert whole - rest == first
    assert whole - whole == Digest()


# -- shapes ------------------------------------------------------------------------------------------------------------


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={ARROW_ID: str(field_id).encode()})


def test_columns_and_fields_are_found_by_their_ids() -> None:
    old = pa.schema(
        [
            with_id("n", pa.int32(), 1),
            with_id("s", pa.struct([with_id("x", pa.int32(), 3), with_id("y", pa.string(), 4)]), 2),
            with_id("l", pa.list_(pa.struct([with_id("x", pa.int32(), 6)])), 5),
        ]
    )
    rows = [{"n": 1, "s": {"x": 2, "y": "y"}, "l": [{"x": 7}, None]}, {"n": None, "s": None, "l": None}]
    new = pa.schema(
        [
            with_id("added", pa.string(), 9),
            with_id("s", pa.struct([with_id("y", pa.int64(), 3), with_id("z", pa.string(), 8)]), 2),
            with_id("l", pa.list_(pa.struct([with_id("renamed", pa.int64(), 6)])), 5),
            with_id("m", pa.int64(), 1),
        ]
    )
    table = pa.Table.from_pylist(rows, schema=old)
    for part in (table, table.slice(1), table.slice(0, 1)):
        want = [
            {"added": None, "s": {"y": 2, "z": None}, "l": [{"renamed": 7}, None], "m": 1},
            {"added": None, "s": None, "l": None, "m": None},
        ]
        found = in_shape(part, new).to_pylist()
        assert found == [want[rows.index(row)] for row in part.to_pylist()]


def test_a_curve_keeps_neighbours_together() -> None:
    top = (1 << BITS_A_COLUMN) - 1
    ranks: Sequence[Any] = [np.array([0, 1, 0, 1, top]), np.array([0, 0, 1, 1, top])]
    assert interleaved(ranks).tolist() == [0, 2, 1, 3, (1 << 2 * BITS_A_COLUMN) - 1]
    bounds = rank_bounds([pl.Series(["b", None, "a", "c"])])
    assert bounds.to_list() == ["a", "b", "c"]
