"""Warehouses of the catalog: a format of Iceberg, and the lake or a branch of it.

v3, v2           the lake in that format
main             the lake, in the format by default
v2@etl, main@etl the branch etl of the lake
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from worker.iceberg.commits.requests import MAIN, refused

FORMATS: Final[Mapping[str, int]] = {"v3": 3, "v2": 2}
DEFAULT: Final = "v3"
AT: Final = "@"


@dataclass(frozen=True, slots=True)
class IcebergWarehouse:
    """The lake or a branch of it, in one format. `branch` is empty for the lake itself."""

    form: int
    branch: str = ""

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Read a warehouse as clients name it, or the prefix of their paths; None: there is no such warehouse."""
        name, at, branch = text.partition(AT)
        form = FORMATS.get(DEFAULT if name == MAIN else name)
        return None if form is None or (at and not branch) else cls(form, branch)

    @property
    def prefix(self) -> str:
        """Return the prefix of the paths of requests."""
        form = next(name for name, number in FORMATS.items() if number == self.form)
        return f"{form}{AT}{self.branch}" if self.branch else form

    def named(self, name: str) -> str:
        """Return the service's name of a table in this warehouse."""
        return f"{name}{AT}{self.branch}" if self.branch else name

    def check_main(self, things: str) -> None:
        """Refuse to change what a branch shares with the lake, or what only the lake has."""
        if self.branch:
            raise refused(
                f"{things} is not possible on a branch: use the warehouse {IcebergWarehouse(self.form).prefix}"
            )


def off_branch(name: str) -> str:
    """Return the name of a table without its branch."""
    return name.partition(AT)[0]
