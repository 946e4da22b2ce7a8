"""Names of tables and namespaces: stored as written, case-insensitive, each used once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import branch_of, unknown_branch
from metaservice.core.table.meta import Namespace
from metaservice.core.table.model import TableCommit
from metaservice.core.table.types import did_you_mean
from metaservice.service.decider.state import State


def get_namespace(state: State, name: str) -> Namespace:
    found = state.namespaces.find(name)
    if found is None:
        hint = did_you_mean(name, islice(state.namespaces, limits.HINT_NAMES_MAX))
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=name, **hint)
    return found


def table_name_in(state: State, table_name: str) -> str:
    """The name with its namespace as stored, which must exist; a bare name is in none."""
    namespace, dot, name = table_name.partition(".")
    if branch_of(table_name):
        branch = state.branches.find(branch_of(table_name))
        if branch is None:
            raise unknown_branch(branch_of(table_name))
        branch.check_has(table_name)
    return f"{get_namespace(state, namespace).name}.{name}" if dot else table_name


def check_renames(state: State, commits: Sequence[TableCommit]) -> None:
    """Checks that new names are free, each used once, in existing namespaces."""
    taken: set[str] = set()
    for commit in commits:
        table_id = commit.change.table_id
        if commit.meta is not None and commit.meta.name != state.tables[table_id].meta.name:
            name = commit.meta.name
            check_free(state, name, table_id)
            if name.lower() in taken or table_name_in(state, name) != name:
                raise invalid(
                    "NAME_INVALID", "the name is given twice, or its namespace in another case: correct it", name=name
                )
            taken.add(name.lower())


def check_free(state: State, name: str, table_id: str = "", view: str = "") -> None:
    """Checks that a table or view can have a name; it can have its own name in another case."""
    written = state.names.as_written(name)
    there = None if written is None else state.names[written]
    if state.names.is_taken(name) and there != table_id:
        known = {} if written is None else {"known_as": written}
        raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_EXISTS", name=name, **known)
    if state.queries.is_taken(name) and (not view or state.queries.as_written(name) != view):
        query = state.queries.as_written(name)
        known = {} if query is None else {"known_as": query}
        raise MetaError(ErrorKind.ALREADY_EXISTS, "VIEW_EXISTS", name=name, **known)
