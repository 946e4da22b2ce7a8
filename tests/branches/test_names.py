"""Views and namespaces on branches: random histories over a lake and branches of branches, against plain dicts.

Every line has what its parent had when it left, with its own changes over it. A merge changes in the parent what
changed on the branch, or nothing; whether it can be done follows from three dicts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial

import pytest

from metaservice.core.errors import MetaError
from metaservice.core.table.branches import off_branch, on_branch
from metaservice.core.table.meta import Namespace, View
from metaservice.service.branch.branched_names import BranchedNames
from metaservice.service.decider.forking import find_table, get_branch
from metaservice.service.table.catalog import Mode
from tests.branches.rig import BranchRig, refused
from tests.retention.rig import WHO

SPACES = ("shop", "test", "old")
NAMES = ("a", "b", "c")


@dataclass
class Line:
    """What a line must show: texts of views, properties of namespaces, and the identities of tables."""

    views: dict[str, str] = field(default_factory=dict)
    spaces: dict[str, str] = field(default_factory=dict)
    tables: dict[str, int] = field(default_factory=dict)

    def inside(self, space: str) -> bool:
        return any(name.startswith(f"{space}.") for name in (*self.views, *self.tables))


def three_ways(mine: dict[str, str], base: dict[str, str], theirs: dict[str, str]) -> dict[str, str] | None:
    """What a merge leaves in the parent; None: both sides changed something."""
    after = dict(theirs)
    for name in {*mine, *base}:
        own, before, above = mine.get(name), base.get(name), theirs.get(name)
        if own in (before, above):
            continue
        if above != before:
            return None
        after.pop(name, None)
        if own is not None:
            after[name] = own
    return after


def merged(mine: Line, base: Line, theirs: Line) -> Line | None:
    """The parent after the merge; None: it is refused."""
    views, spaces = (
        three_ways(mine.views, base.views, theirs.views),
        three_ways(mine.spaces, base.spaces, theirs.spaces),
    )
    if views is None or spaces is None:
        return None
    lost = set(base.tables.values()) - set(mine.tables.values())
    after = Line(views, spaces, {name: one for name, one in theirs.tables.items() if one not in lost})
    for name, one in mine.tables.items():
        if one not in base.tables.values():
            if name in after.tables or name.partition(".")[0] not in spaces:
                return None
            after.tables[name] = one
    put = {name for name, text in views.items() if theirs.views.get(name) != text}
    if set(after.tables) & set(views) or any(name.partition(".")[0] not in spaces for name in put):
        return None
    gone = set(theirs.spaces) - set(spaces)
    return None if any(after.inside(space) for space in gone) else after


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rig = BranchRig(seed)
        self.lines = {"": Line(tables={"before": -1, "days": -2})}
        self.left: dict[str, Line] = {}
        self.parents: dict[str, str] = {}
        self.dropped: dict[str, list[tuple[str, int, str]]] = {}  # by line: name, table, id
        self.fresh = 0
        self.merged = self.refused = self.undropped = 0

    def step(self) -> None:
        names = [self.put_view, self.put_view, self.drop_view, self.rename_view, self.put_space, self.put_space]
        lines = [self.branch, self.branch, self.merge, self.refresh, self.drop]
        tables = [self.make_table, self.clone_table, self.drop_table, self.undrop_table]
        self.chance.choice([*names, *lines, *tables, self.drop_space, self.start_again])()

    # -- changes of one line

    def some_line(self) -> tuple[str, Line]:
        return self.chance.choice(list(self.lines.items()))

    def some_name(self) -> str:
        return f"{self.chance.choice(SPACES)}.{self.chance.choice(NAMES)}"

    def plays(self, reason: str, job: Callable[[], object]) -> bool:
        """Whether it was done; it is refused for this reason, if there is one."""
        if not reason:
            self.rig.ask(job)
            return True
        with pytest.raises(MetaError, match=reason):
            self.rig.ask(job)
        return False

    def new_name_refused(self, line: Line, name: str) -> str:
        if name in line.tables:
            return "TABLE_EXISTS"
        if name in line.views:
            return "VIEW_EXISTS"
        return "" if name.partition(".")[0] in line.spaces else "NAMESPACE_UNKNOWN"

    def put_view(self) -> None:
        branch, line = self.some_line()
        name, text = self.some_name(), f"SELECT {self.chance.randrange(4)}"
        view = View(on_branch(name, branch), text.encode(), digest=self.rig.uuid().encode())
        replaces = name in line.views and self.chance.random() < 0.7
        reason = "" if replaces else self.new_name_refused(line, name)
        views = self.rig.catalog.queries
        put = (
            (lambda: views.replace(view, must_exist=True))
            if replaces
            else (lambda: views.create(view, if_not_exists=False))
        )
        if self.plays(reason, put):
            line.views[name] = text

    def drop_view(self) -> None:
        branch, line = self.some_line()
        name = self.some_name()
        dropped = self.rig.ask(lambda: self.rig.catalog.queries.drop(on_branch(name, branch)))
        assert dropped == (name in line.views)
        line.views.pop(name, None)

    def rename_view(self) -> None:
        branch, line = self.some_line()
        if not line.views:
            return
        name, other = self.chance.choice(sorted(line.views)), self.some_name()
        reason = "" if name == other else self.new_name_refused(line, other)
        names = on_branch(name, branch), on_branch(other, branch)
        if self.plays(reason, lambda: self.rig.catalog.queries.rename(*names)):
            line.views[other] = line.views.pop(name)

    def put_space(self) -> None:
        branch, line = self.some_line()
        name, value = self.chance.choice(SPACES), str(self.chance.randrange(3))
        spaces, whole = self.rig.catalog.namespaces, on_branch(name, branch)
        if name in line.spaces:
            self.rig.ask(lambda: spaces.alter(whole, {"user.v": value}, []))
        else:
            self.rig.ask(lambda: spaces.create(Namespace(whole, {"user.v": value}), if_not_exists=False))
        line.spaces[name] = value

    def drop_space(self) -> None:
        branch, line = self.some_line()
        name = self.chance.choice(SPACES)
        reason = "" if name in line.spaces else "NAMESPACE_UNKNOWN"
        reason = "NAMESPACE_NOT_EMPTY" if not reason and line.inside(name) else reason
        drop = self.rig.catalog.namespaces.drop
        if self.plays(reason, lambda: drop(on_branch(name, branch), validate_only=False)):
            del line.spaces[name]

    def make_table(self) -> None:
        branch, line = self.some_line()
        name = self.some_name()
        with_name = self.rig.meta(on_branch(name, branch))
        create = self.rig.catalog.create_table
        if self.plays(self.new_name_refused(line, name), lambda: create(with_name, WHO, Mode.CREATE)):
            self.fresh += 1
            line.tables[name] = self.fresh

    def clone_table(self) -> None:
        """A clone has versions that are older than it, which branches show of no table that was not there."""
        line, name = self.lines[""], self.some_name()
        source = self.rig.reads_table(self.chance.choice(sorted(line.tables)))
        if self.plays(self.new_name_refused(line, name), lambda: self.rig.clone(source, name)):
            self.fresh += 1
            line.tables[name] = self.fresh

    def drop_table(self) -> None:
        branch, line = self.some_line()
        inside = [name for name in line.tables if "." in name]
        if inside:
            name = self.chance.choice(sorted(inside))
            table_id = self.rig.reads_table(on_branch(name, branch))
            self.rig.ask(lambda: self.rig.catalog.drop(table_id, validate_only=False))
            self.dropped.setdefault(branch, []).append((name, line.tables.pop(name), table_id))

    def undrop_table(self) -> None:
        """Branches that were made while it was dropped don't show it."""
        branch, line = self.some_line()
        dropped = self.dropped.get(branch)
        if dropped:
            name, one, table_id = dropped.pop()
            reason = self.new_name_refused(line, name)
            purged = "RETENTION_OVER" if branch else reason  # a fork goes as soon as nobody needs it
            with refused(reason, purged):
                self.rig.ask(lambda: self.rig.catalog.undrop(table_id))
                assert not reason
                line.tables[name] = one
                self.undropped += 1

    # -- branches

    def branch(self) -> None:
        if len(self.lines) > 4:
            return
        self.fresh += 1
        name, (parent, line) = f"b{self.fresh}", self.some_line()
        self.rig.branch(name, parent)
        self.lines[name], self.left[name], self.parents[name] = deepcopy(line), deepcopy(line), parent
        self.maybe_later()

    def leaf(self) -> str:
        leaves = sorted(one for one in self.parents if one not in self.parents.values())
        return self.chance.choice(leaves) if leaves else ""

    def merge(self) -> None:
        name = self.leaf()
        if not name:
            return
        keep, parent = self.chance.random() < 0.3, self.parents[name]
        after = merged(self.lines[name], self.left[name], self.lines[parent])
        would = self.rig.merge(name, keep=keep, validate_only=True)
        did = self.rig.merge(name, keep=keep)
        assert would.is_done == did.is_done == (after is not None), [(one.name, one.refusal) for one in did.named]
        if after is None:
            self.refused += 1
            return
        self.merged += 1
        self.lines[parent] = after
        self.dropped.pop(name, None)  # what was dropped on the branch can't come back
        if keep:
            self.lines[name], self.left[name] = deepcopy(after), deepcopy(after)
        else:
            self.forget(name)

    def refresh(self) -> None:
        name = self.leaf()
        if not name:
            return
        above = self.lines[self.parents[name]]
        after = merged(self.lines[name], self.left[name], above)
        done = self.rig.refresh(name).is_done
        assert done == (after is not None)
        if after is not None:
            self.dropped.pop(name, None)
            before, mine = self.left[name].tables, self.lines[name].tables.values()
            self.lines[name], self.left[name] = after, deepcopy(above)
            for table, one in before.items():  # what was dropped on the branch stays so, also if it comes back above
                if one not in mine and one not in above.tables.values():
                    self.left[name].tables.setdefault(table, one)

    def drop(self) -> None:
        name = self.leaf()
        if name and self.chance.random() < 0.5:
            self.rig.drop(name)
            self.forget(name)

    def forget(self, name: str) -> None:
        del self.lines[name], self.left[name], self.parents[name]

    def start_again(self) -> None:
        self.rig.crash()
        self.maybe_later()

    def maybe_later(self) -> None:
        """What no branch shows is forgotten then; the clock may stand still between two changes, too."""
        if self.chance.random() < 0.5:
            self.rig.pass_time(2_000, looks=2)

    # -- reads

    def check(self) -> None:
        state = self.rig.decider.state
        for branch, line in self.lines.items():
            listed = self.rig.ask(partial(self.rig.catalog.queries.list_all, "", branch, "", 100))
            assert {off_branch(one.name): one.payload.decode() for one in listed} == line.views, branch
            assert all(one.name == on_branch(off_branch(one.name), branch) for one in listed)
            spaces = self.rig.ask(partial(self.rig.catalog.namespaces.list_all, branch, "", 100))
            assert {one.name: one.properties["user.v"] for one in spaces} == line.spaces, branch
            if branch:
                forks = len(state.forks)
                tables = self.rig.catalog.tables.list_on_branch(get_branch(state, branch), "", "", 100)
                assert {one.name for one in tables} == set(line.tables), branch
                assert len(state.forks) == forks
            if self.chance.random() < 0.1:  # a look makes forks
                shown = {one for one in ALL if find_table(state, on_branch(one, branch)) is not None}
                assert shown == {one for one in line.tables if "." in one}, branch

    def check_diff(self) -> None:
        """The diff names what differs from what the parent had."""
        state = self.rig.decider.state
        for name, line in self.lines.items():
            if name:
                left = self.left[name]
                told = {(one.kind, one.name) for one in BranchedNames(state, get_branch(state, name)).all}
                views = {
                    ("view", one) for one in {*line.views, *left.views} if line.views.get(one) != left.views.get(one)
                }
                spaces = {one for one in {*line.spaces, *left.spaces} if line.spaces.get(one) != left.spaces.get(one)}
                assert told == views | {("namespace", one) for one in spaces}

    def check_end(self) -> None:
        """Without branches nothing of them is kept."""
        while name := self.leaf():
            self.rig.drop(name)
            self.forget(name)
        self.rig.pass_time(2_000, looks=2)
        state = self.rig.decider.state
        assert not state.named_views._lines
        assert not state.named_spaces._lines


ALL = [f"{space}.{name}" for space in SPACES for name in NAMES]


def run(seed: int, steps: int) -> World:
    world = World(seed)
    for _ in range(steps):
        world.step()
        world.check()
    world.check_diff()
    world.check_end()
    return world


def test_every_line_shows_its_views_and_namespaces() -> None:
    worlds = [run(seed, steps=120) for seed in range(12)]
    assert sum(world.merged for world in worlds) > 10
    assert sum(world.refused for world in worlds) > 5
    assert sum(world.undropped for world in worlds) > 5


@pytest.mark.long
@pytest.mark.parametrize("first", range(1_000, 2_000, 100))
def test_every_line_shows_its_views_and_namespaces_in_many_histories(first: int) -> None:
    worlds = [run(seed, steps=150) for seed in range(first, first + 100)]
    assert sum(world.merged for world in worlds) > 100


def test_after_a_start_a_new_branch_shows_a_table_that_came_back() -> None:
    """The clock stands still all the while: the branch is not older than the return."""
    rig = BranchRig(1)
    table_id = rig.create("back", None)
    rig.ask(lambda: rig.catalog.drop(table_id, validate_only=False))
    rig.branch("while_gone")
    rig.ask(lambda: rig.catalog.undrop(table_id))
    rig.crash()
    rig.branch("after")
    state = rig.decider.state
    shown = {branch for branch in ("while_gone", "after") if rig.ask(partial(find_table, state, f"back@{branch}"))}
    assert shown == {"after"}


@pytest.mark.parametrize("moves", [lambda rig: rig.refresh("b"), lambda rig: rig.merge("b", keep=True)])
def test_what_was_made_meanwhile_is_on_a_branch_that_moves(moves: Callable[[BranchRig], object]) -> None:
    """The clock went back, so that what was made is newer than it says."""
    rig = BranchRig(1)
    rig.create("first", None)
    rig.branch("b")
    spaces, views = rig.catalog.namespaces, rig.catalog.queries
    rig.ask(lambda: spaces.create(Namespace("later", {}), if_not_exists=False))
    rig.ask(lambda: views.create(View("later.view", b"SELECT 1", digest=b"1"), if_not_exists=False))
    rig.clock.advance(10_000)
    rig.create("later", None)
    rig.clock.advance(-20_000)
    moves(rig)
    assert rig.ask(lambda: find_table(rig.decider.state, "later@b"))
    assert rig.ask(lambda: views.get("later.view@b")).payload == b"SELECT 1"
    assert "later" in [space.name for space in rig.ask(lambda: spaces.list_all("b", "", 100))]
