"""What a client's readers know, as it says in the metadata of a call: `x-laketx-features`, names joined by commas.

A reader that doesn't know inlined rows or forks would look for a file that isn't there.
One that doesn't know partial images would take columns that an image leaves as they are for NULL.
A reader without `version_conditions` names the newest columns in the condition of an older version. A client that says
nothing is older than these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, Self, TypeVar

import grpc

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import TableMeta
from protos.laketx.v1 import common_pb2

FEATURES: Final = "x-laketx-features"
FEATURES_CHARS_MAX: Final = 1_024
INLINED_ROWS: Final = "inlined_rows"
VERSION_CONDITIONS: Final = "version_conditions"
FORKS: Final = "forks"
PARTIAL_IMAGES: Final = "partial_images"


class Shown(Protocol):
    """An entry of an answer."""

    @property
    def inlined(self) -> bool: ...

    @property
    def payload(self) -> bytes: ...


E = TypeVar("E", bound=Shown)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reader behind a call."""

    knows_inlined: bool = True
    names_versions: bool = True  # its conditions name the columns of the version that is planned
    knows_forks: bool = True  # it looks for their files where these are
    knows_partial: bool = True  # it folds images that set single columns

    @classmethod
    def of(cls, context: grpc.ServicerContext) -> Self:
        header = str(dict(context.invocation_metadata() or ()).get(FEATURES, ""))[:FEATURES_CHARS_MAX]
        features = header.split(",")
        return cls(
            INLINED_ROWS in features, VERSION_CONDITIONS in features, FORKS in features, PARTIAL_IMAGES in features
        )

    def check_table(self, folder_id: str) -> None:
        """Refuses a client that would read or write a table's files in the wrong folder."""
        if folder_id and not self.knows_forks:
            message = "the table is a clone or on a branch, and the client doesn't know where its files are: upgrade it"
            raise MetaError(ErrorKind.BLOCKED, "CLIENT_TOO_OLD", message, lacks=FORKS)

    def shown(self, entries: Iterable[E], meta: TableMeta) -> Iterable[E]:
        """The entries. Raises CLIENT_TOO_OLD or PARTIAL_IMAGES at one that the reader would misread."""
        if not self.folds(meta):
            entries = _whole(entries, meta)
        return entries if self.knows_inlined else _files(entries)

    def folds(self, meta: TableMeta) -> bool:
        """Whether it can read whatever images the table has."""
        return self.knows_partial or not meta.is_partial


ANY: Final = Reader()


def _files(entries: Iterable[E]) -> Iterator[E]:
    for entry in entries:
        if entry.inlined:
            message = "the table has rows that no file has: upgrade the client, or compact the table (minor)"
            raise MetaError(ErrorKind.BLOCKED, "CLIENT_TOO_OLD", message, lacks=INLINED_ROWS)
        yield entry


def _whole(entries: Iterable[E], meta: TableMeta) -> Iterator[E]:
    for entry in entries:
        if common_pb2.DataFile.FromString(entry.payload).set_columns:
            message = "images of the table set single columns: upgrade the client, or compact the table (major) first"
            raise MetaError(ErrorKind.BLOCKED, "PARTIAL_IMAGES", message, table=meta.name)
        yield entry
