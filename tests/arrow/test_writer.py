"""Single rows from threads and coroutines, in groups: each is written once, and its future tells the truth."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from laketx import InputError, Lake, connect
from laketx.pending_rows import Row
from laketx.writer import TableWriter
from metaservice.client import BlockedError
from worker.commit.writes import Commit

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("writer")) as made:
        yield made


@pytest.mark.parametrize("flush_rows", [1, 7, 1_000])
def test_threads_share_a_writer(lake: Lake, flush_rows: int) -> None:
    table = lake.create_table(f"threads.of_{flush_rows}", "id bigint, thread int")
    with table.writer(flush_rows=flush_rows, flush_ms=5) as writer, ThreadPoolExecutor(8) as pool:

        def send(thread: int) -> list[Commit | None]:
            return [writer.write({"id": at, "thread": thread}).result() for at in range(12)]

        commits = [one for found in pool.map(send, range(8)) for one in found if one is not None]
    rows = table.to_arrow().to_pylist()
    assert sorted((row["thread"], row["id"]) for row in rows) == [
        (thread, at) for thread in range(8) for at in range(12)
    ]
    assert len(commits) == 96
    assert {one.version for one in commits} == set(range(1, table.refresh().meta.head_version + 1))
    assert all(one.rows_staged <= flush_rows for one in commits)


def test_a_row_is_there_when_its_future_is_done(lake: Lake) -> None:
    table = lake.create_table("writer.durable", "id bigint")
    with table.writer() as writer:
        commit = writer.write({"id": 1}).result()
        assert commit is not None
        assert table.to_arrow(version=commit.version).to_pylist() == [{"id": 1}]


def test_of_a_key_the_last_row_counts(lake: Lake) -> None:
    table = lake.create_table(
        "writer.keyed", "day int, id bigint, v string", primary_key=["day", "id"], partition_by=["day"]
    )
    with table.writer(flush_ms=10_000) as writer:
        for at in range(10):
            writer.write({"day": 1, "id": at % 3, "v": str(at)})
        writer.write({"day": 2, "id": 0, "v": "another partition"})
        writer.flush()
        assert table.refresh().meta.head_version == 1
        writer.write({"day": 1, "id": 0, "v": "later"})
    rows = sorted((row["day"], row["id"], row["v"]) for row in table.to_arrow().to_pylist())
    assert rows == [(1, 0, "later"), (1, 1, "7"), (1, 2, "8"), (2, 0, "another partition")]


def test_coroutines_await_rows(lake: Lake) -> None:
    table = lake.create_table("writer.coroutines", "id bigint")

    async def write_all() -> list[Commit | None]:
        with table.writer(flush_rows=10, rows_max=10) as writer:
            return await asyncio.gather(*(writer.write_async({"id": at}) for at in range(100)))

    commits = asyncio.run(write_all())
    assert sorted(table.to_arrow().column("id").to_pylist()) == list(range(100))
    assert all(one is not None and one.version >= 1 for one in commits)


def test_a_wrong_row_fails_alone(lake: Lake) -> None:
    table = lake.create_table("writer.wrong", "id bigint not null")
    with table.writer(flush_ms=10_000) as writer:
        futures = [writer.write({"id": at}) for at in range(20)]
        wrong = [writer.write(row) for row in ({"id": "text"}, {"id": None}, {"other": 1})]
        futures += [writer.write({"id": at}) for at in range(20, 40)]
    assert all(one.result() is not None for one in futures)
    assert [_reason(one.exception()) for one in wrong] == ["SCHEMA_MISMATCH", "NULL_NOT_ALLOWED", "COLUMN_UNKNOWN"]
    assert sorted(table.to_arrow().column("id").to_pylist()) == list(range(40))


def test_with_numbers_a_wrong_row_stops_the_writer(lake: Lake) -> None:
    table = lake.create_table("writer.stopped", "id bigint")
    writer = table.writer(app_id="a", flush_rows=2, flush_ms=10_000)
    futures = [writer.write({"id": at}, sequence=at) for at in (0, 1)]
    futures[1].result()
    wrong = writer.write({"id": "text"}, sequence=2)
    after = writer.write({"id": 3}, sequence=3)
    assert [_reason(one.exception()) for one in (wrong, after)] == ["SCHEMA_MISMATCH"] * 2
    with pytest.raises(InputError, match="WRITER_BROKEN"):
        writer.write({"id": 4}, sequence=4).result()
    with pytest.raises(InputError, match="SCHEMA_MISMATCH"):
        writer.close()
    with table.writer(app_id="a") as again:
        assert again.resume_after == 1
        again.write({"id": 2}, sequence=2)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [0, 1, 2]


def test_what_was_written_before_is_left_out(lake: Lake) -> None:
    table = lake.create_table("writer.again", "id bigint")
    assert table.app_version("a") is None
    for until in (4, 9):
        with table.writer(app_id="a", flush_rows=3) as writer:
            found = [writer.write({"id": at}, sequence=at).result() for at in range(until)]
        assert [one is None for one in found] == [at < (4 if until == 9 else 0) for at in range(until)]
    assert table.app_version("a") == 8
    assert table.app_version("b") is None
    assert sorted(table.to_arrow().column("id").to_pylist()) == list(range(9))


@pytest.mark.parametrize(
    ("app_id", "sequences"), [(None, [1]), ("a", [None]), ("a", [3, 3]), ("a", [3, 2]), ("a", [-1])]
)
def test_wrong_numbers_are_refused(tmp_path: Path, app_id: str | None, sequences: list[int | None]) -> None:
    lake = connect(tmp_path)
    table = lake.create_table("writer.numbers", "id bigint")
    writer = table.writer(app_id=app_id, flush_ms=10_000)
    for sequence in sequences[:-1]:
        writer.write({"id": 1}, sequence=sequence)
    with pytest.raises(InputError, match="SEQUENCE_INVALID"):
        writer.write({"id": 2}, sequence=sequences[-1])
    writer.close()
    lake.close()
    for call in (table.count, table.refresh, lake.tables, lambda: table.append([{"id": 1}])):
        with pytest.raises(BlockedError, match="CONNECTION_CLOSED"):
            call()


@pytest.mark.parametrize("wrong", [{"flush_rows": 0}, {"flush_ms": -1}, {"flush_rows": 10, "rows_max": 9}])
def test_wrong_options_are_refused(lake: Lake, wrong: dict[str, Any]) -> None:
    table = lake.create_table("writer.numbers", "id bigint", if_not_exists=True)
    with pytest.raises(InputError, match="WRITER_INVALID"):
        table.writer(**wrong)


def test_a_closed_writer_takes_no_rows(lake: Lake) -> None:
    table = lake.create_table("writer.closed", "id bigint")
    with table.writer(flush_ms=10_000) as writer:
        taken = writer.write({"id": 1})
    assert taken.done()
    writer.close()
    with pytest.raises(InputError, match="WRITER_CLOSED"):
        writer.write({"id": 2})
    assert table.count() == 1


class Sink:
    """Takes rows when it may."""

    def __init__(self) -> None:
        self.is_open = threading.Event()
        self.groups: list[list[Row]] = []

    def send(self, rows: Sequence[Row], sequence: int | None) -> Commit:
        assert self.is_open.wait(60)
        self.groups.append(list(rows))
        return Commit("t", len(self.groups), datetime.now(UTC), "")


def test_writers_wait_while_too_many_rows_wait() -> None:
    sink = Sink()
    writer = TableWriter(sink.send, flush_rows=5, rows_max=10)
    taken = threading.Semaphore(0)

    def write_all() -> None:
        for at in range(40):
            writer.write({"id": at})
            taken.release()

    thread = threading.Thread(target=write_all)
    thread.start()
    for _ in range(15):  # a group that commits, and those that may wait
        assert taken.acquire(timeout=60)
    assert not taken.acquire(timeout=0.2)
    sink.is_open.set()
    thread.join()
    writer.close()
    assert [row["id"] for group in sink.groups for row in group] == list(range(40))
    assert max(map(len, sink.groups)) == 5


def test_a_coroutine_that_gives_up_waiting_disturbs_nobody() -> None:
    sink = Sink()
    writer = TableWriter(sink.send, flush_rows=1)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.write_async({"id": 1}), 0.05)

    asyncio.run(give_up())
    sink.is_open.set()
    assert writer.write({"id": 2}).result() is not None
    writer.close()
    assert [row["id"] for group in sink.groups for row in group] == [1, 2]


def test_flush_raises_what_failed(lake: Lake) -> None:
    table = lake.create_table("writer.flushed", "id bigint")
    with table.writer(flush_ms=10_000) as writer:
        writer.write({"id": 1})
        writer.write({"id": "text"})
        with pytest.raises(InputError, match="SCHEMA_MISMATCH"):
            writer.flush()
        assert table.count() == 1


def test_the_example_is_killed_and_writes_each_event_once(tmp_path: Path) -> None:
    chance = random.Random(5)
    log = tmp_path / "events.jsonl"
    log.write_text("".join(json.dumps({"id": at, "page": f"/{at % 7}", "took_ms": at}) + "\n" for at in range(3_000)))
    command = [sys.executable, "-m", "examples.consumer", str(log), "--folder", str(tmp_path / "lake")]
    starts = []
    with connect(tmp_path / "lake") as lake:  # its server outlives the consumers
        table = lake.create_table("shop.visits", "id bigint, page string, took_ms int")
        for _ in range(4):
            consumer = subprocess.Popen(
                [*command, "--flush-rows", "20"],
                cwd=ROOT,
                env={"PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                text=True,
            )
            assert consumer.stdout is not None
            starts.append(int(consumer.stdout.readline().rpartition(" ")[2]))
            wanted = table.refresh().meta.head_version + chance.randint(1, 12)
            while table.refresh().meta.head_version < wanted and consumer.poll() is None:
                pass
            os.kill(consumer.pid, signal.SIGKILL)
            consumer.communicate()
            assert len(table.to_arrow()) % 20 == 0
        done = subprocess.run(
            command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "3000 events are in shop.visits" in done.stdout
        assert sorted(table.to_arrow().column("id").to_pylist()) == list(range(3_000))
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] > 0


def _reason(error: BaseException | None) -> str:
    assert isinstance(error, InputError)
    return error.reason
