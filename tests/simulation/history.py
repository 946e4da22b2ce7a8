"""Runs one seed's history to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from metaservice.service.decider.decider import Job
from metaservice.store.engines.memory import MemoryStore
from tests.simulation.branches import play_branch
from tests.simulation.clients import play
from tests.simulation.logs import ViolationError
from tests.simulation.workers import drain, play_task
from tests.simulation.world import CLIENTS, WORKERS, Client, World

STEPS = 90


class HistoryError(AssertionError):
    """Names the seed, so that the history can be run again."""


def run_history(
    seed: int, steps: int = STEPS, make_store: Callable[[], MemoryStore] = MemoryStore, branches: int = 0
) -> Counter[str]:
    """What happened, counted; the same seed always gives the same. `branches`: how many there are at a time."""
    world = World(seed, make_store)
    done = 0
    try:
        world.create()
        clients = [Client(world, play) for _ in range(CLIENTS)]
        clients += [Client(world, play_task) for _ in range(WORKERS)]
        clients += [Client(world, play_branch) for _ in range(branches)]
        for done in range(steps):  # noqa: B007 - a failure names it
            world.tick_clocks()
            if world.rng.random() < 0.03:
                world.crash()
            world.plan_failure()
            jobs: list[Job] = [client.job() for client in clients if world.rng.random() < 0.6]
            world.rng.shuffle(jobs)
            world.group(jobs)
        world.crash()
        world.group([client.job() for client in clients])
        drain(world)
        while world.decider.state.held:
            world.group([])
        world.checker.check_end(world.decider.state)
        world.tasks.check_end(world)
    except ViolationError as error:
        raise HistoryError(f"seed {seed}, step {done}: {error}") from error
    except Exception as error:
        raise HistoryError(f"seed {seed}, step {done}: {error!r}") from error
    checker = world.checker
    counts = Counter(str(answer[0]).lower() for answer in checker.final.values())
    counts.update(answers=checker.answers, crashes=world.crashes, expired=len(checker.expired))
    counts.update(merges=len(checker.merges), forks=len(checker.logs) - len(world.specs))
    counts.update(tasks=world.decider.state.tasks.done)
    counts.update(commits=sum(len(log.own) for log in checker.logs.values()))
    return counts
