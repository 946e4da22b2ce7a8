"""The tour on Spark: jobs that run at the same time, on real rows, in a temporary folder."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.table import Table as Grid
from rich.text import Text

from examples import demo_metadata
from examples.telling import bad, chapter, console, good, say
from laketx import Commit, ConflictError, Lake, Table, connect
from metaservice.cli.txn import with_typed_partition
from metaservice.cli.why import explained
from worker.commit.conflict_policies import OnConflict
from worker.spark.catalog_jar import jar_setting

SCHEMA: Final = "id bigint, day date, status string, amount double"
FIRST_DAY: Final = date(2026, 11, 1)
ROWS_PER_DAY: Final = 1_000
WAIT_S: Final = 60.0

Answer = Commit | ConflictError
Job = Callable[[Table, DataFrame, date], Commit]


# -- the cast ----------------------------------------------------------------------------------------------------------


def insert(table: Table, rows: DataFrame, day: date) -> Commit:  # noqa: ARG001 - all jobs are called alike
    return table.insert(rows, on_conflict="fail")  # by default a lost insert is committed again


def overwrite(table: Table, rows: DataFrame, day: date) -> Commit:
    return table.overwrite(rows, partition={"day": day})


def merge(table: Table, rows: DataFrame, day: date) -> Commit:  # noqa: ARG001 - all jobs are called alike
    return table.merge(rows, on=["id", "day"]).when_matched_update().when_not_matched_insert().execute()


def update(table: Table, rows: DataFrame, day: date) -> Commit:  # noqa: ARG001 - all jobs are called alike
    return table.update({"status": "'paid'"}, where=f"day = '{day}' AND id < 10")


@dataclass(frozen=True)
class Race:
    """Two jobs that run at the same time on one day; the earlier commits first."""

    earlier: Job
    later: Job
    later_stands: bool
    because: str


RACES: Final = (
    Race(insert, insert, False, "both may hold the same key: who would be the newer one?"),
    Race(update, insert, False, "it may bring back a row as it was before the update"),
    Race(overwrite, insert, False, "the day it wrote to was replaced"),
    Race(insert, merge, False, "it never saw the rows inserted"),
    Race(update, merge, False, "it read rows that the update has changed"),
    Race(overwrite, merge, False, "the rows it read are gone"),
    Race(insert, overwrite, True, "an overwrite replaces whatever is there"),
    Race(update, overwrite, True, "an overwrite replaces whatever is there"),
    Race(overwrite, overwrite, True, "the later one is what was wanted last"),
)


@dataclass
class Story:
    """One table, two people, a folder for signals between jobs, and a fresh day for every scene."""

    ana: Lake
    bo: Lake
    signals: Path
    name: str = "shop.orders"
    days_used: int = 0

    def next_day(self) -> date:
        self.days_used += 1
        return FIRST_DAY + timedelta(self.days_used - 1)

    def rows(self, day: date, begin: int, end: int, status: str) -> DataFrame:
        columns = sf.lit(day).alias("day"), sf.lit(status).alias("status"), (sf.col("id") * 0.5).alias("amount")
        return self.ana.spark.range(begin, end, numPartitions=1).select("id", *columns)

    def slow_rows(self, day: date, status: str, signal: Signal) -> DataFrame:
        """Rows that a Spark task holds back until it is told to go on."""
        held = signal.holding()  # a function of this function: it travels to Spark's Python by value
        return self.rows(day, 0, 20, status).mapInArrow(held, SCHEMA)


class Signal:
    """A task tells that it runs, and waits until it may go on: two files, since it is another process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._begun, self._go = folder / "begun", folder / "go"

    def wait_until_begun(self, running: threading.Thread) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not self._begun.exists() and running.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.01)

    def go(self) -> None:
        self._go.touch()

    def holding(self) -> Callable[[Iterator[Any]], Iterator[Any]]:
        begun, go, wait_s = str(self._begun), str(self._go), WAIT_S

        def hold(batches: Iterator[Any]) -> Iterator[Any]:
            import pathlib  # noqa: PLC0415 - in the task's process
            import time  # noqa: PLC0415 - in the task's process

            pathlib.Path(begun).touch()
            deadline_s = time.monotonic() + wait_s
            while not pathlib.Path(go).exists() and time.monotonic() < deadline_s:
                time.sleep(0.01)
            yield from batches

        return hold


# -- the story ---------------------------------------------------------------------------------------------------------


def tell() -> None:
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="laketx-demo-") as name:
        folder = Path(name)
        with demo_metadata.running_service(str(folder / "store")) as address, spark_session() as spark:
            warehouse = str(folder / "files")
            with (
                connect(f"laketx://{address}", spark, user="ana", warehouse=warehouse) as ana,
                connect(f"laketx://{address}", spark, user="bo", warehouse=warehouse) as bo,
            ):
                tell_of(Story(ana, bo, folder))
    say(f"Spark and the service are stopped, their folder is gone: {time.monotonic() - begun_s:.0f} seconds.")
    say("Next: examples/tutorial.ipynb, docs/python.md, and `laketx --help` for a look at a service of yours.")


def tell_of(story: Story) -> None:
    make_table(story)
    lost = show_races(story)
    show_compactions(story)
    show_conflict(story, lost)
    show_late_overwrite(story)
    show_policies(story)
    show_time_travel(story)
    show_increment(story)
    show_timeline(story)


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """Two slots, and quiet: what goes wrong arrives as an exception anyway."""
    say("A service and Spark start …")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("LAKETX_PROGRESS", "off")
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("LakeTX demo")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in jar_setting().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    try:
        yield spark
    finally:
        spark.stop()


def make_table(story: Story) -> None:
    chapter("A table with a key")
    table = story.ana.create_table(story.name, SCHEMA, primary_key=["day", "id"], buckets=1, partition_by=["day"])
    days = len(RACES) + 3
    day = sf.date_add(sf.lit(FIRST_DAY), sf.expr(f"CAST(id DIV {ROWS_PER_DAY} AS INT)"))
    rows = story.ana.spark.range(days * ROWS_PER_DAY).select(
        (sf.col("id") % ROWS_PER_DAY).alias("id"),
        day.alias("day"),
        sf.lit("open").alias("status"),
        sf.lit(1.0).alias("amount"),
    )
    loaded = table.insert(rows, message="first load")
    say(
        f"{table.name}: key day and id, partitioned by day. The key contains the partition column, so it is unique in "
        f"the table: no row moves to another day. Ana's first job inserts {loaded.rows_staged:,} rows: Spark writes "
        f"Parquet files, and one commit makes them version {loaded.version}. Later inserts upsert by key: they add "
        "small files that hide older rows."
    )


# -- races -------------------------------------------------------------------------------------------------------------


def show_races(story: Story) -> ConflictError:
    chapter("Two jobs at once")
    say(
        "In each line Bo's job is still computing when Ana's job on the same day commits; then Bo's is done and asks. "
        "Both are Spark jobs that run side by side. Whether the later one stands is a rule, cell by cell."
    )
    shown = Grid("Ana commits", "Bo asks", "answer to Bo", "because", header_style="bold")
    first_lost: ConflictError | None = None
    for race in RACES:
        answer = run_race(story, race)
        if isinstance(answer, Commit) != race.later_stands:
            raise SystemExit(f"{race.earlier.__name__}, {race.later.__name__}: not what the outcome table says")
        shown.add_row(race.earlier.__name__, race.later.__name__, described(answer), race.because)
        if first_lost is None and isinstance(answer, ConflictError):
            first_lost = answer
    console.print(shown)
    say("“Rebased” means: only metadata was decided anew. No row was read or written again, so it costs nothing.")
    assert first_lost is not None
    return first_lost


def run_race(story: Story, race: Race) -> Answer:
    day = story.next_day()
    with bos_job(story, race.later, day) as answers:
        race.earlier(story.ana.table(story.name), story.rows(day, 5, 15, "ana's"), day)
    return answers[0]


@contextmanager
def bos_job(story: Story, job: Job, day: date) -> Iterator[list[Answer]]:
    """Runs while the block does, and commits after it."""
    signal = Signal(story.signals / f"signal-{day}")
    answers: list[Answer] = []

    def run() -> None:
        try:
            answers.append(job(story.bo.table(story.name), story.slow_rows(day, "bo's", signal), day))
        except ConflictError as lost:
            answers.append(lost)

    running = threading.Thread(target=run)
    running.start()
    try:
        signal.wait_until_begun(running)
        yield answers
    finally:
        signal.go()
        running.join()


def show_compactions(story: Story) -> None:
    chapter("The cells of compactions")
    say("Compactions rewrite files and change no row. Their cells, played on metadata alone:")
    kinds = (demo_metadata.MINOR, demo_metadata.MAJOR)
    races = [race for race in demo_metadata.RACES if race.earlier in kinds or race.later in kinds]
    demo_metadata.show_table_of_races(
        demo_metadata.Lake(demo_metadata.create(story.ana.client), story.ana.client, story.bo.client), races
    )


def show_conflict(story: Story, lost: ConflictError) -> None:
    chapter("Why did the first of them lose?")
    say("A lost race raises ConflictError. It names the winner, the partition, the rule and the next step:")
    table = story.ana.table(story.name)
    console.print(explained(with_typed_partition(lost.conflict, table.meta), table.name))
    say("`laketx why TRANSACTION` shows this for any transaction of the last days.")


def show_late_overwrite(story: Story) -> None:
    chapter("A late overwrite wins")
    day = story.next_day()
    table = story.ana.table(story.name)
    with bos_job(story, overwrite, day) as answers:
        say(f"Bo's job rebuilds {day}, which has {ROWS_PER_DAY:,} rows. While it computes, Ana inserts twice.")
        for begin in (2_000, 3_000):
            table.insert(story.rows(day, begin, begin + 10, "ana's"))
        before = table.read(where=f"day = '{day}'").count()
    rows = table.read(where=f"day = '{day}'").groupBy("status").count().collect()
    say(
        f"The day has {before:,} rows when Bo asks: {described(answers[0]).markup}. Now it has "
        f"{' and '.join(f'{row[1]} of {row[0]!r}' for row in rows)}: what an overwrite removes is worked out when it "
        "commits, so nothing that came meanwhile survives by accident."
    )


def show_policies(story: Story) -> None:
    chapter("Four jobs at once, and none is lost")
    day = story.next_day()
    say(
        "Four threads upsert the same day. on_conflict='resubmit', the default of inserts, commits the files of a lost "
        "one again, as they are; 'rerun' computes anew. Either way a lost race costs an attempt, and is no error:"
    )
    policies: list[OnConflict] = ["resubmit", "rerun", "resubmit", "rerun"]

    def run(number: int) -> Commit:
        rows = story.rows(day, number * 10, number * 10 + 10, f"job {number}")
        return story.ana.table(story.name).insert(rows, on_conflict=policies[number])

    with ThreadPoolExecutor(len(policies)) as threads:
        commits = list(threads.map(run, range(len(policies))))
    shown = Grid("job", "on_conflict", "version", "attempts", header_style="bold")
    for number, commit in enumerate(commits):
        shown.add_row(str(number), policies[number], str(commit.version), str(commit.attempts))
    console.print(shown)


# -- reading -----------------------------------------------------------------------------------------------------------


def show_time_travel(story: Story) -> None:
    chapter("Time travel")
    table = story.ana.table(story.name)
    day = story.next_day()
    before = table.resolve()
    table.update({"amount": "amount * 100"}, where=f"day = '{day}' AND id < 500", message="a mistake")
    table.delete(f"day = '{day}' AND id >= 900", message="another one")
    moments = [one.time for one in table.history(2)]
    shown = Grid("read", "rows", "sum of amounts", header_style="bold")
    reads = {
        "read()": table.read(),
        "read(commits_ago=1)": table.read(commits_ago=1),
        f"read(timestamp='{moments[1]:%H:%M:%S.%f}')": table.read(timestamp=moments[1]),
        f"read(version={before})": table.read(version=before),
    }
    for words, rows in reads.items():
        row = rows.where(sf.col("day") == day).agg(sf.count("*"), sf.sum("amount")).collect()[0]
        shown.add_row(words, f"{row[0]:,}", f"{row[1]:,.0f}")
    console.print(shown)
    restored = table.restore(version=before, partition={"day": day}, message="undo")
    answer = described(restored).markup
    say(f"restore(version={before}, partition=…) brings the day's rows back, in metadata alone: {answer}.")


def show_increment(story: Story) -> None:
    chapter("An increment")
    table = story.ana.table(story.name)
    since = table.resolve()
    day = FIRST_DAY
    table.insert(story.rows(day, 999, 1_001, "late"), message="one old key, one new")
    table.delete(f"day = '{day}' AND id = 7")
    say(f"What changed after version {since}, row by row: changes(since={since}, mode='changes').")
    rows = table.changes(since=since, mode="changes").orderBy("id", sf.desc("_change_type")).collect()
    shown = Grid("id", "status", "_change_type", "_commit_version", header_style="bold")
    for row in rows:
        shown.add_row(str(row["id"]), row["status"], row["_change_type"], str(row["_commit_version"]))
    console.print(shown)


def show_timeline(story: Story) -> None:
    chapter("The timeline")
    say("Every commit is a version, and the log says whose, what and over how many others it was rebased. The newest:")
    titles = ("version", "time version (UTC)", "operation", "who", "files", "rows in them", "rebased", "message")
    shown = Grid(*titles, header_style="bold")
    for one in story.ana.table(story.name).history(14):
        shown.add_row(
            *(str(one.version), f"{one.time:%H:%M:%S.%f}", one.operation.lower(), one.user),
            *(f"+{one.files_added} -{one.files_removed}", f"+{one.rows_added} -{one.rows_removed}"),
            *(str(one.rebased_over or ""), one.message),
        )
    console.print(shown)


def described(answer: Answer) -> Text:
    if isinstance(answer, ConflictError):
        return bad(f"conflict with version {answer.conflict.winner_version}")
    rebased = f", rebased over {answer.rebased_over}" if answer.rebased_over else ""
    return good(f"committed as version {answer.version}{rebased}")
