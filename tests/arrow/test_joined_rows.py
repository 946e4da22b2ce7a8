"""The rows of many small commits come joined, and are the rows that come one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from laketx import Lake, Table, connect
from metaservice.client import uuid7
from metaservice.rpc.convert.joined_rows import joined_entries
from metaservice.service.read.plan_caches import NOTHING, PIECE_BYTES, Answered, AnswerMemory
from metaservice.shared.arrow_streams import join_streams
from protos.laketx.v1 import common_pb2, read_pb2, transaction_pb2
from worker.arrow.scan.inlined_rows import content_of, rows_in
from worker.files.arrow_types import arrow_schema

TEXT = "x" * 500  # so that some hundred commits are several pieces
UNATTENDED = {"compaction.enabled": "false"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("joined")) as made:
        yield made


def append(table: Table, *numbers: int) -> None:
    """A commit a number."""
    requests = []
    for number in numbers:
        txn_id = uuid7()
        rows = pa.table({"id": [number], "p": [number % 3], "s": [TEXT]})
        content = content_of(rows.cast(arrow_schema(table.meta)))
        file = common_pb2.DataFile(path=f"{txn_id}/0/part-0.arrow", rows=1, bytes=len(content), content=content)
        file.kind, file.schema_version = common_pb2.FILE_KIND_INLINED, table.meta.schema_version
        file.partition.SetInParent()
        if table.meta.partition_columns:
            file.partition.values.add(column="p", value=common_pb2.Value(integer=number % 3))
        requests.append(transaction_pb2.AppendRequest(txn_id=txn_id, table_id=table.table_id, files=[file]))
    outcomes = table.lake.client.commit_batch(requests)
    assert all(isinstance(one, common_pb2.Committed) for one in outcomes)


def files(table: Table, version: int | None = None, *, join: bool = True) -> list[common_pb2.DataFile]:
    parts = table.lake.client.plan_scan(
        table.table_id, version=version, without_stats=True, with_rows=True, join_rows=join
    )
    return [entry.file for part in parts for entry in part.entries if entry.HasField("file")]


def ids(found: list[common_pb2.DataFile]) -> list[int]:
    return sorted(one for file in found for one in rows_in(file.content).column("id").to_pylist())


@pytest.mark.parametrize("more", [{}, {"partition_by": ["p"]}], ids=["plain", "partitioned"])
def test_many_commits_come_in_few_files_as_they_go_on(lake: Lake, more: dict[str, list[str]]) -> None:
    table = lake.create_table(f"many_{len(more)}", "id bigint, p int, s string", properties=UNATTENDED, **more)  # type: ignore[arg-type]
    begin = 0
    for count in (1, 2, 300, 1, 1, 700, 3):
        append(table, *range(begin, begin + count))
        begin += count
        plain = files(table, join=False)
        assert len(plain) == begin
        for _ in range(2):  # made, and remembered
            joined = files(table)
            assert ids(joined) == ids(plain) == list(range(begin))
            assert sum(one.rows for one in joined) == begin
            assert len(joined) <= 2 + begin * 1_500 / PIECE_BYTES
            assert sorted(table.to_arrow().column("id").to_pylist()) == list(range(begin))
            assert table.count() == begin
            assert sorted(table.to_arrow(where="id >= 5").column("id").to_pylist()) == list(range(5, begin))
    for version in (1, 3, 303, 305):
        assert ids(files(table, version)) == list(range(version))
        assert table.count(version=version) == version


def test_a_deleted_row_of_an_inlined_file_keeps_files_apart(lake: Lake) -> None:
    table = lake.create_table("deleted", "id bigint, p int, s string", properties=UNATTENDED)
    append(table, *range(300))
    assert len(files(table)) < 10
    table.delete("id = 7")
    assert len(files(table)) == 300
    assert sorted(table.to_arrow().column("id").to_pylist()) == [one for one in range(300) if one != 7]
    append(table, 300)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [one for one in range(301) if one != 7]
    assert table.count() == 300


def test_files_of_other_columns_are_joined_among_themselves(lake: Lake) -> None:
    table = lake.create_table("columns", "id bigint, p int, s string", properties=UNATTENDED)
    append(table, *range(5))
    table.add_columns("note string")
    table = lake.table("columns")
    for number in range(5, 9):
        table.append([{"id": number, "p": 0, "s": "", "note": str(number)}])
    assert sorted(one.rows for one in files(table)) == [4, 5]
    found = {row["id"]: row["note"] for row in table.to_arrow().to_pylist()}
    assert found == {number: str(number) if number >= 5 else None for number in range(9)}


def test_files_of_a_key_are_never_joined(lake: Lake) -> None:
    table = lake.create_table("keyed", "id bigint, s string", primary_key=["id"], properties=UNATTENDED)
    for number in range(4):
        table.upsert([{"id": number % 2, "s": str(number)}])
    assert len(files(table)) == 4
    assert sorted(row["s"] for row in table.to_arrow().to_pylist()) == ["2", "3"]


# -- the parts ---------------------------------------------------------------------------------------------------------


def entry(number: int, **more: object) -> common_pb2.LiveEntry:
    content = content_of(pa.table({"id": [number]}))
    file = common_pb2.DataFile(
        path=f"t/{number}", rows=1, bytes=len(content), inlined=True, first_row_id=number, content=content
    )
    file.MergeFrom(common_pb2.DataFile(**more))  # type: ignore[arg-type]
    return common_pb2.LiveEntry(file=file, data_version=number, added_version=number)


def of(*entries: common_pb2.LiveEntry) -> bytes:
    return read_pb2.PlanScanResponse(entries=entries).SerializeToString()


def test_what_can_not_be_joined_stays_and_keeps_all_facts() -> None:
    on_disk = common_pb2.LiveEntry(file=common_pb2.DataFile(path="t/f", rows=9, first_row_id=90))
    foreign = entry(3, content=b"a stream of another kind")
    entries = of(entry(1), on_disk, foreign, entry(2), entry(4, carries_row_ids=True))
    raw = joined_entries(entries, False)
    assert raw is not None
    found = read_pb2.PlanScanResponse.FromString(raw).entries
    assert [one.file.path for one in found] == ["t/1", "t/f", "t/3", "t/4"]
    assert (found[0].file.rows, found[0].file.first_row_id, found[0].data_version) == (2, 0, 2)
    assert list(found)[1:] == [on_disk, foreign, entry(4, carries_row_ids=True)]
    assert joined_entries(of(entry(1), entry(2, kind=common_pb2.FILE_KIND_DELTA)), False) is None
    assert joined_entries(of(entry(1), common_pb2.LiveEntry(delete_set=common_pb2.DeleteSet(path="d"))), False) is None
    assert joined_entries(b"", True) == b""
    final = joined_entries(entries, True)
    assert final is not None
    batches = pa.ipc.open_stream(read_pb2.PlanScanResponse.FromString(final).entries[0].file.content)
    assert [batch.to_pydict() for batch in batches] == [{"id": [1, 2]}]


def test_streams_without_an_end_are_not_joined() -> None:
    one = content_of(pa.table({"id": [1]}))
    assert join_streams([one, one[:-8]]) is None
    assert join_streams([b"", b""]) is None
    both = join_streams([one, one])
    assert both is not None
    assert rows_in(both).column("id").to_pylist() == [1, 1]


def test_each_piece_is_joined_once_and_the_last_one_each_time() -> None:
    memory, asked = AnswerMemory(bytes_max=10), list[bytes]()

    def join(piece: bytes, is_final: bool) -> bytes | None:
        assert is_final == (piece != b"cc")
        asked.append(piece)
        return None if piece == b"no" else piece[:1]

    known = Answered(1, b"", (b"aa", b"bb", b"cc"))
    assert [memory.joined(known, join) for _ in range(2)] == [[b"a", b"b", b"c"]] * 2
    assert asked == [b"aa", b"bb", b"cc", b"cc"]
    assert memory.joined(Answered(2, b"", (b"aa", b"no", b"cc")), join) is None
    assert memory.joined(NOTHING, join) == []
    for number in range(20):
        assert memory.joined(Answered(3, b"", (bytes([number]) * 2, b"cc")), join) is not None
    asked.clear()
    assert memory.joined(known, join) == [b"a", b"b", b"c"]
    assert asked == [b"aa", b"bb", b"cc"], "what is joined is bounded"
