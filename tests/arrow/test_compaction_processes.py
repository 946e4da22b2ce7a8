"""Compactions in processes of their own: as here, and none survives what started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from laketx import Lake, Table, connect
from protos.laketx.v1 import common_pb2
from worker.services.compaction import processes
from worker.services.compaction.compaction import Options, staged
from worker.services.compaction.jobs import CompactionStoppedError, Job, ProcessKilledError
from worker.services.compaction.processes import Processes

WAIT_S = 60.0
MAJOR = common_pb2.OPERATION_MAJOR_COMPACT
ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(tmp_path / "lake") as found:
        yield found


def table_with_files(lake: Lake) -> Table:
    table = lake.create_table(
        "shop.orders", "id bigint, v string, p int", primary_key=["id", "p"], partition_by=["p"], buckets=1
    )
    for number in range(3):
        table.upsert([{"id": at, "v": f"{number}-{at}", "p": at % 3} for at in range(number, number + 20)])
    assert table.compact("minor") is not None  # the rows are in files now
    table.upsert([{"id": 1, "v": "new", "p": 1}])
    return table


def blocked(table: Table, count: int = 1) -> list[Path]:
    """Files that whoever reads them waits for."""
    paths = list(Path(table.folder).rglob("*.parquet"))[:count]
    for path in paths:
        path.rename(path.with_suffix(".kept"))
        os.mkfifo(path)
    return paths


def unblock(paths: Iterable[Path]) -> None:
    for path in paths:
        path.with_suffix(".kept").replace(path)


def children_of(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        listed = [task.joinpath("children").read_text() for task in tasks]
    except OSError:
        return []
    return [int(number) for one in listed for number in one.split() if "chunk_process" in command_of(int(number))]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def wait_for_children(pid: int) -> list[int]:
    deadline = time.monotonic() + WAIT_S
    while not (found := children_of(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def files_in(table: Table) -> set[str]:
    return {str(path) for path in Path(table.folder).rglob("*") if path.is_file() or path.is_fifo()}


def test_children_answer_as_this_process_does(lake: Lake) -> None:
    table = table_with_files(lake)
    digests = []
    for runner in (Processes(), Processes(little_bytes=0)):
        job = Job()
        with staged(table.view, MAJOR, options=Options(), runner=runner, job=job) as found:
            digests.append([(one.input.to_bytes(), one.output.to_bytes()) for one in found.outcomes])
            assert [file.rows for one in found.outcomes for file in one.files]
        assert job.progress == 1.0
    assert digests[0] == digests[1]
    assert len(digests[0]) == 3
    assert not children_of(os.getpid())


def test_a_killed_child_is_reported_and_leaves_nothing(lake: Lake) -> None:
    table = table_with_files(lake)
    pipes = blocked(table, 3)  # whichever child is killed, the others are at work
    before = files_in(table)

    def kill() -> None:
        os.kill(wait_for_children(os.getpid())[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with (
        pytest.raises(ProcessKilledError, match="signal 9"),
        staged(table.view, MAJOR, options=Options(), runner=Processes(little_bytes=0)),
    ):
        pass
    killer.join()
    assert files_in(table) == before
    assert not children_of(os.getpid())
    unblock(pipes)
    assert table.compact("major") is not None
    assert table.count() == 22


def test_a_cancelled_job_ends_its_children_and_the_table_stays(lake: Lake) -> None:
    table = table_with_files(lake)
    pipes = blocked(table)
    before, job = files_in(table), Job()

    def cancel() -> None:
        wait_for_children(os.getpid())
        job.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with (
        pytest.raises(CompactionStoppedError),
        staged(table.view, MAJOR, options=Options(), runner=Processes(little_bytes=0), job=job),
    ):
        pass
    canceller.join()
    assert files_in(table) == before
    assert not children_of(os.getpid())
    with (
        pytest.raises(CompactionStoppedError),
        staged(table.view, MAJOR, options=Options(), runner=Processes(), job=job),
    ):
        pass
    unblock(pipes)


WORKER = """
import sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None  # as if it weren't installed
import laketx
from protos.laketx.v1 import common_pb2
from worker.services.compaction.compaction import Options, staged
from worker.services.compaction.processes import Processes
with laketx.connect(sys.argv[1]) as lake:
    view = lake.table("shop.orders").view
    with staged(view, common_pb2.OPERATION_MAJOR_COMPACT, options=Options(), runner=Processes(little_bytes=0)):
        pass
"""


def test_no_child_survives_a_killed_worker(lake: Lake, tmp_path: Path) -> None:
    table = table_with_files(lake)
    pipes = blocked(table)
    command = [sys.executable, "-c", WORKER, str(tmp_path / "lake")]
    worker = subprocess.Popen(command, cwd=ROOT)
    children = wait_for_children(worker.pid)
    worker.kill()
    worker.wait(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    while any("chunk_process" in command_of(pid) for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    unblock(pipes)
    assert table.count() == 22


def test_an_error_of_a_child_is_raised_here(lake: Lake) -> None:
    table = table_with_files(lake)
    path = next(Path(table.folder).rglob("*.parquet"))
    path.rename(path.with_suffix(".kept"))
    with (
        pytest.raises(FileNotFoundError),
        staged(table.view, MAJOR, options=Options(), runner=Processes(little_bytes=0)),
    ):
        pass


def test_no_more_processes_than_the_memory_takes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(processes, "CGROUP_LIMIT", limit)
    limit.write_text(str(100 << 20))
    assert processes.processes_max() == 1
    limit.write_text("max")
    assert processes.processes_max() >= 1
