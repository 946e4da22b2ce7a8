"""Namespaces: create, find, list, drop. Every method runs on the decider's thread, so that answers are durable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.model import Namespace, TableCommit
from metaservice.core.types import did_you_mean
from metaservice.service.clocks import Clocks
from metaservice.service.decider import Decider
from metaservice.service.state import State
from metaservice.store import keys
from metaservice.store.records import encode_namespace


class Namespaces:
    """The use cases."""

    def __init__(self, decider: Decider, clocks: Clocks) -> None:
        self._decider = decider
        self._clocks = clocks

    def create(self, wanted: Namespace, *, if_not_exists: bool) -> tuple[Namespace, bool]:
        """The namespace, and whether it was made here; the same request again gets the same answer."""
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

    def get(self, name: str) -> Namespace:
        return get_namespace(self._decider.state, name)

    def list_all(self, after: str, count: int) -> list[Namespace]:
        """By name."""
        known = self._decider.state.namespaces
        return [known[name] for name in nsmallest(count, (name for name in known if name > after))]

    def drop(self, name: str, *, validate_only: bool) -> None:
        """Refused while tables live in it. Dropped ones don't hold it."""
        state = self._decider.state
        name = get_namespace(state, name).name
        inside = [table for table in state.names if table.startswith(f"{name}.")]
        if inside:
            raise MetaError(
                ErrorKind.BLOCKED, "NAMESPACE_NOT_EMPTY", namespace=name, tables=len(inside), first=min(inside)
            )
        if not validate_only:
            state.batch.delete(keys.namespace_key(name))
            del state.namespaces[name]


def get_namespace(state: State, name: str) -> Namespace:
    found = state.namespaces.find(name)
    if found is None:
        hint = did_you_mean(name, islice(state.namespaces, limits.HINT_NAMES_MAX))
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=name, **hint)
    return found


def table_name_in(state: State, table_name: str) -> str:
    """With its namespace as that is written, which must be there; a bare name lies in none."""
    namespace, dot, name = table_name.partition(".")
    return f"{get_namespace(state, namespace).name}.{name}" if dot else table_name


def check_renames(state: State, commits: Sequence[TableCommit]) -> None:
    """New names are free, each taken once, in namespaces that are there."""
    taken: set[str] = set()
    for commit in commits:
        table_id = commit.change.table_id
        if commit.meta is not None and commit.meta.name != state.tables[table_id].meta.name:
            name = commit.meta.name
            check_free(state, name, table_id)
            if name.lower() in taken or table_name_in(state, name) != name:
                raise invalid("NAME_INVALID", "one table a name, and its namespace as it is written", name=name)
            taken.add(name.lower())


def check_free(state: State, name: str, table_id: str = "") -> None:
    """Whether a table may have a name; its own it may have in another case."""
    written = state.names.as_written(name)
    there = None if written is None else state.names[written]
    if state.names.is_taken(name) and there != table_id:
        known = {} if written is None else {"known_as": written}
        raise MetaError(
            ErrorKind.ALREADY_EXISTS, "TABLE_EXISTS", "names differ by more than their case", name=name, **known
        )
