"""The forks by table, and which tables each of them needs: no question costs more where many forks have ended."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

from metaservice.store.records.branches import Fork

Name = TypeVar("Name", str, bytes)
Group = dict[bytes, None]


class ForkBook(dict[bytes, Fork]):
    """All forks that have a record. `living`: those that are not purged, as a set that keeps its order."""

    def __init__(self) -> None:
        super().__init__()
        self.living: Group = {}
        self._needed: Counter[bytes] = Counter()
        self._families: dict[bytes, Group] = {}
        self._dropped: dict[str, Group] = {}

    def __setitem__(self, raw_id: bytes, fork: Fork) -> None:
        before = self.get(raw_id)
        if before is not None and _is_as_needy(before, fork):
            super().__setitem__(raw_id, fork)
            if fork.is_dropped:
                self._dropped.setdefault(fork.branch, {})[raw_id] = None
            else:
                _take_from(self._dropped, fork.branch, raw_id)
            return
        self._leave(raw_id)
        super().__setitem__(raw_id, fork)
        if fork.is_dropped:
            self._dropped.setdefault(fork.branch, {})[raw_id] = None
        if not fork.is_gone:
            self.living[raw_id] = None
            self._needed.update(needed_by(fork))
            self._families.setdefault(fork.root, {})[raw_id] = None

    def __delitem__(self, raw_id: bytes) -> None:
        self._leave(raw_id)
        super().__delitem__(raw_id)

    def _leave(self, raw_id: bytes) -> None:
        fork = self.get(raw_id)
        if fork is None:
            return
        _take_from(self._dropped, fork.branch, raw_id)
        if not fork.is_gone:
            del self.living[raw_id]
            _take_from(self._families, fork.root, raw_id)
            for other in needed_by(fork):
                self._needed[other] -= 1
                if not self._needed[other]:
                    del self._needed[other]

    def needs(self, raw_id: bytes) -> bool:
        """Whether a fork needs the records or the folder of a table."""
        return raw_id in self._needed

    def of_root(self, root: bytes) -> list[bytes]:
        """Those whose files lie in a table's folder, the oldest first. Any thread."""
        return list(self._families.get(root, ()))

    def dropped_on(self, branch: str) -> list[Fork]:
        """Those that were dropped on branches of that name."""
        return [self[raw_id] for raw_id in self._dropped.get(branch, ())]


def needed_by(fork: Fork) -> set[bytes]:
    """The tables whose entries a fork has, in whose folder its files are, or that have its files since a merge."""
    of_base = () if fork.is_detached else (fork.base, fork.root)
    return {raw_id for raw_id in (fork.successor, *of_base) if raw_id}


def _is_as_needy(before: Fork, after: Fork) -> bool:
    """Whether a fork, which may have been dropped or merged meanwhile, needs what it did."""
    return (
        before.is_gone == after.is_gone
        and before.branch == after.branch
        and before.root == after.root
        and (_is_merged_back(before, after) or needed_by(before) == needed_by(after))
    )


def _is_merged_back(before: Fork, after: Fork) -> bool:
    """Whether its base has its files now: it needed that all along. Merges ask this for each of their tables."""
    return (
        after.successor == after.base == before.base
        and before.successor in (b"", before.base)
        and not before.is_detached
        and not after.is_detached
    )


def _take_from(groups: dict[Name, Group], name: Name, raw_id: bytes) -> None:
    group = groups.get(name)
    if group is not None:
        group.pop(raw_id, None)
        if not group:
            del groups[name]
