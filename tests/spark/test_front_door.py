"""What goes with reads and writes: bars, lines of the log, a hint on Spark's Python, times in words."""

import io
import logging
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from laketx import ConflictError, Lake, connect
from tests.integration.terminal import STYLE
from worker.base import progress_bars
from worker.base.progress_bars import SWITCH, Bars
from worker.spark import jobs
from worker.spark.jobs import counting, is_shown
from worker.spark.session import OWN_BAR, python_hint

Names = Callable[[], str]


def test_tasks_are_counted_for_the_thread_that_started_them(spark: SparkSession) -> None:
    with counting(spark) as count:
        other = threading.Thread(target=lambda: spark.range(100).count())
        other.start()
        other.join()
        assert count() == (0, 0)
        spark.range(100, numPartitions=3).write.format("noop").mode("append").save()
        done, known = count()
    assert (done, known) == (3, 3)


def test_bars_share_the_screen_and_leave_it_clean() -> None:
    screen = io.StringIO()
    bars = Bars(Console(file=screen, force_terminal=True, width=80))
    one = bars.show(None, "insert a", (0, 0))
    two = bars.show(None, "insert b", (1, 4))
    assert bars.show(one, "insert a", (2, 3)) == one
    bars.end(two)
    bars.end(one)
    shown = STYLE.sub("", screen.getvalue())
    assert "insert a" in shown
    assert bars.show(None, "insert c", (0, 1)) is not None


@pytest.mark.parametrize(
    ("switch", "is_terminal", "shows"),
    [("", False, False), ("", True, True), ("off", True, False), ("on", False, True), ("else", False, False)],
)
def test_where_bars_are_shown(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, switch: str, is_terminal: bool, shows: bool
) -> None:
    assert spark.conf.get(OWN_BAR) == "true"  # as in any program that asks for nothing else
    monkeypatch.setenv(SWITCH, switch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    assert is_shown(spark) == (shows and switch == "on")
    monkeypatch.setattr(jobs, "OWN_BAR", "spark.no.such.setting")
    assert is_shown(spark) == shows


def test_a_write_shows_how_far_it_is(
    lake: Lake, spark: SparkSession, new_name: Names, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_bars, "AFTER_S", 0.0)
    table = lake.create_table(new_name(), "id bigint")
    table.insert(spark.range(1))
    assert capfd.readouterr().err.count(table.name) == 0
    monkeypatch.setenv(SWITCH, "on")
    table.insert(spark.range(1))
    assert f"insert {table.name}" in capfd.readouterr().err


def test_lines_of_the_log_name_table_transaction_and_version(
    lake: Lake, spark: SparkSession, new_name: Names, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="laketx.worker")
    table = lake.create_table(new_name(), "id bigint")
    commit = table.insert(spark.range(1))
    with pytest.raises(ConflictError) as lost, lake.transaction() as txn:  # noqa: PT012
        txn.table(table.name).delete("id = 0")
        table.insert(spark.range(1))
    said = [(one.getMessage().partition(":")[0], one.table, one.version) for one in caplog.records]  # type: ignore[attr-defined]
    assert said == [
        ("insert committed", table.name, 1),
        ("insert committed", table.name, 2),
        ("delete begins", table.name, 1),
        ("delete rolled back", table.name, 1),
        ("lost a race to", table.name, 2),
    ]
    assert (
        caplog.records[0].getMessage()
        == f"insert committed: table {table.name}, version 1, transaction {commit.txn_id}"
    )
    loser = {one.txn_id for one in caplog.records[-3:]}  # type: ignore[attr-defined]
    assert len(loser) == 1
    assert loser.isdisjoint({commit.txn_id, lost.value.conflict.winner_txn_id})


def test_a_session_of_another_python_is_told(spark: SparkSession, lake_folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to(sys.executable)
    mine = spark.sparkContext.pythonExec
    assert python_hint(spark) == ""
    try:
        spark.sparkContext.pythonExec = str(other)
        with connect(lake_folder, spark) as told, pytest.warns(UserWarning, match=f"PYSPARK_PYTHON={sys.executable}"):
            _ = told.spark
        spark.sparkContext.pythonExec = "no-such-python"
        assert "can't be found" in python_hint(spark)
    finally:
        spark.sparkContext.pythonExec = mine


def test_a_time_means_the_same_for_reads_and_for_restore(lake: Lake, spark: SparkSession, new_name: Names) -> None:
    table = lake.create_table(new_name(), "id bigint")
    moment = table.insert(spark.range(1)).time
    table.truncate()
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        there = (moment + timedelta(hours=9)).replace(tzinfo=None).isoformat(" ")
        assert table.resolve(timestamp=there) == 1
        assert table.read(timestamp=there).count() == 1
        assert table.restore(timestamp=there).version == 3
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert table.read().count() == 1
