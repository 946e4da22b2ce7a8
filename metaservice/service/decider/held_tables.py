"""One decision that is put into the state in several groups, and written to the store in the last of them.

From its first turn to its last one the tables are held: jobs that may have to do with them wait, others' commits go on.
What it changes is laid aside meanwhile, so others' groups write and publish nothing of it. After a crash before the
last turn's sync nothing of it has happened.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from operator import itemgetter
from typing import Generic, TypeVar

from metaservice.core import limits
from metaservice.core.errors import MetaError
from metaservice.service.decider.decider import ContinueNextGroup
from metaservice.service.decider.state import State
from metaservice.service.decider.unwritten import Unwritten

T = TypeVar("T")
Steps = Generator[int, None, T]  # yields what each step cost, in commits written; the last one has the answer


class HeldTables(Generic[T]):
    """The tables, and the steps that change them. Nothing refuses a step any more, and none flushes."""

    def __init__(self, state: State, table_ids: Collection[str], steps: Steps[T]) -> None:
        self._state = state
        self._aside = Unwritten()
        self._steps = self._with_views(steps)
        state.held = table_ids

    def _with_views(self, steps: Steps[T]) -> Steps[T]:
        """The steps, and then the views that the last one publishes."""
        answer = yield from steps
        state, views = self._state, self._aside.views
        changed = list(state.changed)
        for table_id in changed:
            table, shown = state.tables.get(table_id), state.views.find(table_id)
            if table is not None and shown is not None and shown.meta.name == table.meta.name:
                views[table_id] = table.view()
                state.changed.discard(table_id)
                yield 1
        state.batch.ops.sort(key=itemgetter(0))  # neighbours are written in less time; those of one key stay in order
        yield len(changed)  # to write and to publish takes as long
        return answer

    def go_on(self) -> T:
        """As many steps as a turn allows. Raises ContinueNextGroup unless these were the last ones."""
        state, left = self._state, limits.MERGE_WRITTEN
        state.exchange(self._aside)
        try:
            while left > 0:
                left -= next(self._steps)
        except StopIteration as end:
            state.exchange(self._aside)
            state.take_back(self._aside)
            state.held = ()
            answer: T = end.value
            return answer
        except MetaError as refusal:
            raise AssertionError("what was decided was refused when it was half done") from refusal
        state.exchange(self._aside)
        raise ContinueNextGroup(alone=True)
