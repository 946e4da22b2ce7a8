"""Case-insensitive names that are stored as written."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import Final, TypeVar

from metaservice.core.table.branches import MAIN, Branch, branch_of

Thing = TypeVar("Thing")
ENDS_MIN: Final = 1_000


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
        lower = name.lower()
        written = self._written[lower]
        if len(written) == 1:
            del self._written[lower]
        else:
            self._written[lower] = [other for other in written if other != name]

    def as_written(self, name: str) -> str | None:
        """Returns the stored name; None if there is none, or if two differ only in case."""
        if name in self:
            return name
        spellings = self._written.get(name.lower(), [])
        return spellings[0] if len(spellings) == 1 else None

    def is_taken(self, name: str) -> bool:
        """Whether the name is used, in any case."""
        return name.lower() in self._written

    def find(self, name: str) -> Thing | None:
        written = self.as_written(name)
        return None if written is None else self.get(written)


class GroupedNames(AnyCase[Thing]):
    """The same, and the names of each group. A name never changes its group."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, dict[str, None]] = {}

    def group_of(self, name: str, thing: Thing) -> str:
        """Empty: it is in none."""
        raise NotImplementedError

    def __setitem__(self, name: str, thing: Thing) -> None:
        super().__setitem__(name, thing)
        if group := self.group_of(name, thing):
            self._groups.setdefault(group, {})[name] = None

    def __delitem__(self, name: str) -> None:
        group = self.group_of(name, self[name])
        super().__delitem__(name)
        if group:
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]

    def names_in(self, group: str) -> list[str]:
        """The names of a group, the oldest first."""
        return list(self._groups.get(group, ()))


class TableNames(GroupedNames[str]):
    """The ids of tables by name, and the names that are on each branch."""

    def group_of(self, name: str, thing: str) -> str:  # noqa: ARG002 - the name says it
        return branch_of(name).lower()

    def on(self, branch: str) -> list[str]:
        """The names on a branch, in any case. Any thread."""
        return self.names_in(branch.lower())


class BranchNames(GroupedNames[Branch]):
    """Branches by name, those that have left another branch or the lake, and those whose time is over."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: list[tuple[int, str]] = []  # a heap; a branch that was extended or has ended is in it, too

    def __setitem__(self, name: str, branch: Branch) -> None:
        super().__setitem__(name, branch)
        if branch.expire_us:
            heappush(self._ends, (branch.expire_us, name))
        if len(self._ends) > 2 * len(self) + ENDS_MIN:
            self._ends = [(each.expire_us, each.name) for each in self.values() if each.expire_us]
            heapify(self._ends)

    def group_of(self, name: str, thing: Branch) -> str:  # noqa: ARG002 - the branch says it
        return thing.parent or MAIN

    def children(self, branch: str) -> list[str]:
        """The branches that have left a branch, the oldest first; empty: the lake."""
        return self.names_in(branch or MAIN)

    def first_over(self, now_us: int, may_end: Callable[[Branch], bool]) -> Branch | None:
        """The first branch whose time is over and that may end."""
        waiting: list[tuple[int, str]] = []
        ending = None
        while ending is None and self._ends and self._ends[0][0] <= now_us:
            end = heappop(self._ends)
            branch = self.get(end[1])
            if branch is not None and branch.expire_us == end[0]:
                waiting.append(end)
                ending = branch if may_end(branch) else None
        for end in waiting:
            heappush(self._ends, end)
        return ending


class NameIndex:
    """The names at one moment. It never changes, so threads share it.

    `find` reads the text of all names, of which the name at `i` begins at `starts[i]`:

        names    a.Orders  b.items      text     a.orders⏎b.items⏎      starts    0  9
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        lowered = [name.lower() + "\n" for name in self._names]
        self._text = "".join(lowered)
        self._starts = [0, *accumulate(map(len, lowered))]

    def find(self, prefix: str, after: str, part: str) -> Iterator[str]:
        """The names after a name that begin with `prefix` and contain `part`, in any case, in order."""
        names, starts = self._names, self._starts
        at = max(bisect_right(names, after), bisect_left(names, prefix))
        part = part.lower()
        while at < len(names):
            place = self._text.find(part, starts[at])
            if place < 0:
                return
            at = bisect_right(starts, place) - 1
            if not names[at].startswith(prefix):  # names with the prefix stand together
                return
            if place + len(part) < starts[at + 1]:
                yield names[at]
            at += 1
