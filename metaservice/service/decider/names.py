"""Case-insensitive names that are stored as written."""

from __future__ import annotations

from typing import TypeVar

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
