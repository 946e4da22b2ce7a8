"""Tasks that don't go to their end: called off, doomed, given back, or done by somebody else meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from laketx import Lake, connect
from metaservice.client import MetaServiceError
from metaservice.client.maintenance import claim_of
from protos.laketx.v1 import maintenance_pb2 as pb
from protos.laketx.v1 import transaction_pb2
from tests.integration.service import Service
from tests.integration.terminal import LAKETX
from tests.spark.crossed import MAJOR, Crossed
from tests.spark.processes import ROOT, WAIT_S, wait_until
from tests.spark.stored import live
from worker.services.compaction.compaction import Options, staged
from worker.services.compaction.daemon import Daemon, groups_of
from worker.services.compaction.processes import Processes

LEASE_MS = 3_000
CHUNK_PROCESS = b"worker.services.compaction.chunk_process"
NewName = Callable[[], str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a service that soon takes a claim for lost, and where its tables lie."""
    folder = tmp_path_factory.mktemp("leased")
    service = Service(folder / "store", "--lease-ms", str(LEASE_MS), "--task-backoff-ms", "100")
    yield service.start(), folder / "files"
    service.kill()


@pytest.fixture(scope="module")
def leased(spark: SparkSession, place: tuple[str, Path]) -> Iterator[Lake]:
    with connect(f"laketx://{place[0]}", spark, warehouse=str(place[1])) as lake:
        yield lake


class Asked:
    """A table with a major compaction that is asked for, and what lies in its folder."""

    def __init__(self, lake: Lake, name: str, *, keyed: bool = True) -> None:
        self.lake = lake
        self.crossed = Crossed(lake, name, keyed=keyed)
        self.crossed.make_work()
        self.task_id = lake.client.request_tasks(self.crossed.table.table_id, MAJOR).tasks[0].task_id
        self.before = self.files()

    def files(self) -> set[str]:
        folder = Path(self.crossed.table.folder)
        return {str(path.relative_to(folder)) for path in folder.rglob("*.parquet")}

    def task(self) -> pb.MaintenanceTask:
        return self.lake.client.get_task(self.task_id)

    def state(self) -> str:
        return pb.TaskState.Name(self.task().state).removeprefix("TASK_STATE_")

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """Whoever reads the first of its files waits."""
        path = Path(f"{self.crossed.table.folder}/{live(self.crossed.table)[0].file.path}")
        kept = path.rename(path.with_suffix(".kept"))
        os.mkfifo(path)
        waiting = path.with_suffix(".pipe")
        try:
            yield
        finally:
            path.rename(waiting)
            kept.rename(path)
            let_go(waiting)

    def is_worked_on(self) -> bool:
        """Whether a process of this one waits for a file."""
        return any(child.is_dir() and CHUNK_PROCESS in read(child / "cmdline") for child in children())

    def check(self) -> None:
        """Done by others in the end, once."""
        wait_until(lambda: Daemon(self.lake).run_waiting() > 0 or self.state() == "DONE")
        assert self.state() == "DONE"
        self.crossed.check()


def children() -> list[Path]:
    """Folders of this process's children in /proc."""
    listed = [read(task / "children").decode() for task in Path("/proc/self/task").iterdir()]
    return [Path("/proc", number) for one in listed for number in one.split()]


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process or thread ended
        return b""


def let_go(pipe: Path) -> None:
    with suppress(OSError):  # nobody waits
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    pipe.unlink()


@contextmanager
def working(asked: Asked) -> Iterator[Daemon]:
    """A daemon that has begun with the task."""
    daemon = Daemon(asked.lake, tasks_at_once=1, idle_s=0.05, runner=Processes(little_bytes=0))
    daemon.start()
    try:
        wait_until(asked.is_worked_on)
        yield daemon
    finally:
        daemon.stop(0.0)


def test_a_task_that_is_called_off_stops_and_leaves_nothing(
    leased: Lake, place: tuple[str, Path], new_name: NewName
) -> None:
    asked = Asked(leased, new_name())
    with asked.blocked(), working(asked) as daemon:
        command = [*LAKETX, "compaction", "cancel", asked.task_id, "--reason", "not now", "--yes"]
        command += ["--server", place[0]]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=WAIT_S)
        wait_until(lambda: not asked.is_worked_on())
        daemon.ask_to_stop()
        assert daemon.drain(WAIT_S)
    assert (asked.state(), asked.task().error) == ("CANCELLED", "not now")
    assert asked.files() == asked.before
    asked.crossed.check()


def test_a_task_that_an_overwrite_dooms_stops_and_leaves_nothing(leased: Lake, new_name: NewName) -> None:
    asked = Asked(leased, new_name(), keyed=False)
    with asked.blocked(), working(asked) as daemon:
        asked.crossed.overwrite()
        after = asked.files()
        wait_until(lambda: not asked.is_worked_on())
        daemon.ask_to_stop()
        assert daemon.drain(WAIT_S)
    assert asked.files() == after
    wait_until(lambda: Daemon(leased).run_waiting() == 0 and asked.state() == "CANCELLED")
    asked.crossed.check()


def test_what_a_stop_cuts_short_is_given_back(leased: Lake, new_name: NewName) -> None:
    asked = Asked(leased, new_name())
    with asked.blocked(), working(asked) as daemon:
        daemon.stop(0.0)
        assert (asked.state(), asked.task().attempts, asked.task().error) == ("QUEUED", 0, "")
    assert asked.files() == asked.before
    asked.check()


def test_who_comes_too_late_is_refused_and_cleans_up(leased: Lake, new_name: NewName) -> None:
    asked = Asked(leased, new_name())
    table = asked.crossed.table
    claimed = leased.client.claim_task(table_ids=[table.table_id])
    assert claimed is not None
    task = claimed[0]

    def begin(intent: transaction_pb2.TableIntent) -> object:
        return leased.client.begin([intent], task=claim_of(task))

    late_files: set[str] = set()

    def come_late() -> None:
        groups = groups_of(table.view, task)
        with staged(table.view, MAJOR, groups, read_version=task.read_version, options=Options(), begin=begin) as late:  # type: ignore[arg-type]
            late_files.update(asked.files() - asked.before)
            asked.check()  # somebody else does it, once the lease has run out
            late.commit()

    with pytest.raises(MetaServiceError):
        come_late()
    assert late_files
    assert not late_files & asked.files()
    assert asked.task().fence > task.fence
    asked.crossed.check()


# -- as a process ------------------------------------------------------------------------------------------------------


class Worker:
    """`laketx worker` on a lake's service; stopped by a signal."""

    def __init__(self, place: tuple[str, Path], log: Path, *flags: str) -> None:
        command = [*LAKETX, "worker", "--server", place[0], "--warehouse", str(place[1])]
        command += ["--tasks", "1", "--idle", "0.1", *flags]
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "worker: ready\n", self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def ends_by(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.process.send_signal(number)
        assert self.process.wait(WAIT_S) == 0, self.said()

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(WAIT_S)


@contextmanager
def started(place: tuple[str, Path], log: Path, *flags: str) -> Iterator[Worker]:
    worker = Worker(place, log, *flags)
    try:
        yield worker
    finally:
        worker.kill()


@pytest.mark.long
def test_a_terminated_worker_ends_what_it_does_and_one_that_is_told_twice_gives_it_back(
    leased: Lake, place: tuple[str, Path], new_name: NewName, tmp_path: Path
) -> None:
    asked = Asked(leased, new_name())
    with asked.blocked(), started(place, tmp_path / "hurried.log") as worker:
        wait_until(lambda: bool(asked.task().txn_id))
        worker.ends_by(signal.SIGINT, signal.SIGTERM)
        assert (asked.state(), asked.task().attempts) == ("QUEUED", 0), worker.said()
    assert asked.files() == asked.before
    with started(place, tmp_path / "drained.log") as worker:
        wait_until(lambda: asked.state() != "QUEUED")
        worker.ends_by(signal.SIGTERM)
        assert asked.state() == "DONE", worker.said()
    asked.crossed.check()


@pytest.mark.long
def test_a_worker_that_slept_beyond_its_lease_is_too_late(
    leased: Lake, place: tuple[str, Path], new_name: NewName, tmp_path: Path
) -> None:
    asked = Asked(leased, new_name())
    with started(place, tmp_path / "asleep.log") as worker:
        with asked.blocked():
            wait_until(lambda: bool(asked.task().txn_id))
            worker.process.send_signal(signal.SIGSTOP)
        asked.check()
        worker.process.send_signal(signal.SIGCONT)
        worker.ends_by(signal.SIGTERM)
        assert "ended without a commit" in worker.said()
    done = {entry.file.path for entry in live(asked.crossed.table)}
    assert asked.files() == asked.before | done
