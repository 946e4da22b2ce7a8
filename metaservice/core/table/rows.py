"""The effect of a commit on rows, as the profile row_level needs it: hidden rows, and files written.

Core can't read an entry's payload: the holder of the snapshots passes `Payloads` that can. Unknown facts count as a
possible match.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from metaservice.core.table.model import Entry, KeySet
from metaservice.core.table.pruning import UNKNOWN, Row

Place = tuple[str, int]  # partition, bucket
Range = tuple[int, int]  # first and last row id
ColumnType = tuple[int, str]  # column id, type


class RowIds(Protocol):
    """The ids of a delete set."""

    def common(self, other: Any, most: int) -> tuple[int, ...]:
        """The smallest ids that another set of this kind has, too."""

    def meets(self, span: Range) -> bool:
        """Whether an id lies in a range."""


class Payloads(Protocol):
    """Reads the payloads of entries."""

    def bounds(self, payload: bytes, columns: Sequence[ColumnType]) -> Row:
        """Bounds of some columns of a data file, from its statistics."""

    def only_tombstones(self, payload: bytes) -> bool:
        """Whether a data file is known to contain only tombstones, so no new row."""

    def set_columns(self, payload: bytes) -> frozenset[int]:
        """The ids of the columns that images in a data file set; empty: its images are whole."""

    def no_new_rows(self, payload: bytes) -> bool:
        """Whether every image in a data file is known to be of a row that its writer found."""

    def schema_version(self, payload: bytes) -> int:
        """The version of the schema under which a data file was written."""

    def under_schema(self, payload: bytes, version: int) -> bytes:
        """The payload of the same file under another version of the schema."""

    def row_ids(self, payload: bytes) -> RowIds | None:
        """The ids of a delete set; None if it is stored in a file."""

    def ranges(self, payload: bytes) -> tuple[Range, ...]:
        """Ranges that contain every id of a delete set in a file; empty if none are declared."""


class NothingKnown:
    """Reads nothing: every file may contain any row."""

    def bounds(self, payload: bytes, columns: Sequence[ColumnType]) -> Row:  # noqa: ARG002
        return (UNKNOWN,) * len(columns)

    def only_tombstones(self, payload: bytes) -> bool:  # noqa: ARG002
        return False

    def set_columns(self, payload: bytes) -> frozenset[int]:  # noqa: ARG002
        return frozenset()

    def no_new_rows(self, payload: bytes) -> bool:  # noqa: ARG002
        return False

    def schema_version(self, payload: bytes) -> int:  # noqa: ARG002
        return 0

    def under_schema(self, payload: bytes, version: int) -> bytes:  # noqa: ARG002
        return payload

    def row_ids(self, payload: bytes) -> RowIds | None:  # noqa: ARG002
        return None

    def ranges(self, payload: bytes) -> tuple[Range, ...]:  # noqa: ARG002
        return ()


NOTHING_KNOWN: Final = NothingKnown()


@dataclass(frozen=True, slots=True)
class Hidden:
    """A delete set: its ids, or, where it is kept in a file, ranges that hold them."""

    path: str
    partition: str
    ids: RowIds | None
    ranges: tuple[Range, ...]
    touches: tuple[str, ...]

    def common(self, other: Hidden, most: int) -> tuple[int, ...] | None:
        """A sample of the rows that two of one partition both hide, empty where only ranges are known; None: none."""
        if self.ids is not None and other.ids is not None:
            return self.ids.common(other.ids, most) or None
        if self.ids is not None:
            return () if any(self.ids.meets(span) for span in other.ranges) else None
        if other.ids is not None:
            return other.common(self, most)
        return () if _overlap(self.ranges, other.ranges) else None


@dataclass(frozen=True, slots=True)
class Written:
    """The files that a change adds. `is_known` is False if there are too many to check."""

    files: tuple[Entry, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    keys: Mapping[Place, Sequence[int]] = field(default_factory=dict)
    is_known: bool = True


UNKNOWN_WRITTEN: Final = Written(is_known=False)


def written_by(entries: Iterable[Entry], key_sets: Iterable[KeySet], payloads: Payloads) -> Written:
    files, hidden = [], []
    for entry in entries:
        if entry.is_delete_set:
            hidden.append(_hidden(entry, payloads))
        else:
            files.append(entry)
    return Written(
        tuple(files), tuple(hidden), {(key_set.partition, key_set.bucket): key_set.hashes for key_set in key_sets}
    )


def _hidden(entry: Entry, payloads: Payloads) -> Hidden:
    ids = payloads.row_ids(entry.payload)
    ranges: tuple[Range, ...] = ()
    if ids is None:
        ranges = payloads.ranges(entry.payload) or ((max(entry.row_id_min, 0), entry.row_id_max),)
    return Hidden(entry.path, entry.partition, ids, ranges, entry.touches)


def _overlap(some: Sequence[Range], others: Sequence[Range]) -> bool:
    """Return whether ranges overlap; each list ascends without overlaps."""
    at = other_at = 0
    while at < len(some) and other_at < len(others):
        (first, last), (other_first, other_last) = some[at], others[other_at]
        if first <= other_last and other_first <= last:
            return True
        if last < other_last:
            at += 1
        else:
            other_at += 1
    return False
