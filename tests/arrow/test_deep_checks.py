"""`laketx fsck --deep`: sound tables have no findings; files that were swapped, damaged or lost from an index do."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from laketx import Lake, Table, connect
from laketx.input_rows import arrow_rows
from metaservice.cli import command_line
from protos.laketx.v1 import common_pb2
from worker.arrow.scan.file_rows import InputFile, read_tables
from worker.arrow.scan.plans import ScannedFile, WrittenSchemas, entries_of
from worker.arrow.write.input_rows import fitted
from worker.arrow.write.staged_rows import with_op, write_keyed
from worker.base.schema import UPSERT
from worker.commit.transaction import run_writes
from worker.commit.writes import Write
from worker.files.arrow_types import arrow_schema
from worker.files.key_index import KeyIndex
from worker.files.key_layer import Images
from worker.services.fsck import Finding, Fsck
from worker.services.key_indexes import images_of

TYPES = (
    "id int, day date, b boolean, i smallint, l bigint, f float, d double, m decimal(9, 2), w decimal(30, 4), "
    "s string, x binary, t timestamp, u timestamp_ntz, a array<int>"
)
NOON = datetime(2026, 11, 27, 12, 0, 0, 5, UTC)
FIRST: dict[str, Any] = {"id": 1, "day": date(1500, 1, 1), "b": True, "i": -3, "l": 1 << 60, "f": float("nan")}
FIRST |= {"d": -0.0, "m": Decimal("-1.50"), "w": Decimal("1234567890.5"), "s": "é" * 300, "x": b"\xff" * 300}
FIRST |= {"t": NOON, "u": NOON.replace(tzinfo=None), "a": [1, None]}
ROWS: list[dict[str, Any]] = [
    FIRST,
    {"id": 2, "day": None, "f": 1.5, "d": float("inf"), "s": "", "x": b"", "m": Decimal("7.00")},
    {"id": 3, "day": date(2026, 11, 27), "d": float("nan"), "s": "z", "t": datetime(1677, 1, 1, tzinfo=UTC), "l": -1},
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("deep")) as made:
        yield made


def look(lake: Lake, table: Table, *, every: bool = False) -> list[Finding]:
    return list(Fsck(lake.client, lake.warehouse, table.refresh().meta, all_versions=every, deep=True).run())


def words(findings: Sequence[Finding]) -> set[str]:
    return {one.word for one in findings}


@pytest.mark.parametrize("inline_rows", [0, pytest.param(1_000, marks=pytest.mark.long)])
def test_sound_tables_of_every_layout_have_no_findings(lake: Lake, inline_rows: int) -> None:
    inline = {"write.inline.rows": str(inline_rows)}
    layouts: dict[str, dict[str, Any]] = {
        "appended": {"partition_by": ["day"]},
        "keyed": {"primary_key": ["id"], "buckets": 2},
        "within": {"primary_key": ["id"], "partition_by": ["day"], "key_scope": "partition", "buckets": 2},
        "across": {"primary_key": ["id"], "partition_by": ["day"], "key_scope": "table", "buckets": 2},
    }
    for name, layout in layouts.items():
        table = lake.create_table(f"sound_{inline_rows}.{name}", TYPES, properties=inline, **layout)
        for rows in (ROWS, [{**row, "id": row["id"] + 3} for row in ROWS]):
            table.upsert(rows) if "primary_key" in layout else table.append(rows)
        table.update({"l": "l + 1"}, where="id < 3")
        table.compact("minor")
        table.delete("id = 2")
        table.add_columns("added int")
        table.widen_column("i", "int")
        table.rename_column("l", "long")
        table.update({"added": 7, "i": 1 << 20}, where="id = 4")
        table.compact("major")
        table.delete("id = 3")
        assert look(lake, table, every=True) == []
    partial = lake.create_table(
        f"sound_{inline_rows}.partial",
        "id int, a int, b string",
        primary_key=["id"],
        buckets=1,
        properties={**inline, "merge.engine": "partial"},
    )
    partial.upsert([{"id": 1, "a": 1}, {"id": 2, "b": "x"}])
    partial.compact("minor")
    partial.update({"a": 9}, where="id = 2")
    assert look(lake, partial, every=True) == []


def on_storage(lake: Lake, table: Table) -> dict[str, Path]:
    """The files of the newest version, by the paths that the metadata has."""
    entries = lake.client.list_files(table.table_id)
    return {one.file.path: Path(lake.warehouse) / table.table_id / one.file.path for one in entries}


def test_a_file_that_was_swapped_is_found_and_so_is_one_that_cannot_be_decoded(
    lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    table = lake.create_table(
        "damage.swapped",
        "id bigint, day string, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=3,
        properties={"write.inline.rows": "0"},
    )
    for key in range(8):
        table.upsert([{"id": key, "day": "ab"[key % 2], "n": 100 + key}])
    files = on_storage(lake, table)
    assert look(lake, table) == []
    same_size = (pair for pair in combinations(files, 2) if len({files[one].stat().st_size for one in pair}) == 1)
    one, other = next(same_size)
    first, second = files[one].read_bytes(), files[other].read_bytes()
    files[one].write_bytes(second)
    files[other].write_bytes(first)
    found = look(lake, table)
    assert {each.path for each in found} == {one, other}
    assert "STATS_WRONG" in words(found)
    assert words(list(Fsck(lake.client, lake.warehouse, table.meta).run())) == set(), "whole files, as many rows"
    capfd.readouterr()
    assert command_line.run(("-o", "json", "fsck", table.name, "--deep"), {"LAKETX_FOLDER": lake.warehouse}) == 7
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["finding"] for line in lines[:-1]] == [each.word for each in found]
    assert lines[-1] == {"files": 8, "rows": 8, "findings": len(found), "quarantined": 0}
    files[one].write_bytes(first)
    files[other].write_bytes(second[:4] + bytes(40) + second[44:])
    assert words(look(lake, table)) == {"ROWS_UNREADABLE"}


def test_a_value_that_changed_in_storage_is_found_and_never_written_anew(lake: Lake) -> None:
    """Another value that the file could have: only the checksum of its page tells."""
    rows, properties = 5_000, {"write.inline.rows": "0", "write.compression": "uncompressed"}
    table = lake.create_table("damage.value", "n double", properties=properties)
    for _ in range(2):
        table.append(pa.table({"n": np.arange(rows) / 8}))
    [changed, *_] = on_storage(lake, table).values()
    content = changed.read_bytes()
    assert content.count(struct.pack("<d", 5.125)) == 1
    changed.write_bytes(content.replace(struct.pack("<d", 5.125), struct.pack("<d", 5.25)))
    assert table.count(where="n = 5.25") == 3, "a read compares no checksums"
    [finding] = look(lake, table)
    assert (finding.word, "checksum" in str(finding.facts["error"])) == ("ROWS_UNREADABLE", True)
    file = InputFile(str(changed), data_version=1, rows=rows, bytes=len(content))
    for memory_bytes in (1 << 10, 1 << 30):  # in parts, and at once
        with pytest.raises(OSError, match="checksum"):
            list(read_tables(file, arrow_schema(table.meta), memory_bytes, checks_pages=True))
    head = table.refresh().meta.head_version
    with pytest.raises(OSError, match=f"{re.escape(changed.name)}.*checksum"):
        table.compact("minor")
    assert table.refresh().meta.head_version == head
    changed.write_bytes(content)
    assert look(lake, table) == []
    assert table.compact("minor") is not None
    assert table.count(where="n = 5.25") == 2


def test_a_key_that_a_partition_has_twice_is_found(lake: Lake) -> None:
    table = lake.create_table(
        "damage.twice",
        "id bigint, day string, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="partition",
        buckets=1,
    )
    table.upsert([{"id": 1, "day": "a", "n": 1}, {"id": 1, "day": "b", "n": 1}])
    assert look(lake, table) == []
    rows = fitted(arrow_rows([{"id": 2, "day": "c", "n": n} for n in (1, 2)], table.meta), table.meta)
    careless = Write(
        table.refresh().view,
        common_pb2.OPERATION_INSERT,
        lambda stage: write_keyed(stage, with_op(rows, UPSERT), is_base=False),
    )
    run_writes(lake, lambda: [careless])
    assert [str(one) for one in look(lake, table)] == ["KEY_TWICE id=2 version=2 rows=2"]


def test_an_index_that_lost_an_entry_is_found(lake: Lake) -> None:
    table = lake.create_table(
        "damage.index",
        "id bigint, day string, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=1,
        properties={"write.inline.rows": "0"},
    )
    table.upsert([{"id": key, "day": "a", "n": 1} for key in range(9)])
    view = table.refresh().view
    [entry] = entries_of(view, view.meta.head_version)
    images = images_of(view, WrittenSchemas(view), ScannedFile(entry.file, entry.data_version))
    order = np.argsort(images.hashes, kind="stable")
    index, files = KeyIndex(view.folder, view.meta), {entry.file.path: entry.file.partition.SerializeToString()}
    whole = index.write(0, files, Images(images.hashes[order], images.numbers[order]))
    assert look(lake, table) == []
    index.delete(whole)
    index.write(0, files, Images(images.hashes[order][1:], images.numbers[order][1:]))
    assert words(look(lake, table)) == {"KEY_INDEX_WRONG"}
