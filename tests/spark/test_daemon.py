"""Tasks that don't go to their end: called off, doomed, given back, or done by somebody else meanwhile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from metaservice.client import MetaServiceError
from metaservice.client.maintenance import claim_of
from protos.laketx.v1 import maintenance_pb2 as pb
from protos.laketx.v1 import transaction_pb2
from tests.integration.service import Service
from tests.integration.terminal import LAKETX
from tests.spark.crossed import MAJOR, Crossed
from tests.spark.processes import ROOT, WAIT_S, wait_until
from tests.spark.stored import live
from worker import Lake, connect
from worker.daemon import Daemon, groups_of
from worker.jobs.running import Options, staged

LEASE_MS = 3_000
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

    def tag_runs(self) -> bool:
        return bool(self.lake.spark.sparkContext.statusTracker().getActiveJobsIds())

    def check(self) -> None:
        """Done by others in the end, once."""
        wait_until(lambda: Daemon(self.lake).run_waiting() > 0 or self.state() == "DONE")
        assert self.state() == "DONE"
        self.crossed.check()


def let_go(pipe: Path) -> None:
    with suppress(OSError):  # nobody waits
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
    pipe.unlink()


@contextmanager
def working(asked: Asked) -> Iterator[Daemon]:
    """A daemon that has begun with the task."""
    daemon = Daemon(asked.lake, tasks_at_once=1, idle_s=0.05)
    daemon.start()
    try:
        wait_until(asked.tag_runs)
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
        wait_until(lambda: not asked.tag_runs())
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
        wait_until(lambda: not asked.tag_runs())
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
        groups = groups_of(table, task)
        with staged(table, MAJOR, groups, read_version=task.read_version, options=Options(), begin=begin) as late:  # type: ignore[arg-type]
            late_files.update(asked.files() - asked.before)
            asked.check()  # somebody else does it, once the lease has run out
            late.commit()

    with pytest.raises(MetaServiceError):
        come_late()
    assert late_files
    assert not late_files & asked.files()
    assert asked.task().fence > task.fence
    asked.crossed.check()
