"""Parts of plans by themselves: runs of idle commits, spans of what was taken out, numbers on the wire."""

from hypothesis import given, settings
from hypothesis import strategies as st

from metaservice.core.table.model import Idle
from metaservice.core.varint import varint
from metaservice.service.read.file_blocks import Seen
from metaservice.service.read.plan_caches import SeenPartition, StatsMemory
from metaservice.store import entry_keys
from protos.laketx.v1 import common_pb2

TABLE = b"t" * 16


def test_a_run_of_idle_commits_points_at_what_came_before_it() -> None:
    first = Idle().after(5)
    assert (first, first.after(6)) == (Idle(5, 4), Idle(6, 4))
    assert first.after(6).after(9) == Idle(9, 8)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3_000), st.integers(1, 3_000), st.integers(0, 6_000), st.sampled_from(["", "p=1", "p=ü"]))
def test_a_span_is_met_by_the_versions_that_it_holds(added: int, held: int, version: int, partition: str) -> None:
    removed = added + held
    key = entry_keys.span_key(TABLE, added, removed, partition, 3, "path")
    assert entry_keys.partition_of(key) == partition
    found = entry_keys.decode_span(key, len(partition.encode()))
    assert found[:2] == (removed, added)
    assert entry_keys.past_of_span(TABLE, partition, removed, found[2]) == entry_keys.past_key(
        TABLE, removed, partition, 3, "path"
    )
    met = [key for start, end in entry_keys.span_ranges(TABLE, partition, version, removed) if start <= key < end]
    if added <= version < removed:
        assert met == [key]
    if removed <= version:
        assert not met


@given(st.integers(0, 2**63 - 1))
def test_numbers_are_written_as_protobuf_does(number: int) -> None:
    written = common_pb2.LiveEntry(added_version=number).SerializeToString()
    assert written == (b"\x20" + varint(number) if number else b"")


def test_statistics_are_remembered_while_there_is_room() -> None:
    memory = StatsMemory(files_max=3)
    memory.keep((b"t", "old", None), snapshot(files=2))
    memory.keep((b"t", "large", None), snapshot(files=4))
    assert memory.recall((b"t", "large", None)) is None
    assert memory.recall((b"t", "old", None)) is not None  # what never fits pushes nothing out
    memory.keep((b"t", "new", None), snapshot(files=2))
    assert memory.recall((b"t", "old", None)) is None
    memory.keep((b"t", "new", None), snapshot(files=1, version=6))
    assert memory.recall((b"t", "new", None)) == snapshot(files=2)  # a reader of an older version takes nothing back


def snapshot(*, files: int, version: int = 7) -> SeenPartition:
    seen = Seen(b"", 0, is_delete_set=False, row=())
    return SeenPartition(version, {(0, str(file)): seen for file in range(files)})
