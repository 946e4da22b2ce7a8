"""Hundreds of random histories against plain rows: every version and every increment, many histories in one job.

A history is a case, the rows of one value of the column `cased`. The cases of a table share its versions, so a scan
of a version is a look at all of them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from tests.spark.changed_rows import Look, Oracle, Shown
from tests.spark.histories import grow_many
from tests.spark.reading import LabLake, LabTable, open_lab, union
from tests.spark.sessions import shared_session
from worker.arrow.changes.commits import MODES
from worker.dataframes import scan
from worker.dataframes.changes import read_changes

CASES = 100
SITES = 4
STEPS = 8
FRAMES_AT_ONCE = 6


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabLake]:
    with open_lab(tmp_path_factory.mktemp("many"), for_many_small_jobs(shared_session())) as made:
        yield made


def for_many_small_jobs(spark: SparkSession) -> SparkSession:
    """Plans are long and rows few: what Spark does to be fast with many rows is in the way."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    session.conf.set("spark.sql.files.minPartitionNum", "1")
    return session


def frame_of(table: LabTable, look: Look) -> DataFrame:
    since, until, mode = look
    if not mode:
        return scan.read(table.view, version=until)
    return read_changes(table.view, since=since, until=until, mode=mode).drop("_commit_time")


def check(table: LabTable, looks: Sequence[Look]) -> None:
    """Looks whose rows have the same types are one job."""
    oracle = Oracle(table)
    alike: dict[tuple[Any, ...], list[Look]] = defaultdict(list)
    for look in looks:
        types = [(column.name, column.type) for column in oracle.columns(look[1])]
        alike[tuple(types), bool(look[2])].append(look)
    for group in alike.values():
        for begin in range(0, len(group), FRAMES_AT_ONCE):
            check_together(oracle, group[begin : begin + FRAMES_AT_ONCE])


def check_together(oracle: Oracle, looks: Sequence[Look]) -> None:
    frames = [frame_of(oracle.table, look).select(sf.lit(at).alias("look"), "*") for at, look in enumerate(looks)]
    found: list[Shown] = [defaultdict(list) for _ in looks]
    case_at = 1 + [column.name for column in oracle.columns(looks[0][1])].index("cased")
    for row in union(frames).collect():
        at, *values = row
        found[at][row[case_at]].append(repr(tuple(values)))
    for look, shown in zip(looks, found, strict=True):
        wanted = oracle.shown(look)
        for case in sorted(wanted.keys() | shown.keys()):
            assert sorted(shown.get(case, [])) == wanted.get(case, []), (oracle.table.meta.name, look, case)


def every_look(head: int) -> list[Look]:
    versions = [(version, version, "") for version in range(head + 1)]
    return versions + [(since, until, mode) for since, until in combinations(range(head + 1), 2) for mode in MODES]


def some_looks(head: int, chance: random.Random, ranges: int) -> list[Look]:
    """Every version, the whole as a log, and some ranges in every mode."""
    found = [look for look in every_look(head) if not look[2]]
    for _ in range(ranges):
        since, until = sorted(chance.sample(range(head + 1), 2))
        found += [(since, until, mode) for mode in MODES]
    return [*found, (0, head, "log")]


@pytest.mark.parametrize("keyed", [pytest.param(False, marks=pytest.mark.long), True])
def test_every_version_and_increments_of_many_histories(lake: LabLake, keyed: bool) -> None:
    table = grow_many(lake, f"many_{keyed}", 1, keyed=keyed, cases=CASES, sites=SITES, steps=STEPS, alters=1)
    check(table, some_looks(table.head, random.Random(1), 1))


@pytest.mark.long
@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("seed", range(10, 16))
def test_every_increment_of_many_histories(lake: LabLake, seed: int, keyed: bool) -> None:
    table = grow_many(lake, f"more_{seed}_{keyed}", seed, keyed=keyed, cases=60, sites=6, steps=16, alters=3)
    check(table, every_look(table.head))
