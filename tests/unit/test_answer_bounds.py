"""Answers are cut by bytes: rooms, parts, tasks whose groups don't fit, refusals; and what the client sends."""

import pytest

from metaservice.client import calling
from metaservice.core import limits
from metaservice.core.compaction.plans import Gain
from metaservice.core.compaction.policy import Options, RowOrder
from metaservice.core.compaction.tasks import Task
from metaservice.core.errors import invalid
from metaservice.core.table.model import Group, Operation
from metaservice.core.table.partitions import Partitioning
from metaservice.rpc.convert import answers, wire_tasks
from metaservice.rpc.convert.paging import FRAME_BYTES, Room, fitting, in_parts
from protos.laketx.v1 import common_pb2, maintenance_pb2, read_pb2
from worker.files.delete_sets import INLINE_BYTES_MAX, TOUCHES_BYTES_MAX, named

GROUPS = 2_000
PLACE = Partitioning((("part", "string"),))


def tags(count: int, size: int) -> list[read_pb2.Tag]:
    return [read_pb2.Tag(name=f"{number:04}", comment="x" * size) for number in range(count)]


def new_task(groups: int) -> Task:
    text = "part=" + "x" * (limits.PARTITION_BYTES_MAX - 5)
    found = tuple(Group(text, bucket, ("a", "b"), rows=2, size_bytes=2) for bucket in range(groups))
    options = Options(1, RowOrder(0), ())
    return Task("id", "table", Operation.MINOR_COMPACT, found, "why", Gain(1, 1, 1), options, 0, 0, 0)


def test_a_room_takes_its_first_item_whatever_its_size() -> None:
    room = Room(10)
    assert room.takes(1_000)
    assert not room.takes(1)


def test_a_room_counts_the_frames_of_items() -> None:
    room = Room(10 * FRAME_BYTES)
    assert [room.takes(0) for _ in range(11)] == [True] * 10 + [False]


def test_a_page_that_is_full_by_bytes_fits_into_an_answer() -> None:
    listed = tags(2_000, 3_000)
    shown = list(fitting(listed))
    assert 0 < len(shown) < len(listed)
    size = read_pb2.ListTagsResponse(tags=shown, next_page_token="x" * 2_048).ByteSize()
    assert limits.ANSWER_BYTES_MAX * 0.98 < size <= limits.ANSWER_BYTES_MAX
    assert len(list(fitting(["x" * 1_000_000] * 9))) == 4


def test_parts_hold_all_items_in_order() -> None:
    listed = tags(3_000, 3_000)
    found = list(in_parts(listed, 1_000))
    assert [tag for part in found for tag in part] == listed
    assert all(len(part) <= 1_000 for part in found)
    assert all(read_pb2.ListTagsResponse(tags=part).ByteSize() <= limits.ANSWER_BYTES_MAX for part in found)
    assert [len(part) for part in in_parts(tags(5, 5 << 20), 1_000)] == [1] * 5


def test_a_task_in_a_list_says_how_many_groups_found_no_room() -> None:
    task = new_task(GROUPS)
    for size in (limits.ANSWER_ITEMS_BYTES_MAX, limits.ANSWER_ITEMS_BYTES_MAX // limits.TASKS_PER_REQUEST_MAX):
        found = wire_tasks.task_message(task, "name", PLACE, size)
        assert found.ByteSize() <= size
        assert len(found.groups) + found.groups_left_out == GROUPS
        assert 0 < found.groups_left_out < GROUPS
    assert wire_tasks.task_message(new_task(3), "name", PLACE).groups_left_out == 0


def test_pages_of_a_task_hold_all_its_groups() -> None:
    task, start, buckets = new_task(GROUPS), 0, []
    while True:
        page, start = wire_tasks.task_page(task, "name", PLACE, {}, start)
        assert maintenance_pb2.GetTaskResponse(task=page).ByteSize() <= limits.ANSWER_BYTES_MAX
        buckets += [group.bucket for group in page.groups]
        if not start:
            break
    assert buckets == list(range(GROUPS))


@pytest.mark.parametrize("letter", ["x", "\u4e2d", "\U0001d535"])
def test_a_refusal_is_as_small_as_grpc_takes_it(letter: str) -> None:
    refusal = invalid("SOME_REASON", letter * 100, **{f"fact{number}": letter * 5_000 for number in range(8)})
    assert answers.status(refusal).ByteSize() <= limits.STATUS_BYTES_MAX
    short = invalid("SOME_REASON", path="a/b")
    assert b"a/b" in answers.status(short).SerializeToString()


def test_a_delete_set_names_no_more_files_than_its_record_holds() -> None:
    assert named({"b", "a"}) == ["a", "b"]
    assert named({f"{number:01000}" for number in range(2_000)}) == []
    assert TOUCHES_BYTES_MAX < limits.ENTRY_BYTES_MAX - INLINE_BYTES_MAX


def test_the_client_cuts_what_it_sends() -> None:
    files = [common_pb2.DataFile(path=str(number), row_order="x" * 100_000) for number in range(100)]
    found = list(calling.in_parts(files, 1_000))
    assert [file for part in found for file in part] == files
    assert len(found) > 3
    assert all(calling.size_of(part) <= calling.PART_BYTES for part in found)
    assert [len(part) for part in calling.in_parts(["a"] * 25, 10)] == [10, 10, 5]
