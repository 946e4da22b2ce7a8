"""Branches in a history: they are made, written to, merged and dropped while everything else goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from metaservice.core.errors import MetaError
from metaservice.core.table.branches import on_branch
from metaservice.core.table.model import Principal
from metaservice.service.branch.branch_replay import Merged
from metaservice.service.branch.branches import BranchRequest
from metaservice.service.branch.merging import MergeRequest
from metaservice.service.branch.refreshing import RefreshRequest
from metaservice.service.decider.forking import find_table
from metaservice.store import keys
from tests.simulation.checks import BY_THE_CLOCK, MergeAnswer
from tests.simulation.logs import Spec, check
from tests.simulation.world import Play, Request, World

T = TypeVar("T")
WHO = Principal("sim", "simulation")
SHORT, LONG = (0, 1, 3), (2, 6, 12)
TRIES = 6
LEVELS_MAX = 3
REFUSALS = {"BRANCH_IN_USE", "BRANCH_HAS_CHILDREN", "BRANCH_UNKNOWN", *BY_THE_CLOCK}  # its time to live may be over


@dataclass(frozen=True, slots=True)
class Looked:
    """A fork, as the first look at a table on a branch gave it."""

    table_id: str
    base_id: str
    version: int
    branch: str


def play_branch(world: World) -> Play:
    """A branch from its beginning to its end."""
    rng, lines = world.rng, world.lines
    name = f"b{rng.randrange(1 << 40)}"
    open_lines = [line for line in lines if line.count("/") < LEVELS_MAX]
    parent = rng.choice(["", *open_lines]) if rng.random() < 0.5 else ""
    made = yield create(world, name, parent.rpartition("/")[2])
    if isinstance(made, str):
        return
    line = f"{parent}/{name}"
    lines[line] = []
    yield from play_pauses(world, SHORT)
    for spec in world.specs:
        if rng.random() < 0.8:
            yield from play_look(world, line, spec)
    yield from play_pauses(world, LONG)
    yield from play_end(world, line)
    del lines[line]


def play_pauses(world: World, counts: Sequence[int]) -> Play:
    for _ in range(world.rng.choice(counts)):
        yield Request("pause", "", lambda: None)


def play_look(world: World, line: str, spec: Spec) -> Play:
    branch = line.rpartition("/")[2]
    name = on_branch("keyed" if spec.keyed else "plain", branch)

    def run() -> object:
        state = world.decider.state
        table, found = find_table(state, name), list[Looked]()
        while table is not None and table.fork is not None:  # its base is forked by the same look
            table_id, fork = table.meta.table_id, table.fork
            base_id = keys.uuid_text(fork.base)
            found.append(Looked(table_id, base_id, fork.version, fork.branch))
            table = state.tables.get(base_id)
        return found[::-1]

    found = yield Request("look", "", lambda: refusable(run))
    if isinstance(found, list):
        forks = [Spec(one.table_id, spec.keyed, spec.profile) for one in found]
        for one in found:
            then = world.heads.get((one.branch, one.base_id), one.version)
            check(one.version == then, "a branch shows its parent as it was", one, then)
        if forks and all(one.table_id != forks[-1].table_id for one in world.lines[line]):
            world.lines[line].append(forks[-1])


def play_end(world: World, line: str) -> Play:
    """Merged, kept and merged again, or dropped."""
    rng, name = world.rng, line.rpartition("/")[2]
    for _ in range(TRIES):
        if rng.random() < 0.12:
            yield drop(world, name)
            return
        if rng.random() < 0.3:
            answer = yield refresh(world, name)
            if isinstance(answer, MergeAnswer) and answer.is_done:
                yield from play_anew(world, line)
        keep = rng.random() < 0.25
        answer = yield merge(world, name, keep=keep)
        if isinstance(answer, MergeAnswer) and answer.is_done:
            if not keep:
                return
            yield from play_anew(world, line)
        yield from play_pauses(world, SHORT)
    yield drop(world, name)


def play_anew(world: World, line: str) -> Play:
    """The branch has a new fork point: its tables have other ids."""
    name = line.rpartition("/")[2]
    world.heads = {place: head for place, head in world.heads.items() if place[0] != name}
    world.lines[line].clear()
    for spec in world.specs:
        yield from play_look(world, line, spec)
    yield from play_pauses(world, LONG)


def create(world: World, name: str, parent: str) -> Request:
    request = BranchRequest(world.uuid(), name, parent, 0, "", WHO, b"branch")

    def run() -> object:
        state = world.decider.state
        if state.branches.find(name) is None:
            tables = [spec for specs in world.lines.values() for spec in specs if spec.table_id in state.tables]
            heads = {(name, spec.table_id): state.tables[spec.table_id].head for spec in tables}
            world.heads.update(heads)
        return refusable(lambda: world.branches.create(request))

    return Request("branch", "", run)


def drop(world: World, name: str) -> Request:
    return Request("drop", "", lambda: refusable(lambda: world.branches.drop(name, WHO)))


def merge(world: World, name: str, *, keep: bool) -> Request:
    """Told first what it would do, which must come true. It is not asked when the tables are being changed."""
    txn_id = world.uuid()
    would: list[object] = []

    requests = of_process(
        world, lambda: [MergeRequest(txn_id, name, WHO, b"merge", keep, is_dry) for is_dry in (True, False)]
    )

    def run() -> object:
        dry, real = requests()
        if real.turns.held is None:
            would[:] = [refusable(lambda: told(world.merging.merge(dry)))]
        did = refusable(lambda: told(world.merging.merge(real)))
        check(would == [did], "a merge does what its dry run said", name, would, did)
        return did

    return Request("merge", txn_id, run)


def refresh(world: World, name: str) -> Request:
    """The same of a refresh, whose dry run can't know the ids of the tables to come."""
    txn_id = world.uuid()
    before: list[object] = []

    requests = of_process(
        world, lambda: [RefreshRequest(txn_id, name, WHO, b"refresh", is_dry) for is_dry in (True, False)]
    )

    def run() -> object:
        dry, real = requests()
        if real.turns.held is None:
            before[:] = [refusable(lambda: told(world.refreshing.refresh(dry)))]
        would, did = before[0], refusable(lambda: told(world.refreshing.refresh(real)))
        if isinstance(would, MergeAnswer) and isinstance(did, MergeAnswer):
            counts = [sorted(counts for _, *counts in answer.tables) for answer in (would, did)]
            check(would.is_done == did.is_done and counts[0] == counts[1], "a refresh does what its dry run said", name)
        else:
            check(would == did, "a refresh is refused as its dry run is", name, would, did)
        return did

    return Request("refresh", txn_id, run)


def of_process(world: World, make: Callable[[], T]) -> Callable[[], T]:
    """The same requests in each turn; new ones where they are asked again of another process."""
    made: list[tuple[object, T]] = []

    def found() -> T:
        state = world.decider.state
        if not made or made[0][0] is not state:
            made[:] = [(state, make())]
        return made[0][1]

    return found


def told(merged: Merged) -> MergeAnswer:
    tables = tuple((part.table.meta.table_id, part.version, part.count) for part in merged.tables)
    return MergeAnswer(merged.is_done, tables if merged.is_done else (), merged.time_us if merged.is_done else 0)


def refusable(run: Callable[[], object]) -> object:
    try:
        return run()
    except MetaError as refusal:
        check(refusal.reason in REFUSALS, "a request on a branch is not refused for another reason", refusal)
        return refusal.reason
