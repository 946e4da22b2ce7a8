"""Namespaces: create, alter, find, list, drop. Methods run on the decider's thread: answers are durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest

from metaservice.core import limits
from metaservice.core.access import Place
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import Branch, off_branch, on_branch
from metaservice.core.table.meta import Namespace
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.naming import (
    branch_in,
    check_empty,
    find_namespace,
    get_namespace,
    next_change_us,
    tables_in,
    views_in,
)


class Namespaces:
    """The use cases."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    def create(self, definition: Namespace, *, if_not_exists: bool) -> tuple[Namespace, bool]:
        """Returns the namespace, and whether this call created it; the same request again gets the same answer."""
        state, branch = self._decider.state, branch_in(self._decider.state, definition.name)
        existing = find_namespace(state, definition.name)
        if existing is not None:
            repeated = bool(definition.digest) and existing.digest == definition.digest
            if not repeated and not if_not_exists:
                raise MetaError(ErrorKind.ALREADY_EXISTS, "NAMESPACE_EXISTS", namespace=definition.name)
            return existing, repeated
        if branch is None and state.namespaces.is_taken(definition.name):
            raise MetaError(ErrorKind.ALREADY_EXISTS, "NAMESPACE_EXISTS", namespace=definition.name)
        if len(state.named_spaces) >= limits.NAMESPACES_MAX:
            raise MetaError(ErrorKind.BLOCKED, "TOO_MANY_NAMESPACES", most=limits.NAMESPACES_MAX)
        made = replace(definition, name=off_branch(definition.name), create_time_us=max(self._clocks.now_us(), 0))
        self._put(made, branch)
        return made, True

    def is_known(self, name: str) -> bool:
        return find_namespace(self._decider.state, name) is not None

    def alter(self, name: str, updates: Mapping[str, str], removals: Sequence[str]) -> tuple[Namespace, list[str]]:
        """Returns the altered namespace, and those properties that it had and lost."""
        state = self._decider.state
        namespace = get_namespace(state, name)
        removed = [removal for removal in removals if removal in namespace.properties]
        kept = {key: value for key, value in namespace.properties.items() if key not in removed} | dict(updates)
        if len(kept) > limits.PROPERTIES_MAX:
            raise invalid("TOO_MANY_PROPERTIES", count=len(kept), most=limits.PROPERTIES_MAX)
        after = replace(namespace, properties=kept)
        self._put(after, branch_in(state, name))
        return after, removed

    def get(self, name: str) -> Namespace:
        return get_namespace(self._decider.state, name)

    def list_all(self, branch_name: str, after: str, count: int) -> list[Namespace]:
        """Lists namespaces by name, of the lake or of a branch."""
        state = self._decider.state
        namespaces = state.named_spaces.list_all(branch_in(state, on_branch("", branch_name)))
        return [namespaces[name] for name in nsmallest(count, (name for name in namespaces if name > after))]

    def drop(self, name: str, *, validate_only: bool) -> None:
        """Drops a namespace; refused while it contains live tables, or views."""
        state, branch = self._decider.state, branch_in(self._decider.state, name)
        name = get_namespace(state, name).name
        check_empty(name, tables_in(state, name, branch), views_in(state, name, branch))
        if not validate_only:
            state.named_spaces.drop(state.batch, branch, name, next_change_us(state, self._clocks))
            if branch is None:
                state.access.forget(Place(namespace=name), state.batch)

    def _put(self, namespace: Namespace, branch: Branch | None) -> None:
        state = self._decider.state
        kept = replace(namespace, since_us=next_change_us(state, self._clocks))
        state.named_spaces.put(state.batch, branch, kept)
