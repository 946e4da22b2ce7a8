"""Names of tables, views and namespaces: stored as written, case-insensitive, each used once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import Branch, branch_of, off_branch, on_branch
from metaservice.core.table.meta import Namespace, View
from metaservice.core.table.model import TableCommit
from metaservice.core.table.types import did_you_mean
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.forking import find_table, get_branch
from metaservice.service.decider.state import State

NO_VIEW: Final = "VIEW_UNKNOWN"


def branch_in(state: State, name: str) -> Branch | None:
    """The branch that a name says; None: the lake."""
    return get_branch(state, branch_of(name)) if branch_of(name) else None


def find_view(state: State, name: str) -> View | None:
    """A view by its name, which may say a branch; it is answered with such a name then."""
    branch = branch_in(state, name)
    shown = state.named_views.find(off_branch(name), branch)
    return shown if shown is None or branch is None else replace(shown, name=on_branch(shown.name, branch.name))


def get_view(state: State, name: str) -> View:
    shown = find_view(state, name)
    if shown is None:
        hint = did_you_mean(name, islice(state.queries, limits.HINT_NAMES_MAX))
        raise MetaError(ErrorKind.NOT_FOUND, NO_VIEW, view=name, **hint)
    return shown


def find_namespace(state: State, name: str) -> Namespace | None:
    """A namespace, of a branch if the name says one; it is answered by its name without a branch."""
    return state.named_spaces.find(off_branch(name), branch_in(state, name))


def get_namespace(state: State, name: str) -> Namespace:
    shown = find_namespace(state, name)
    if shown is None:
        hint = did_you_mean(name, islice(state.namespaces, limits.HINT_NAMES_MAX))
        raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=name, **hint)
    return shown


def table_name_in(state: State, table_name: str) -> str:
    """The name with its namespace as stored, which must exist; a bare name is in none."""
    namespace, dot, name = table_name.partition(".")
    branch = branch_in(state, table_name)
    if branch is not None:
        branch.check_has(table_name)
        namespace = on_branch(namespace, branch.name)
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
    if branch_of(name):
        find_table(state, name)  # one that nobody has asked for on the branch yet is there from now on
    written = state.names.as_written(name)
    holder = None if written is None else state.names[written]
    if state.names.is_taken(name) and holder != table_id:
        spelling = {} if written is None else {"known_as": written}
        raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_EXISTS", name=name, **spelling)
    shown = find_view(state, name)
    is_taken = shown is not None or (not branch_of(name) and state.queries.is_taken(name))
    if is_taken and (not view or shown is None or shown.name != view):
        spelling = {} if shown is None else {"known_as": shown.name}
        raise MetaError(ErrorKind.ALREADY_EXISTS, "VIEW_EXISTS", name=name, **spelling)


def tables_in(state: State, namespace: str, branch: Branch | None) -> list[str]:
    """The tables of a namespace of the lake, or those that a branch shows in it."""
    names = [name for name in state.names if name.startswith(f"{namespace}.")]
    if branch is None:
        return [name for name in names if not branch_of(name)]
    on_it = sorted({on_branch(off_branch(name), branch.name) for name in names if branch.has(off_branch(name))})
    return [name for name in on_it if find_table(state, name) is not None]


def views_in(state: State, namespace: str, branch: Branch | None) -> list[str]:
    """The views of a namespace of the lake or of a branch, by their names without a branch."""
    return [name for name in state.named_views.list_all(branch) if name.startswith(f"{namespace}.")]


def check_empty(name: str, tables: Sequence[str], views: Sequence[str]) -> None:
    """Refuses to drop a namespace that has something."""
    if tables or views:
        counts = {"tables": len(tables), **({"views": len(views)} if views else {})}
        raise MetaError(
            ErrorKind.BLOCKED, "NAMESPACE_NOT_EMPTY", namespace=name, **counts, first=min([*tables, *views])
        )


def next_change_us(state: State, clocks: Clocks) -> int:
    """The time of a change of names: no branch has left by then, and each that leaves later sees the change."""
    time_us = max(clocks.now_us(), state.answered_us + 1)
    state.note_answered(time_us)
    return time_us
