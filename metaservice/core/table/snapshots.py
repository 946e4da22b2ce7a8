"""The past of a table, as core needs it: its entries at a version, and the entries that a commit added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from metaservice.core.table.model import Live
from metaservice.core.table.rows import Payloads, Written


class Snapshots(Protocol):
    """The table's entries at a version, as core asks for them."""

    def live(self, version: int, partition: str | None = None, bucket: int | None = None) -> Iterable[Live]: ...

    def find(self, version: int, partition: str, bucket: int, path: str) -> Live | None: ...

    def find_imports(self, path: str) -> Iterable[Live]:
        """The live entries of an external file, under any spelling of its path."""

    def wrote(self, version: int) -> Written:
        """The entries that the commit of a version added."""

    @property
    def payloads(self) -> Payloads: ...
