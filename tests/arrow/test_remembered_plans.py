"""Plans that the service remembers are those that it would make anew, whatever was done to the table meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from laketx import Lake, Table, connect
from metaservice.service.read.plan_caches import NOTHING, PIECE_BYTES, AnswerMemory
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import common_pb2
from worker.arrow.scan.inlined_rows import content_of
from worker.files.arrow_types import arrow_schema

STEPS = 80
WORK = {"append": 12, "append before": 3, "delete": 3, "overwrite": 1, "compact": 1, "restore": 1, "alter": 1}
FORMS = {"plain": {}, "partitioned": {"partition_by": ["p"]}, "keyed": {"primary_key": ["id"], "buckets": 4}}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("remembered")) as made:
        yield made


def entries(table: Table, *, version: int | None = None, anew: bool = False) -> list[bytes]:
    """A plan's entries, with their rows. One that explains itself is made anew."""
    parts = table.lake.client.plan_scan(
        table.table_id, version=version, with_rows=True, without_stats=True, explain=anew
    )
    return [entry.SerializeToString(deterministic=True) for part in parts for entry in part.entries]


def append_before(table: Table, number: int) -> None:
    """A row whose entry comes before those of the last seconds: its transaction is older."""
    txn_id = uuid7(time.time_ns() // 1_000_000 - 20_000)
    content = content_of(pa.table({"id": [number], "p": [0]}).cast(arrow_schema(table.meta)))
    file = common_pb2.DataFile(path=f"{txn_id}/0/part-0.arrow", rows=1, bytes=len(content), content=content)
    file.kind, file.schema_version = common_pb2.FILE_KIND_INLINED, table.meta.schema_version
    file.partition.SetInParent()
    if table.meta.partition_columns:
        file.partition.values.add(column="p", value=common_pb2.Value(integer=0))
    table.lake.client.append(table.table_id, [file], txn_id=txn_id, schema_version=table.meta.schema_version)


@pytest.mark.parametrize("form", FORMS)
def test_remembered_plans_are_those_made_anew(lake: Lake, form: str) -> None:
    chance = random.Random(7)
    unattended = {"compaction.enabled": "false"}
    table = lake.create_table(f"history_{form}", "id bigint, p int", properties=unattended, **FORMS[form])  # type: ignore[arg-type]
    rows: dict[int, set[int]] = {0: set()}  # by version
    shown: dict[int, list[bytes]] = {}
    for number in range(STEPS):
        [step] = chance.choices(list(WORK), list(WORK.values()))
        there = set(rows[max(rows)])
        if step == "append before" and form != "keyed":
            append_before(table, number)
            there.add(number)
        elif step == "delete" and there:
            gone = chance.choice(sorted(there))
            table.delete(f"id = {gone}")
            there.discard(gone)
        elif step == "overwrite":
            table.overwrite([{"id": number, "p": 0}])
            there = {number}
        elif step == "compact":
            table.compact("major")
        elif step == "restore":
            version = chance.choice(sorted(rows))
            table.restore(version=version)
            there = set(rows[version])
        elif step == "alter":
            table.set_properties(**{"user.note": str(number)})
        else:
            (table.upsert if form == "keyed" else table.append)([{"id": number, "p": number % 3}])
            there.add(number)
        version = table.resolve()
        rows[version] = there
        if chance.random() < 0.7:
            shown[version] = entries(table)
            assert shown[version] == entries(table, anew=True), (number, step)
            assert sorted(table.to_arrow().column("id").to_pylist()) == sorted(there), (number, step)
    for version, found in shown.items():
        assert sorted(entries(table, version=version)) == sorted(found), version


def test_what_is_remembered_is_bounded() -> None:
    memory = AnswerMemory(bytes_max=10)
    memory.keep((b"t", 1), NOTHING.extended(1, b"k", [b"four"]))
    memory.keep((b"t", 2), NOTHING.extended(1, b"k", [b"more than ten"]))
    assert (memory.recall((b"t", 1)) is not None, memory.recall((b"t", 2))) == (True, None)
    memory.keep((b"u", 1), NOTHING.extended(1, b"k", [b"seven b"]))
    assert memory.recall((b"t", 1)) is None
    newer = NOTHING.extended(3, b"k", [b"a"])
    memory.keep((b"u", 1), newer)
    memory.keep((b"u", 1), NOTHING.extended(2, b"k", [b"b"]))
    assert memory.recall((b"u", 1)) == newer, "a reader of an older version takes nothing back"


def test_pieces_are_the_entries_in_order() -> None:
    found, wanted = NOTHING, b""
    for version in range(1, 30):
        added = [bytes([version]) * 3_001 for _ in range(version)]
        found, wanted = found.extended(version, b"", added), wanted + b"".join(added)
        assert b"".join(found.pieces) == wanted
        assert max(map(len, found.pieces)) <= PIECE_BYTES
    assert len(found.pieces) < 2 * len(wanted) / PIECE_BYTES
    huge = found.extended(30, b"", [bytes(2 * PIECE_BYTES)])
    assert huge.pieces[-1] == bytes(2 * PIECE_BYTES)
