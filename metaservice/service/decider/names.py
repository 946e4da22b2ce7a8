"""Case-insensitive names that are stored as written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from metaservice.core.table.branches import Branch, branch_of

Thing = TypeVar("Thing")


class AnyCase(dict[str, Thing]):
    """Values by name.

    Two names that differ only in case can only come from an earlier release: each is found by its exact name.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, list[str]] = {}

    def __setitem__(self, name: str, thing: Thing) -> None:
        if name not in self:
            self._written.setdefault(name.lower(), []).append(name)
        super().__setitem__(name, thing)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        left = [one for one in self._written[name.lower()] if one != name]
        if left:
            self._written[name.lower()] = left
        else:
            del self._written[name.lower()]

    def as_written(self, name: str) -> str | None:
        """The stored name; None if there is none, or if two differ only in case."""
        if name in self:
            return name
        found = self._written.get(name.lower(), [])
        return found[0] if len(found) == 1 else None

    def is_taken(self, name: str) -> bool:
        """Whether the name is used, in any case."""
        return name.lower() in self._written

    def find(self, name: str) -> Thing | None:
        written = self.as_written(name)
        return None if written is None else self.get(written)


class TableNames(AnyCase[str]):
    """The ids of tables by name, and the names that are on each branch."""

    def __init__(self) -> None:
        super().__init__()
        self._on: dict[str, dict[str, None]] = {}

    def __setitem__(self, name: str, table_id: str) -> None:
        super().__setitem__(name, table_id)
        if branch := branch_of(name).lower():
            self._on.setdefault(branch, {})[name] = None

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        if branch := branch_of(name).lower():
            del self._on[branch][name]
            if not self._on[branch]:
                del self._on[branch]

    def on(self, branch: str) -> list[str]:
        """The names on a branch, in any case. Any thread."""
        return list(self._on.get(branch.lower(), ()))


class BranchNames(AnyCase[Branch]):
    """Branches by name, and those that have left another branch."""

    def __init__(self) -> None:
        super().__init__()
        self._left: dict[str, dict[str, None]] = {}

    def __setitem__(self, name: str, branch: Branch) -> None:
        super().__setitem__(name, branch)
        if branch.parent:
            self._left.setdefault(branch.parent, {})[name] = None

    def __delitem__(self, name: str) -> None:
        parent = self[name].parent
        super().__delitem__(name)
        if parent:
            del self._left[parent][name]
            if not self._left[parent]:
                del self._left[parent]

    def children(self, branch: str) -> Iterator[str]:
        """The branches that have left a branch, the oldest first."""
        return iter(self._left.get(branch, ()))
