"""Keys across partitions: histories with branches, merges, clones and key indexes against dicts."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from laketx import ConflictError, Lake, connect
from laketx.branch import MergeRefusedError
from tests.arrow.key_forks import Forks, Row, found
from tests.arrow.key_writer import change_of
from tests.integration.service import service
from worker.services.fsck import Fsck
from worker.services.key_indexes import KeyIndexKeeper

ROOT = Path(__file__).resolve().parents[2]

PROFILES = ["maxcompute", "row_level", "delta_serializable", "delta_write_serializable"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("forks")) as made:
        yield made


@pytest.mark.parametrize(("profile", "seed"), [("row_level", 0), ("maxcompute", 0)])
def test_a_key_has_one_row_in_every_fork(lake: Lake, profile: str, seed: int) -> None:
    history = Forks(lake, f"f.{profile}_{seed}", profile, seed)
    history.play(25)
    assert history.made
    assert all(fork.states for fork in history.forks)


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_a_key_has_one_row_in_every_fork_of_many_histories(lake: Lake, profile: str) -> None:
    counts = dict.fromkeys(("merged", "refused", "lost", "passed"), 0)
    for seed in range(100, 400):
        history = Forks(lake, f"f.{profile}_{seed}", profile, seed)
        history.play(70)
        counts = {name: count + history.counts[name] for name, count in counts.items()}
    assert all(counts.values()), counts


# -- processes that are killed -----------------------------------------------------------------------------------------

WRITERS = 4
ROUNDS = 12


class Writer:
    """A process that changes keys, until it is killed."""

    def __init__(self, address: str, warehouse: Path, table: str, name: str, out: Path) -> None:
        self._out = out / f"{name}.txt"
        words = [sys.executable, "-m", "tests.arrow.key_writer", address, str(warehouse), table, name]
        with self._out.open("wb") as stdout, self._out.with_suffix(".err").open("wb") as stderr:
            self._process = subprocess.Popen(words, stdout=stdout, stderr=stderr, cwd=ROOT)

    def kill(self) -> list[str]:
        """The changes that were acknowledged."""
        assert self._process.poll() is None, self._out.with_suffix(".err").read_text(encoding="utf-8")[-2_000:]
        self._process.kill()
        self._process.wait()
        lines = self._out.read_text(encoding="utf-8").splitlines(keepends=True)
        return [line.strip() for line in lines[1:] if line.endswith("\n")]


@pytest.mark.long
@pytest.mark.parametrize("profile", ["row_level", "maxcompute"])
def test_killed_writers_services_and_forks_leave_each_key_once(tmp_path: Path, profile: str) -> None:
    """The commits say by their messages what they do, so a dict that plays them in order has every version."""
    chance, warehouse, acknowledged = random.Random(profile), tmp_path / "lake", list[str]()
    with service(tmp_path / "db") as (running, _):
        with connect(f"laketx://{running.address}", warehouse=warehouse) as lake:
            lake.create_table(
                "k.t",
                "id bigint, day string, n bigint",
                primary_key=["id"],
                partition_by=["day"],
                key_scope="table",
                buckets=4,
                profile=profile,
                properties={"write.inline.rows": "2"},
            )
        writers = [Writer(f"laketx://{running.address}", warehouse, "k.t", f"w{at}", tmp_path) for at in range(WRITERS)]
        for at in range(ROUNDS):
            with connect(f"laketx://{running.address}", warehouse=warehouse) as lake:
                until = time.monotonic() + chance.uniform(1, 5)
                while time.monotonic() < until:
                    keep_house(lake, chance, at)
                    time.sleep(0.1)
            if at % 4 == 3:
                running.kill()
                running.start()
            victim = chance.randrange(WRITERS)
            acknowledged += writers[victim].kill()
            writers[victim] = Writer(f"laketx://{running.address}", warehouse, "k.t", f"w{victim}x{at}", tmp_path)
        for writer in writers:
            acknowledged += writer.kill()
        with connect(f"laketx://{running.address}", warehouse=warehouse) as lake:
            check_versions(lake, acknowledged)


def keep_house(lake: Lake, chance: random.Random, at: int) -> None:
    """What others do meanwhile: compactions, a key index, branches that are merged, clones."""
    table = lake.table("k.t")
    match chance.choice(["compact", "compact", "index", "branch", "clone"]):
        case "compact":
            with suppress(ConflictError):
                table.compact(chance.choice(["minor", "major"]))
        case "index":
            KeyIndexKeeper(lake, now_s=lambda: 0.0, rows_at_least=1, files_at_least=1).run_once()
        case "branch":
            branch = lake.branch(f"b{at}-{chance.randrange(1 << 30)}", tables=["k.t"])
            name = f"branch-{branch.name}"
            change_of(name).write(branch.table("k.t"))
            with suppress(MergeRefusedError):
                branch.merge()
        case _:
            clone = lake.clone_table("k.t", f"k.c{chance.randrange(1 << 30)}")
            rows = found(clone)
            change = change_of(f"clone-{clone.name}")
            change.write(clone)
            change.apply(rows)
            assert found(clone) == rows
            lake.drop_table(clone.name)


def check_versions(lake: Lake, acknowledged: Sequence[str]) -> None:
    table, state, played = lake.table("k.t"), dict[int, Row](), list[str]()
    for one in sorted(lake.client.list_versions(table.table_id), key=lambda one: one.version):
        if one.commit_message.startswith(("w", "branch-")):
            change_of(one.commit_message).apply(state)
            played.append(one.commit_message)
        assert found(table, one.version) == state, (one.version, one.commit_message)
    assert len(set(played)) == len(played)
    assert set(acknowledged) <= set(played)
    check = Fsck(lake.client, lake.warehouse, table.meta, all_versions=True, deep=True)
    assert not [str(finding) for finding in check.run()]
