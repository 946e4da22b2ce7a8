"""The parts of Iceberg's files, byte by byte."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from laketx import InputError
from metaservice.shared.column_types import read_type
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.iceberg.locations import location_of
from worker.iceberg.metadata import manifests
from worker.iceberg.metadata.avro_bytes import encoder
from worker.iceberg.metadata.avro_files import avro_name
from worker.iceberg.metadata.deletes import puffin, vector
from worker.iceberg.metadata.facts import MadeFile, MadeSnapshot, RemovedFiles, ShownFile, SnapshotFacts, TableFacts
from worker.iceberg.metadata.manifests import Manifests
from worker.iceberg.metadata.ranges import cover, merged_cover, parts, smallest_with
from worker.iceberg.metadata.table_metadata import table_metadata
from worker.iceberg.metadata.values import bound_of, decimal_bytes, plain_of


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        ("tinyint", common_pb2.Value(integer=-1), b"\xff\xff\xff\xff"),
        ("bigint", common_pb2.Value(integer=258), b"\x02\x01\0\0\0\0\0\0"),
        ("boolean", common_pb2.Value(boolean=True), b"\x01"),
        ("double", common_pb2.Value(real=1.0), b"\0\0\0\0\0\0\xf0\x3f"),
        ("string", common_pb2.Value(text="ü"), "ü".encode()),
        ("binary", common_pb2.Value(binary=b"\0\1"), b"\0\1"),
        ("date", common_pb2.Value(date=1), b"\1\0\0\0"),
        ("timestamp_ntz", common_pb2.Value(timestamp_us=1), b"\1\0\0\0\0\0\0\0"),
        ("decimal(10,2)", common_pb2.Value(decimal="-1.28"), b"\x80"),
        ("decimal(10,2)", common_pb2.Value(decimal="1.28"), b"\x00\x80"),
        ("decimal(38,10)", common_pb2.Value(decimal="0.5"), (5 * 10**9).to_bytes(5, "big")),
    ],
)
def test_bounds_in_bytes(kind: str, value: common_pb2.Value, raw: bytes) -> None:
    column = read_type(kind)
    assert bound_of(column)(plain_of(column)(value)) == raw


def test_a_value_of_another_type_is_none() -> None:
    assert plain_of(read_type("bigint"))(common_pb2.Value(text="1")) is None
    assert plain_of(read_type("decimal(10,2)"))(common_pb2.Value(decimal="1.234")) is None
    assert plain_of(read_type("date"))(common_pb2.Value(null=common_pb2.NULL_VALUE_UNSPECIFIED)) is None


def test_decimals_of_partitions_have_a_fixed_length() -> None:
    assert [decimal_bytes(digits) for digits in (1, 9, 10, 18, 38)] == [1, 4, 5, 8, 16]
    assert encoder(read_type("decimal(10,2)"))(-1) == b"\xff" * 5


def test_names_are_those_of_avro() -> None:
    assert [avro_name(name) for name in ("day", "1st", "a b", "ü")] == ["day", "_1st", "a_x20b", "_xFC"]


def test_a_deletion_vector_is_framed() -> None:
    blob = vector(BitMap64([1, 7, 1 << 33]))
    length, magic = struct.unpack(">I", blob[:4])[0], blob[4:8]
    assert (length, magic) == (len(blob) - 8, b"\xd1\xd3\x39\x64")
    assert zlib.crc32(blob[4:-4]) == struct.unpack(">I", blob[-4:])[0]
    assert list(BitMap64.deserialize(blob[8:-4])) == [1, 7, 1 << 33]


def shown(number: int, hidden: tuple[int, ...] = ()) -> ShownFile:
    file = common_pb2.DataFile(path=f"t/{number}", rows=10, bytes=100, first_row_id=10 * number)
    entry = common_pb2.LiveEntry(file=file, data_version=number, added_version=number)
    return ShownFile(entry, f"file:///t/{number}", BitMap64(hidden))


def test_a_puffin_file_lists_its_vectors() -> None:
    content, places = puffin([shown(1, (0, 3)), shown(2, (4,))])
    size = struct.unpack("<I", content[-12:-8])[0]
    blobs = json.loads(content[-12 - size : -12])["blobs"]
    assert (content[:4], content[-4:], content[-16 - size : -12 - size]) == (b"PFA1",) * 3
    assert [one["properties"]["cardinality"] for one in blobs] == ["2", "1"]
    for place, hidden in zip(places, ([0, 3], [4]), strict=True):
        blob = content[place.offset : place.offset + place.length]
        assert list(BitMap64.deserialize(blob[8:-4])) == hidden


class Store:
    """Generated files by name, and how often each was put."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.puts: list[str] = []

    def put(self, made: MadeFile) -> None:
        assert self.files.get(made.name, made.content) == made.content
        self.files[made.name] = made.content
        self.puts.append(made.name)

    def fresh(self) -> list[str]:
        """The kinds of files put since the last call."""
        found, self.puts = [one.rpartition("/")[2].split("-")[0] for one in self.puts], []
        return found


SCHEMA = catalog_pb2.SchemaVersion(columns=[catalog_pb2.Column(name="id", type="bigint", column_id=1)])
TABLE = TableFacts(catalog_pb2.Table(table_id="t"), "file:///t/_iceberg")


def snapshot_of(
    made: Manifests, version: int, files: Iterable[ShownFile], removed: RemovedFiles | None = None
) -> MadeSnapshot:
    by_version: dict[int, list[ShownFile]] = {}
    for one in files:
        by_version.setdefault(one.entry.added_version, []).append(one)
    commit = read_pb2.Version(version=version, operation=common_pb2.OPERATION_INSERT)
    return made.snapshot(SnapshotFacts(commit, SCHEMA, by_version, removed=removed))


def manifests_in(store: Store, made: MadeSnapshot) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(store.files[made.manifest_list])))


def entries_in(store: Store, made: MadeSnapshot, content: int = 0) -> list[Any]:
    found: list[Any] = []
    for one in manifests_in(store, made):
        name = one["manifest_path"].removeprefix("file:///t/_iceberg/")
        if one["content"] == content:
            found += fastavro.reader(io.BytesIO(store.files[name]))
    return found


@pytest.mark.parametrize(
    ("merged_max", "files_of_manifests", "made_at_most"),
    [(0, [15, 16, 4, 4], 39), (7, [15, 16, 4, 4], 48), (8, [15, 16, 8], 48), (39, [39], 39)],
)
def test_a_commit_makes_one_small_manifest(
    monkeypatch: pytest.MonkeyPatch, merged_max: int, files_of_manifests: list[int], made_at_most: int
) -> None:
    """And now and then those of the ranges that have become too many for the newest one."""
    monkeypatch.setattr(manifests, "MERGED_BOUNDS_MAX", merged_max)
    store = Store()
    made = Manifests(TABLE, store.put)
    files = [shown(number) for number in range(1, 40)]
    snapshots = []
    for version in range(1, 40):
        snapshots.append(snapshot_of(made, version, files[:version]))
        assert len(manifests_in(store, snapshots[-1])) <= 8
    assert store.fresh().count("data") <= made_at_most
    last = snapshots[-1]
    held = [one["added_files_count"] + one["existing_files_count"] for one in manifests_in(store, last)]
    assert held == files_of_manifests
    assert [one["snapshot_id"] for one in entries_in(store, last) if one["status"] == 1][-1] == 40
    assert sorted(one["data_file"]["first_row_id"] for one in entries_in(store, last)) == [
        one * 10 for one in range(1, 40)
    ]
    other = Store()
    again = snapshot_of(Manifests(TABLE, other.put), 39, files)
    assert (again, other.files.items() <= store.files.items()) == (last, True)


def test_a_snapshot_of_few_files_has_a_manifest_of_files_and_one_of_vectors() -> None:
    """Commits that add no files leave the files' manifest as it is."""
    store = Store()
    made = Manifests(TABLE, store.put)
    files = [shown(number, (1,)) for number in range(1, 8)]
    before = manifests_in(store, snapshot_of(made, 7, files))
    files[2] = ShownFile(files[2].entry, files[2].path, BitMap64([1, 2]))
    after = manifests_in(store, snapshot_of(made, 30, files))
    assert [(one["content"], one["added_files_count"] + one["existing_files_count"]) for one in after] == [
        (0, 7),
        (1, 7),
    ]
    files_before, vectors_before = (one["manifest_path"] for one in before)
    files_after, vectors_after = (one["manifest_path"] for one in after)
    assert (files_before == files_after, vectors_before == vectors_after) == (True, False)


def test_only_changed_vectors_are_written() -> None:
    store = Store()
    made = Manifests(TABLE, store.put)
    files = [shown(1, (0,)), shown(2, (1,)), shown(3)]
    snapshot_of(made, 3, files)
    assert sorted(store.fresh()) == ["data", "deletes", "deletes", "snap"]
    files[1] = ShownFile(files[1].entry, files[1].path, BitMap64([1, 2]))
    last = snapshot_of(made, 4, files)
    assert sorted(store.fresh()) == ["deletes", "deletes", "snap"]
    found = entries_in(store, last, content=1)
    assert [one["data_file"]["record_count"] for one in found] == [1, 2]
    assert len({one["data_file"]["file_path"] for one in found}) == 2
    for one in found:
        place = one["data_file"]
        content = store.files[place["file_path"].removeprefix("file:///t/_iceberg/")]
        blob = content[place["content_offset"] :][: place["content_size_in_bytes"]]
        assert len(BitMap64.deserialize(blob[8:-4])) == place["record_count"]


def test_what_went_is_in_manifests_of_its_own() -> None:
    store = Store()
    made = Manifests(TABLE, store.put)
    files = [shown(1, (0,)), shown(2, (1,)), shown(3)]
    first = snapshot_of(made, 3, files)
    vectors = {one["data_file"]["content_offset"] for one in entries_in(store, first, content=1)}
    now = replace(files[1], hidden=BitMap64([1, 2]), hidden_version=4)
    last = snapshot_of(made, 4, [now, files[2]], RemovedFiles([files[0]], [files[1]]))
    gone = [[one for one in entries_in(store, last, content) if one["status"] == 2] for content in (0, 1)]
    assert [one["data_file"]["file_path"] for one in gone[0]] == [files[0].path]
    assert [one["data_file"]["referenced_data_file"] for one in gone[1]] == [files[0].path, files[1].path]
    assert {one["data_file"]["content_offset"] for one in gone[1]} == vectors
    numbers = [
        [(one["snapshot_id"], one["sequence_number"], one["file_sequence_number"]) for one in each] for each in gone
    ]
    assert numbers == [[(5, 2, 2)], [(5, 2, 2), (5, 3, 3)]]
    counts = ("added_files_count", "existing_files_count", "deleted_files_count", "deleted_rows_count")
    listed = [[one[name] for name in counts] for one in manifests_in(store, last) if one["deleted_files_count"]]
    assert listed == [[0, 0, 1, 10], [0, 0, 2, 2]]
    assert (last.totals.files, last.totals.hidden) == (2, 2)
    shown_as = [one["summary"]["operation"] for one in table_metadata(TABLE, [SCHEMA], [first, last], [])["snapshots"]]
    assert shown_as == ["append", "overwrite"]


def test_many_files_of_a_commit_have_several_manifests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "ENTRIES_MAX", 8)
    store = Store()
    made = Manifests(TABLE, store.put)
    files = [replace(shown(1), path=f"file:///t/{at}") for at in range(50)]
    whole = snapshot_of(made, 1, files)
    first = store.fresh()
    assert first.count("data") > 6
    assert sum(one["added_files_count"] for one in manifests_in(store, whole)) == 50
    less = snapshot_of(made, 2, files[:20] + files[21:])
    assert store.fresh().count("data") <= 2
    assert len(entries_in(store, less)) == 49


@given(end=st.integers(0, 5_000))
def test_ranges_cover_all_versions_once(end: int) -> None:
    found = list(cover(end))
    assert list(chain.from_iterable(found)) == list(range(end))
    assert all(one.start % len(one) == 0 for one in found)
    fresh = set(cover(end + 1)) - set(found)
    assert len(fresh) == 1
    for one in fresh:
        assert len(one) == 1 or list(chain.from_iterable(parts(one))) == list(one)


@given(ends=st.lists(st.integers(0, 5_000), min_size=2, max_size=2), width=st.sampled_from([4, 32]))
def test_two_versions_share_a_range_from_the_end_of_the_smallest_one_on(ends: list[int], width: int) -> None:
    first, last = sorted(ends)
    found = smallest_with(first, last, width)

    def share(end: int) -> bool:
        return any(first in one and last in one for one in cover(end, width))

    assert share(found.stop)
    assert first == last or not share(found.stop - 1)
    assert share(found.stop + len(found) // 2)


@given(end=st.integers(0, 5_000), most=st.integers(0, 100), a_version=st.integers(1, 3))
def test_the_newest_ranges_with_few_files_are_one(end: int, most: int, a_version: int) -> None:
    found = merged_cover(end, lambda span: a_version * len(span), most)
    assert list(chain.from_iterable(found)) == list(range(end))
    whole = list(cover(end))
    if len(found) < len(whole):
        assert a_version * len(found[-1]) <= most
    assert found[:-1] == whole[: len(found) - 1]
    before = whole[len(found) - 2 :] if len(found) > 1 else []
    assert not before or a_version * sum(map(len, before)) > most


def test_locations_are_uris_without_escapes() -> None:
    assert location_of("s3a://b/t x") == "s3://b/t x"
    assert location_of("/t/a") == location_of("file:/t/a") == "file:///t/a"
    with pytest.raises(InputError) as caught:
        location_of("/t/a#b")
    assert caught.value.reason == "ICEBERG_PATH"
