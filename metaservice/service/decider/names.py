"""Names that are kept as written and found in any case."""

from __future__ import annotations

from typing import TypeVar

Thing = TypeVar("Thing")


class AnyCase(dict[str, Thing]):
    """By name. Two that differ in case alone can only be there from before: each is found by its name as written."""

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
        """The name that is there; None where none is, or where it could be either of two."""
        if name in self:
            return name
        found = self._written.get(name.lower(), [])
        return found[0] if len(found) == 1 else None

    def is_taken(self, name: str) -> bool:
        """In whatever case."""
        return name.lower() in self._written

    def find(self, name: str) -> Thing | None:
        written = self.as_written(name)
        return None if written is None else self.get(written)
