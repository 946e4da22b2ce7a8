"""A bug: a replacement of text that must be there exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Bug:
    """`swaps` pairs what the file says with what it says once the bug is planted.

    `own_tests` are the tests, in pytest's words, of a bug that no suite can see. `also`: what else it takes, as a
    file, what that says and what it says then.
    """

    name: str
    file: str
    swaps: tuple[tuple[str, str], ...]
    own_tests: tuple[str, ...] = ()
    also: tuple[tuple[str, str, str], ...] = ()

    def plant(self, root: Path) -> None:
        for file, old, new in (*((self.file, *swap) for swap in self.swaps), *self.also):
            path = root / file
            text = path.read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise LookupError(f"{self.name}: {file} has {text.count(old)} times {old!r}")
            path.write_text(text.replace(old, new), encoding="utf-8")
