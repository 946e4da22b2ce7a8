"""Processes that insert one key into different partitions, each of which found it nowhere: it is there once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from laketx import Lake, connect

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ["maxcompute", "row_level", "delta_serializable", "delta_write_serializable"]
DAYS = "abc"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("races") / "lake") as made:
        yield made


class Racer:
    """Another process that writes to the table."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def begin(self, step: str) -> None:
        assert self._process.stdin is not None
        print(step, file=self._process.stdin, flush=True)

    def end(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def racers(lake: Lake) -> Iterator[list[Racer]]:
    command = [sys.executable, "-m", "tests.arrow.key_racer", lake.warehouse]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(2)
        ]
        started = [Racer(process) for process in processes]
        assert [one.end() for one in started] == ["ready", "ready"]
        yield started
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()


def play(lake: Lake, racers: list[Racer], profile: str, rounds: int) -> None:
    table = lake.create_table(
        f"keys_{profile}_{rounds}",
        "id bigint, day string, n int",
        primary_key=["id"],
        partition_by=["day"],
        key_scope="table",
        buckets=2,
        profile=profile,
    )
    chance = random.Random(f"{profile} {rounds}")
    for key in range(rounds):
        days = chance.sample(DAYS, 2)
        answers = all_do(racers, [f"stage {table.name} {key} {day}" for day in days])
        assert answers == ["staged", "staged"]
        answers = all_do(chance.sample(racers, 2), ["commit", "commit"])
        assert sorted(answers) == ["committed", "lost"]
        days = chance.sample(DAYS, 2)
        assert "committed" in all_do(racers, [f"upsert {table.name} {key} {day}" for day in days])
        assert sum(row["id"] == key for row in table.to_arrow().to_pylist()) == 1
    for version in range(1, table.refresh().meta.head_version + 1):
        keys = table.to_arrow(columns=["id"], version=version).column("id").to_pylist()
        assert sorted(keys) == sorted(set(keys))
    assert table.count() == rounds


def all_do(racers: list[Racer], steps: list[str]) -> list[str]:
    """All at once; the answers in order."""
    for one, step in zip(racers, steps, strict=True):
        one.begin(step)
    return [one.end() for one in racers]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_key_that_two_processes_did_not_find_is_inserted_once(lake: Lake, racers: list[Racer], profile: str) -> None:
    play(lake, racers, profile, 5)
    assert lake.table(f"keys_{profile}_5").count() == 5


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_many_keys_that_two_processes_did_not_find_are_inserted_once(
    lake: Lake, racers: list[Racer], profile: str
) -> None:
    play(lake, racers, profile, 40)
    assert lake.table(f"keys_{profile}_40").count() == 40
