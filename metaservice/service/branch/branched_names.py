"""Views and namespaces that were changed on a branch: what a merge or a refresh makes of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from metaservice.core.access import Place
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.branches import Branch, on_branch
from metaservice.core.table.meta import Namespace, View
from metaservice.core.table.name_history import Fate, Thing, fate_of, is_same
from metaservice.service.decider.forking import find_table, get_branch
from metaservice.service.decider.name_book import NameBook
from metaservice.service.decider.naming import check_empty, tables_in, views_in
from metaservice.service.decider.state import State

VIEW, NAMESPACE = "view", "namespace"
NEW, CHANGED, DROPPED = "new", "changed", "dropped"


@dataclass(slots=True)
class BranchedName:
    """A view or a namespace that was changed on a branch. `name` says no branch; `thing` is None if it was dropped."""

    kind: str
    name: str
    change: str
    thing: View | Namespace | None
    fate: Fate
    refusal: MetaError | None = None


class BranchedNames:
    """Those of one branch, beside its parent as it is now."""

    def __init__(self, state: State, branch: Branch) -> None:
        self._state = state
        self._branch = branch
        self._parent = get_branch(state, branch.parent) if branch.parent else None
        self.all = [*self._of(NAMESPACE, state.named_spaces), *self._of(VIEW, state.named_views)]

    def _of(self, kind: str, book: NameBook[Thing]) -> list[BranchedName]:
        changes = []
        for name, own in sorted(book.own(self._branch).items()):
            base = book.find_at(name, self._parent, self._branch.time_us)
            theirs = book.find(name, self._parent)
            change = DROPPED if own is None else CHANGED if base is not None else NEW
            shown = own or theirs or base
            if shown is not None and not is_same(own, base):
                changes.append(BranchedName(kind, shown.name, change, own, fate_of(own, base, theirs)))
        return changes

    @property
    def to_come(self) -> list[BranchedName]:
        """What the parent has not got yet."""
        return [named for named in self.all if named.fate is not Fate.UNCHANGED]

    def dropped_views(self) -> set[str]:
        """The names that views give up in the parent, as they are written with it."""
        lost = {named.name.lower() for named in self.to_come if named.kind == VIEW and named.thing is None}
        return {self._above(name) for name in self._state.named_views.list_all(self._parent) if name.lower() in lost}

    def check(self, freed: Collection[str]) -> None:
        """Notes why names can't be merged. The tables `freed` go with the merge."""
        for named in self.to_come:
            try:
                if named.fate is Fate.CONFLICT:
                    raise MetaError(ErrorKind.BLOCKED, "MERGE_NAME_CHANGED", kind=named.kind, name=named.name)
                if named.kind == VIEW and named.thing is not None:
                    self.placed(named.name)
                    self._check_free(named.name, freed)
                elif named.thing is None and named.kind == NAMESPACE:
                    self._check_empty(named.name, freed)
            except MetaError as refusal:
                named.refusal = refusal

    def placed(self, name: str) -> str:
        """The name with its namespace as the parent writes it, which has it or gets it."""
        namespace, dot, last = name.partition(".")
        if not dot:
            return name
        theirs = self._state.named_spaces.find(namespace, self._parent)
        for named in self.to_come:
            if named.kind == NAMESPACE and named.name.lower() == namespace.lower():
                made = named.thing if isinstance(named.thing, Namespace) else None
                theirs = None if made is None else theirs or made
        if theirs is None:
            raise MetaError(ErrorKind.NOT_FOUND, "NAMESPACE_UNKNOWN", namespace=namespace)
        return f"{theirs.name}.{last}"

    def _check_free(self, name: str, freed: Collection[str]) -> None:
        table = find_table(self._state, self._above(name)) if self._is_shown(name) else None
        if table is not None and table.meta.table_id not in freed:
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TABLE_EXISTS", name=self._above(name))

    def _is_shown(self, name: str) -> bool:
        return self._parent is None or self._parent.has(name)

    def _check_empty(self, name: str, freed: Collection[str]) -> None:
        state = self._state
        tables = [table for table in tables_in(state, name, self._parent) if state.names.find(table) not in freed]
        lost = {named.name.lower() for named in self.to_come if named.kind == VIEW and named.thing is None}
        views = [view for view in views_in(state, name, self._parent) if view.lower() not in lost]
        check_empty(name, tables, views)

    def _above(self, name: str) -> str:
        return on_branch(name, self._branch.parent)

    # -- changes

    def drop_in_parent(self, time_us: int) -> None:
        """Before tables that were made on the branch get the names."""
        state = self._state
        for named in self.to_come:
            if named.thing is None and named.kind == VIEW:
                state.named_views.drop(state.batch, self._parent, named.name, time_us)
        for named in self.to_come:
            if named.thing is None and named.kind == NAMESPACE:
                state.named_spaces.drop(state.batch, self._parent, named.name, time_us)
                if self._parent is None:
                    state.access.forget(Place(namespace=named.name), state.batch)

    def put_in_parent(self, time_us: int) -> None:
        state = self._state
        for named in self.to_come:
            if isinstance(named.thing, Namespace):
                theirs = state.named_spaces.find(named.name, self._parent)  # tables have its name as it is written
                name = named.name if theirs is None else theirs.name
                kept = replace(named.thing, name=name, since_us=time_us)
                state.named_spaces.put(state.batch, self._parent, kept)
            elif isinstance(named.thing, View):
                state.named_views.put(state.batch, self._parent, replace(named.thing, since_us=time_us))

    def forget(self) -> None:
        """The branch shows what its parent does."""
        self._state.named_views.forget(self._state.batch, self._branch)
        self._state.named_spaces.forget(self._state.batch, self._branch)

    def forget_unchanged(self) -> None:
        """The same of names that its parent has as the branch does."""
        kept = {(named.kind, named.name.lower()) for named in self.to_come}
        for kind, book in ((VIEW, self._state.named_views), (NAMESPACE, self._state.named_spaces)):
            lost = [name for name in book.own(self._branch) if (kind, name) not in kept]
            book.forget(self._state.batch, self._branch, lost)
