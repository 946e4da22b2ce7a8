"""A merge or refresh judged in turns: some commits in each group of the decider, so that others' commits go on between.

A table's result stays valid while the fork and its parent have no new commit. Nothing is changed before the last turn.
That one takes the results that are still valid, judges the other tables anew, and decides as if it had judged them all.
What was decided is put into the state in turns, too (`HeldTables`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from metaservice.core import limits
from metaservice.service.branch.replay import Replay, Replayed
from metaservice.service.decider.decider import ContinueNextGroup
from metaservice.service.decider.held_tables import HeldTables
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import keys

Line = tuple[tuple[str, TableState | None, int], ...]  # a fork, its parent, and what that is a fork of: their heads
TRIES: Final = 3  # of a table that others change meanwhile; then the last turn judges it


@dataclass(slots=True)
class TableTurns:
    """How far one table is judged, at the versions for which that is so."""

    line: Line
    replay: Replay
    steps: Iterator[int]
    is_done: bool = False

    def is_current(self, state: State) -> bool:
        """Whether none of these tables has a new commit, or was dropped."""
        tables = state.tables
        for table_id, table, head in self.line:
            if tables.get(table_id) is not table or (table is not None and table.head != head):
                return False
        return True


@dataclass(slots=True)
class MergeTurns:
    """What a merge or refresh has judged. It goes with the request, and no restart knows it."""

    tables: dict[bytes, TableTurns] = field(default_factory=dict)
    tries: Counter[bytes] = field(default_factory=Counter)
    held: HeldTables[Any] | None = None  # since it is decided
    _waiting: list[TableState] = field(default_factory=list)
    _begin: Callable[[TableState], TableTurns] | None = None

    def resume(self, state: State) -> None:
        """Goes on with the tables that the last turn left. If it left any, that is a turn: raises ContinueNextGroup.

        So most turns look at some tables alone; the one that finds none left looks at all.
        """
        if self._begin is not None and self._waiting:
            state.flush()
            self._judge(state, self._begin)
            raise ContinueNextGroup

    def go_on(self, state: State, forks: Iterable[TableState], begin: Callable[[TableState], TableTurns]) -> None:
        """Judges as much as a turn allows. Raises ContinueNextGroup if it is not all, and the last turn is not yet."""
        self._begin, self._waiting = begin, [table for table in forks if not self._is_judged(state, table)]
        self._waiting.reverse()
        self._judge(state, begin)

    def _is_judged(self, state: State, table: TableState) -> bool:
        judged = self.tables.get(table.raw_id)
        return judged is not None and judged.is_done and judged.is_current(state)

    def _judge(self, state: State, begin: Callable[[TableState], TableTurns]) -> None:
        """Judges those that wait, the last first."""
        left = turn = max(min(limits.MERGE_TURN, state.judging_left), limits.JUDGE_TURN_MIN)
        try:
            while self._waiting:
                judged = self._at_its_heads(state, self._waiting[-1], begin)
                while judged is not None and not judged.is_done:
                    if left <= 0:
                        raise ContinueNextGroup
                    cost = next(judged.steps, None)
                    judged.is_done = cost is None
                    left -= cost or 0
                self._waiting.pop()
        finally:
            state.judging_left -= turn - left

    def _at_its_heads(
        self, state: State, table: TableState, begin: Callable[[TableState], TableTurns]
    ) -> TableTurns | None:
        """How far a table is judged as it is; None: it is gone, or the last turn has to judge it."""
        raw_id = table.raw_id
        judged = self.tables.get(raw_id)
        if judged is not None and judged.is_current(state):
            return judged
        line = line_of(state, table)
        is_there = line[0][1] is table and line[1][1] is not None
        if not is_there or self.tries[raw_id] == TRIES:
            self.tables.pop(raw_id, None)
            return None
        self.tries[raw_id] += 1
        judged = self.tables[raw_id] = begin(table)
        return judged

    def find(self, table: TableState, time_us: int) -> Replayed | None:
        """The result of a table, in the turn in which `go_on` leaves nothing to do. None: it has to be judged."""
        judged = self.tables.get(table.raw_id)
        return None if judged is None else judged.replay.done.at(time_us)


def line_of(state: State, table: TableState) -> Line:
    """Return a fork, its parent, the parent's parent and so on, as they are now; None in place of a dropped table."""
    line, raw_id = list[tuple[str, TableState | None, int]](), table.raw_id
    while raw_id:
        table_id = keys.uuid_text(raw_id)
        member = state.tables.get(table_id)
        line.append((table_id, member, -1 if member is None else member.head))
        raw_id = member.fork.base if member is not None and member.fork is not None else b""
    return tuple(line)
