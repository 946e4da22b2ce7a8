"""Views: put, find, list, rename, drop. Every method runs on the decider's thread, so that answers are durable."""

from __future__ import annotations

from dataclasses import replace
from heapq import nsmallest
from itertools import islice

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import View
from metaservice.core.table.types import did_you_mean
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.naming import check_free, table_name_in
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.tables import encode_view


class Views:
    """The use cases."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    def create(self, wanted: View, *, if_not_exists: bool) -> tuple[View, bool]:
        """Returns the view, and whether this call created it; the same request again gets the same answer."""
        state = self._decider.state
        state.need("views")
        known = state.queries.find(wanted.name)
        if known is not None and (known.digest == wanted.digest or if_not_exists):
            return known, known.digest == wanted.digest
        check_free(state, wanted.name)
        if len(state.queries) >= limits.VIEWS_MAX:
            raise MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_VIEWS", most=limits.VIEWS_MAX)
        name = table_name_in(state, wanted.name)
        return self._put(replace(wanted, name=name, create_time_us=self._now_us())), True

    def replace(self, wanted: View, *, must_exist: bool) -> tuple[View, bool]:
        """Replaces the view of that name at once; without one creates it, unless it must exist."""
        state = self._decider.state
        known = state.queries.find(wanted.name)
        if known is None and not must_exist:
            return self.create(wanted, if_not_exists=False)
        known = get_view(state, wanted.name)
        if known.digest == wanted.digest:
            return known, known.replace_time_us == 0
        made_us, now_us = known.create_time_us, self._now_us()
        return self._put(replace(wanted, name=known.name, create_time_us=made_us, replace_time_us=now_us)), False

    def get(self, name: str) -> View:
        return get_view(self._decider.state, name)

    def list_all(self, namespace: str, after: str, count: int) -> list[View]:
        """Views by name."""
        known = self._decider.state.queries
        prefix = f"{namespace}." if namespace else ""
        return [known[name] for name in nsmallest(count, (n for n in known if n > after and n.startswith(prefix)))]

    def rename(self, name: str, new_name: str) -> View:
        """Renames a view; a repetition finds it renamed."""
        state = self._decider.state
        there = state.queries.find(name)
        if there is None and new_name in state.queries:
            return state.queries[new_name]
        view = get_view(state, name)
        check_free(state, new_name, view=view.name)
        renamed = replace(view, name=table_name_in(state, new_name))
        self._drop(view)
        return self._put(renamed)

    def drop(self, name: str) -> bool:
        """Whether there was one."""
        view = self._decider.state.queries.find(name)
        if view is not None:
            self._drop(view)
        return view is not None

    def _put(self, view: View) -> View:
        state = self._decider.state
        state.batch.put(keys.view_key(view.name), encode_view(view))
        state.queries[view.name] = view
        return view

    def _drop(self, view: View) -> None:
        state = self._decider.state
        state.batch.delete(keys.view_key(view.name))
        del state.queries[view.name]

    def _now_us(self) -> int:
        return max(self._clocks.now_us(), 1)


def get_view(state: State, name: str) -> View:
    found = state.queries.find(name)
    if found is None:
        hint = did_you_mean(name, islice(state.queries, limits.HINT_NAMES_MAX))
        raise MetaError(ErrorKind.NOT_FOUND, "VIEW_UNKNOWN", view=name, **hint)
    return found
