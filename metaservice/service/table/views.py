"""Views: put, find, list, rename, drop. Every method runs on the decider's thread, so that answers are durable.

The name of a view on a branch says so, as that of a table does.
"""

from __future__ import annotations

from dataclasses import replace
from heapq import nsmallest

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.branches import check_same_branch, off_branch, on_branch
from metaservice.core.table.meta import View
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.naming import (
    branch_in,
    check_free,
    find_view,
    get_view,
    next_change_us,
    table_name_in,
)
from metaservice.service.decider.state import State


class Views:
    """The use cases."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    @property
    def _state(self) -> State:
        return self._decider.state

    def create(self, new_view: View, *, if_not_exists: bool) -> tuple[View, bool]:
        """Returns the view, and whether this call created it; the same request again gets the same answer."""
        state = self._state
        state.need("views")
        view = find_view(state, new_view.name)
        if view is not None and (view.digest == new_view.digest or if_not_exists):
            return view, view.digest == new_view.digest
        check_free(state, new_view.name)
        if len(state.named_views) >= limits.VIEWS_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_VIEWS", most=limits.VIEWS_MAX)
        name = table_name_in(state, new_view.name)
        return self._put(replace(new_view, name=name, create_time_us=self._now_us())), True

    def replace(self, new_view: View, *, must_exist: bool) -> tuple[View, bool]:
        """Replaces the view of that name at once; without one creates it, unless it must exist."""
        view = find_view(self._state, new_view.name)
        if view is None and not must_exist:
            return self.create(new_view, if_not_exists=False)
        view = get_view(self._state, new_view.name)
        if view.digest == new_view.digest:
            return view, view.replace_time_us == 0
        made_us, now_us = view.create_time_us, self._now_us()
        return self._put(replace(new_view, name=view.name, create_time_us=made_us, replace_time_us=now_us)), False

    def get(self, name: str) -> View:
        return get_view(self._state, name)

    def list_all(self, namespace: str, branch_name: str, after: str, count: int) -> list[View]:
        """Views by name; of the lake, or of a branch as their names say then."""
        branch = branch_in(self._state, on_branch("", branch_name))
        views = self._state.named_views.list_all(branch)
        prefix, last = f"{namespace}." if namespace else "", off_branch(after)
        names = nsmallest(count, (name for name in views if name > last and name.startswith(prefix)))
        if branch is None:
            return [views[name] for name in names]
        return [replace(views[name], name=on_branch(name, branch.name)) for name in names]

    def rename(self, name: str, new_name: str) -> View:
        """Renames a view; a repetition finds it renamed."""
        state = self._state
        if branch_in(state, name) != branch_in(state, new_name):
            check_same_branch(name, new_name)
        renamed = find_view(state, new_name)
        if renamed is not None and find_view(state, name) is None:
            return renamed
        view = get_view(state, name)
        check_free(state, new_name, view=view.name)
        new_view = replace(view, name=table_name_in(state, new_name))
        self._drop(view)
        return self._put(new_view)

    def drop(self, name: str) -> bool:
        """Whether there was one."""
        view = find_view(self._state, name)
        if view is not None:
            self._drop(view)
        return view is not None

    def _put(self, view: View) -> View:
        """As of now, under its name with or without a branch."""
        state, branch = self._state, branch_in(self._state, view.name)
        kept = replace(view, name=off_branch(view.name), since_us=self._change_us())
        state.named_views.put(state.batch, branch, kept)
        return view

    def _drop(self, view: View) -> None:
        state, branch = self._state, branch_in(self._state, view.name)
        state.named_views.drop(state.batch, branch, off_branch(view.name), self._change_us())

    def _change_us(self) -> int:
        return next_change_us(self._state, self._clocks)

    def _now_us(self) -> int:
        return max(self._clocks.now_us(), 1)
