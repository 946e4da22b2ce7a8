"""Namespaces: create, alter, find, list, drop. Methods run on the decider's thread: answers are durable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest

from metaservice.core import limits
from metaservice.core.access import Place
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.meta import Namespace
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.naming import get_namespace
from metaservice.store import keys
from metaservice.store.records.tables import encode_namespace


class Namespaces:
    """The use cases."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    def create(self, wanted: Namespace, *, if_not_exists: bool) -> tuple[Namespace, bool]:
        """Returns the namespace, and whether this call created it; the same request again gets the same answer."""
        state = self._decider.state
        known = state.namespaces.find(wanted.name)
        if known is not None:
            repeated = bool(wanted.digest) and known.digest == wanted.digest
            if not repeated and not if_not_exists:
                raise MetaError(ErrorKind.ALREADY_EXISTS, "NAMESPACE_EXISTS", namespace=wanted.name)
            return known, repeated
        if state.namespaces.is_taken(wanted.name):
            raise MetaError(ErrorKind.ALREADY_EXISTS, "NAMESPACE_EXISTS", namespace=wanted.name)
        if len(state.namespaces) >= limits.NAMESPACES_MAX:
            raise MetaError(ErrorKind.EXHAUSTED, "TOO_MANY_NAMESPACES", most=limits.NAMESPACES_MAX)
        made = replace(wanted, create_time_us=max(self._clocks.now_us(), 0))
        state.batch.put(keys.namespace_key(made.name), encode_namespace(made))
        state.namespaces[made.name] = made
        return made, True

    def is_known(self, name: str) -> bool:
        return self._decider.state.namespaces.find(name) is not None

    def alter(self, name: str, updates: Mapping[str, str], removals: Sequence[str]) -> tuple[Namespace, list[str]]:
        """Returns the namespace after it, and the removed properties that were there."""
        state = self._decider.state
        known = get_namespace(state, name)
        removed = [removal for removal in removals if removal in known.properties]
        kept = {one: value for one, value in known.properties.items() if one not in removed} | dict(updates)
        if len(kept) > limits.PROPERTIES_MAX:
            raise invalid("TOO_MANY_PROPERTIES", count=len(kept), most=limits.PROPERTIES_MAX)
        after = replace(known, properties=kept)
        state.batch.put(keys.namespace_key(known.name), encode_namespace(after))
        state.namespaces[known.name] = after
        return after, removed

    def get(self, name: str) -> Namespace:
        return get_namespace(self._decider.state, name)

    def list_all(self, after: str, count: int) -> list[Namespace]:
        """Namespaces by name."""
        known = self._decider.state.namespaces
        return [known[name] for name in nsmallest(count, (name for name in known if name > after))]

    def drop(self, name: str, *, validate_only: bool) -> None:
        """Drops a namespace; refused while it contains live tables, or views."""
        state = self._decider.state
        name = get_namespace(state, name).name
        inside = [table for table in state.names if table.startswith(f"{name}.")]
        queries = [view for view in state.queries if view.startswith(f"{name}.")]
        if inside or queries:
            counts = {"tables": len(inside), **({"views": len(queries)} if queries else {})}
            raise MetaError(
                ErrorKind.BLOCKED, "NAMESPACE_NOT_EMPTY", namespace=name, **counts, first=min(inside + queries)
            )
        if not validate_only:
            state.batch.delete(keys.namespace_key(name))
            del state.namespaces[name]
            state.access.forget(Place(namespace=name), state.batch)
