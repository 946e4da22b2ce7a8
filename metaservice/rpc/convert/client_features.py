"""What a client's readers know, as it says in the metadata of a call: `x-laketx-features`, names joined by commas.

A reader that doesn't know inlined rows or forks would look for a file that isn't there.
A reader without `version_conditions` names the newest columns in the condition of an older version. A client that says
nothing is older than these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

import grpc

from metaservice.core.errors import ErrorKind, MetaError

FEATURES: Final = "x-laketx-features"
FEATURES_CHARS_MAX: Final = 1_024
INLINED_ROWS: Final = "inlined_rows"
VERSION_CONDITIONS: Final = "version_conditions"
FORKS: Final = "forks"


class Shown(Protocol):
    """An entry of an answer."""

    @property
    def inlined(self) -> bool: ...


E = TypeVar("E", bound=Shown)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader behind a call."""

    knows_inlined: bool = True
    names_versions: bool = True  # its conditions name the columns of the version that is planned
    knows_forks: bool = True  # it looks for their files where these are

    @classmethod
    def of(cls, context: grpc.ServicerContext) -> Self:
        said = str(dict(context.invocation_metadata() or ()).get(FEATURES, ""))[:FEATURES_CHARS_MAX]
        known = said.split(",")
        return cls(INLINED_ROWS in known, VERSION_CONDITIONS in known, FORKS in known)

    def check_table(self, folder_id: str) -> None:
        """Refuses a client that would look for a table's files in the wrong folder, or write them there."""
        if folder_id and not self.knows_forks:
            said = "the table is a clone or on a branch, and the client doesn't know where its files are: upgrade it"
            raise MetaError(ErrorKind.BLOCKED, "CLIENT_TOO_OLD", said, lacks=FORKS)

    def shown(self, entries: Iterable[E]) -> Iterable[E]:
        """The entries. Raises CLIENT_TOO_OLD at one that the reader would misread."""
        return entries if self.knows_inlined else _files(entries)


ANY: Final = Reader()


def _files(entries: Iterable[E]) -> Iterator[E]:
    for entry in entries:
        if entry.inlined:
            said = "the table has rows that no file has: upgrade the client, or compact the table (minor)"
            raise MetaError(ErrorKind.BLOCKED, "CLIENT_TOO_OLD", said, lacks=INLINED_ROWS)
        yield entry
