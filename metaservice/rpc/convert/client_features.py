"""What a client's readers know, as it says in the metadata of a call: `x-laketx-features`, names joined by commas.

A reader that doesn't know inlined rows would look for a file that isn't there. A reader without `version_conditions`
names the newest columns in the condition of an older version. A client that says nothing is older than both.
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

    @classmethod
    def of(cls, context: grpc.ServicerContext) -> Self:
        said = str(dict(context.invocation_metadata() or ()).get(FEATURES, ""))[:FEATURES_CHARS_MAX]
        known = said.split(",")
        return cls(INLINED_ROWS in known, VERSION_CONDITIONS in known)

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
