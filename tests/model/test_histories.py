"""Random histories of crossing transactions: what the files show is what a plain dict of rows holds."""

import csv
from pathlib import Path

import pytest

from metaservice.core.table.meta import Profile
from metaservice.core.table.model import COMPACTIONS, Conflict, Operation, Rule, TableCommit
from tests.model.world import Done, Job, Jobs, World

TABLE = Path(__file__).resolve().parents[1] / "conformance" / "cases" / "outcome_table.csv"
CLASSES = {
    Operation.INSERT: "INSERT_INTO",
    Operation.OVERWRITE: "INSERT_OVERWRITE",
    Operation.TRUNCATE: "INSERT_OVERWRITE",
    Operation.RESTORE: "INSERT_OVERWRITE",
    Operation.UPDATE: "UPDATE_DELETE",
    Operation.DELETE: "UPDATE_DELETE",
    Operation.MINOR_COMPACT: "MINOR_COMPACT",
    Operation.CLUSTER: "MINOR_COMPACT",
    Operation.MAJOR_COMPACT: "MAJOR_COMPACT",
}
OFTEN = (Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT)
OPERATIONS = (*CLASSES, *OFTEN, *OFTEN)
SEEDS = 60
COMMITS = 14
CHAINS = 60
CHAIN_COMMITS = 40

with TABLE.open(encoding="utf-8") as lines:
    STANDS = {(row["earlier"], row["later"]): row["later_stands"] == "yes" for row in csv.DictReader(lines)}


def play(world: World, commits: int, open_max: int) -> int:
    """Transactions begin and commit in any order; the number of conflicts."""
    jobs, waiting, lost = Jobs(world), list[Job](), 0
    for _ in range(commits * 20):
        if world.head >= commits:
            break
        if len(waiting) < open_max and world.random.random() < 0.55:
            job = jobs.any(OPERATIONS)
            if job is not None:
                waiting.append(job)
        elif waiting:
            job = waiting.pop(world.random.randrange(len(waiting)))
            answer = world.commit(job)
            check_answer(world, job, answer)
            lost += isinstance(answer, Conflict)
    return lost


def check_answer(world: World, job: Job, answer: TableCommit | Conflict) -> None:
    if isinstance(answer, TableCommit):
        for version, rows in enumerate(world.oracle):
            assert world.read(version) == rows, f"version {version} after {answer.change.operation.name}"
        if answer.change.operation in COMPACTIONS:
            assert world.oracle[-1] == world.oracle[-2]
    if world.meta.profile is Profile.MAXCOMPUTE:
        check_outcome_table(world, job, answer)


def check_outcome_table(world: World, job: Job, answer: TableCommit | Conflict) -> None:
    """A judge of its own: the shared table, winner by winner, partition by partition."""
    head_before = world.head - isinstance(answer, TableCommit)
    winners = world.done[job.change.read_version : head_before]
    losing = [w for w in winners if w.partitions & job.covers and not stands(w, job)]
    if losing:
        assert isinstance(answer, Conflict)
        assert (answer.rule, answer.winner.version) == (Rule.OUTCOME_TABLE, losing[0].version)
    else:
        assert isinstance(answer, TableCommit), (
            "the table lets it pass, and a lineage that it lets pass can be followed"
        )


def stands(winner: Done, job: Job) -> bool:
    return STANDS[CLASSES[winner.job.change.operation], CLASSES[job.change.operation]]


@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("block", range(4))
def test_files_show_what_the_rows_are(profile: Profile, block: int, keyed: bool) -> None:
    lost = sum(
        play(World(profile, keyed=keyed, seed=seed), COMMITS, open_max=4)
        for seed in range(block * SEEDS, (block + 1) * SEEDS)
    )
    assert lost > 0, "histories that never conflict test nothing"


@pytest.mark.parametrize("keyed", [True, False], ids=["primary-key", "append"])
def test_long_chains_under_maxcompute_follow_the_table(keyed: bool) -> None:
    for seed in range(CHAINS):
        world = World(Profile.MAXCOMPUTE, keyed=keyed, seed=10_000 + seed)
        play(world, CHAIN_COMMITS, open_max=10)
        assert world.head > CHAIN_COMMITS // 2
