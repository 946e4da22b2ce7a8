"""The manifests and the manifest lists of a table's snapshots.

Manifests hold the files that an aligned range of commits added, so a snapshot shares nearly all of them with the one
before. The newest files, while they are few, are in one manifest: readers take longer to open a manifest than to read
an entry. Generated files are named by their content: whoever makes one again makes the same.

A file's sequence number is its data version's, so a delete applies to what it applies to here. The hidden rows of a
data file are the union of all that hides some: one vector a file, with the snapshot and the sequence number of the
commit that hid the last of them. Clients that try a commit again look there for rows that others deleted meanwhile.

What the version before had and a version lacks is in manifests of their own, as DELETED: there clients look for files
that others removed.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_
from typing import Any, Final

from metaservice.shared.column_types import Atomic
from worker.iceberg.metadata.avro_bytes import file_of
from worker.iceberg.metadata.avro_files import Record, avro_file, entry_schema, list_schema
from worker.iceberg.metadata.delete_files import DeleteFiles, Put
from worker.iceberg.metadata.entries import DATA, POSITION_DELETES, Entries
from worker.iceberg.metadata.facts import MadeSnapshot, ShownFile, SnapshotFacts, TableFacts, Totals, named, sequence_of
from worker.iceberg.metadata.partitions import partition_columns, partition_spec
from worker.iceberg.metadata.ranges import merged_cover, parts
from worker.iceberg.metadata.schemas import iceberg_schema
from worker.iceberg.metadata.sort_orders import SortOrder
from worker.iceberg.metadata.values import FLOATS, bound_of

ENTRIES_MAX: Final = 10_000  # of one manifest
MERGED_BOUNDS_MAX: Final = 256  # in the newest manifest, which is made anew for each commit


@dataclass(frozen=True, slots=True)
class _Range:
    """What was made for the files of a range of commits."""

    files: Sequence[Sequence[ShownFile]]  # by commit
    manifests: Sequence[Record]
    totals: Totals
    orders: frozenset[SortOrder]


class Manifests:
    """Makes the manifests of a table's snapshots. What it made for one, it uses for the next."""

    def __init__(self, table: TableFacts, put: Put) -> None:
        """`put` is called with each new file."""
        self._table = table
        self._put = put
        self._makers: dict[int, _Maker] = {}  # by the version of the schema
        self._deletes = DeleteFiles(table, put)

    def snapshot(self, facts: SnapshotFacts) -> MadeSnapshot:
        number = facts.schema.schema_version
        if number not in self._makers:
            self._makers[number] = _Maker(self._table, facts, self._put, self._deletes)
        maker, versions = self._makers[number], list(facts.files)
        removed = list(maker.removed(facts))  # before other files of hidden rows take the place of those
        ranges = [one for span in _spans(facts, versions) for one in maker.ranges(span, facts, versions)]
        manifests = [record for one in ranges for record in one.manifests]
        return MadeSnapshot(
            facts.commit,
            facts.schema,
            self._list(facts, manifests + removed),
            sum((one.totals for one in ranges), start=Totals()),
            frozenset().union(*(one.orders for one in ranges)),
            follows=facts.removed is not None,
            adds_files=facts.version in facts.files,
            removes_files=bool(facts.removed),
        )

    def _list(self, facts: SnapshotFacts, manifests: Sequence[Record]) -> str:
        number = sequence_of(facts.version)
        told = {
            "snapshot-id": str(number),
            "parent-snapshot-id": "null",
            "sequence-number": str(number),
            "format-version": str(self._table.format),
        }
        if self._table.format >= 3:
            told["first-row-id"] = "0"
        made = named(f"snap-{facts.version}", "avro", avro_file(list_schema(self._table.format), manifests, told))
        self._put(made)
        return made.name


class _Maker:
    """Makes manifests under one version of the schema."""

    def __init__(self, table: TableFacts, facts: SnapshotFacts, put: Put, deletes: DeleteFiles) -> None:
        """`facts` are of any snapshot with that schema."""
        schema = facts.schema
        self._table = table
        self._put = put
        self._partitions = partition_columns(table.meta, schema.columns)
        self._orders = facts.orders
        self._entries = Entries(self._partitions, schema.columns, table.format, facts.orders)
        self._entry_schema = entry_schema(
            [(one.field_id, one.name, one.kind) for one in self._partitions], table.format
        )
        self._told = {
            "schema": json.dumps(iceberg_schema(schema)),
            "schema-id": str(schema.schema_version),
            "partition-spec": json.dumps(partition_spec(self._partitions)),
            "partition-spec-id": "0",
            "format-version": str(table.format),
        }
        self._deletes = deletes
        self._ranges: dict[range, _Range] = {}
        self._manifests: dict[tuple[int, str, str], tuple[Sequence[Any], Record]] = {}

    def ranges(self, span: range, facts: SnapshotFacts, versions: Sequence[int]) -> Iterator[_Range]:
        """What is made for the files that the commits of a range added; `versions` are those of all files, in order."""
        begin, end = bisect_left(versions, span.start), bisect_left(versions, span.stop)
        files = [facts.files[one] for one in versions[begin:end]]
        if not files:
            return
        if len(span) > 1 and sum(map(len, files)) > ENTRIES_MAX:
            for part in parts(span):
                yield from self.ranges(part, facts, versions)
            return
        known = self._ranges.get(span)
        if known is None or not _unchanged(known.files, files):
            follows = facts.removed is not None
            known = self._ranges[span] = self._range(files, facts.version if follows else None, span.stop - 1)
        yield known

    def _range(self, by_commit: Sequence[Sequence[ShownFile]], made_at: int | None, newest: int) -> _Range:
        """`made_at`: the version whose snapshot adds new manifests; None: earlier ones may have had the same files."""
        files = sorted(chain.from_iterable(by_commit), key=self._order)
        manifests, delete_files = [], 0
        for page in _pages(files):
            at = newest if made_at is None else made_at
            manifests.append(self._manifest(DATA, page, [one.entry for one in page], at))
            if dirty := [one for one in page if one.hidden]:
                at = max(one.hidden_at for one in dirty) if made_at is None else made_at
                manifests.append(self._manifest(POSITION_DELETES, dirty, dirty, at))
                delete_files += len(dirty)
        totals = Totals(
            len(files),
            sum(one.file.rows for one in files),
            sum(len(one.hidden) for one in files if one.hidden),
            delete_files,
            max(one.file.first_row_id + one.file.rows if one.file.HasField("first_row_id") else 0 for one in files),
        )
        orders = frozenset(order for one in files if (order := self._orders.of(one.file)) is not None)
        return _Range(by_commit, manifests, totals, orders)

    def _order(self, one: ShownFile) -> tuple[tuple[tuple[bool, Any], ...], str]:
        """By partition: a manifest then has few of them."""
        return self._entries.partition(one).order, one.path

    def _delete_files(self, dirty: Sequence[ShownFile]) -> list[bytes]:
        written = self._deletes.of(dirty)
        return [self._entries.delete_file(one, each) for one, each in zip(dirty, written, strict=True)]

    def _write(self, kind: str, ending: str, content: bytes) -> str:
        """Writes a file and returns its location."""
        made = named(kind, ending, content)
        self._put(made)
        return f"{self._table.location}/{made.name}"

    # -- manifests

    def _manifest(self, content: int, page: Sequence[ShownFile], known_by: Sequence[Any], made_at: int) -> Record:
        """The record of a manifest with these files, or of their vectors; made if it isn't yet."""
        key = content, page[0].path, page[-1].path
        known = self._manifests.get(key)
        if known is None or not _same(known[0], known_by):
            known = self._manifests[key] = known_by, self._make(content, page, made_at)
        return known[1]

    def _make(self, content: int, page: Sequence[ShownFile], made_at: int) -> Record:
        is_data = content == DATA
        files = [self._entries.data_file(one) for one in page] if is_data else self._delete_files(page)
        head = self._entries.head if is_data else self._entries.head_of_deletes
        records = [head(one, made_at) + file for one, file in zip(page, files, strict=True)]
        added: list[int] = []
        existing: list[int] = []
        for one in page:
            at = one.entry.added_version if is_data else one.hidden_at
            (added if at == made_at else existing).append(_rows(content, one))
        least = min(one.sequence if is_data else one.sequence_of_deletes for one in page)
        counts = {"added": added, "existing": existing, "deleted": ()}
        return self._record(content, page, records, made_at, least, counts)

    def _record(
        self,
        content: int,
        page: Sequence[ShownFile],
        records: Sequence[bytes],
        version: int,
        least: int,
        counts: Mapping[str, Sequence[int]],
    ) -> Record:
        """Writes a manifest; `counts` are the rows of its files by their status, `least` its least sequence number."""
        word = "data" if content == DATA else "deletes"
        raw = file_of(self._entry_schema, records, self._told | {"content": word})
        found: Record = {
            "manifest_path": self._write(word, "avro", raw),
            "manifest_length": len(raw),
            "partition_spec_id": 0,
            "content": content,
            "sequence_number": sequence_of(version),
            "min_sequence_number": least,
            "added_snapshot_id": sequence_of(version),
            "partitions": self._summaries(page),
        }
        for status, rows in counts.items():
            found |= {f"{status}_files_count": len(rows), f"{status}_rows_count": sum(rows)}
        if self._table.format >= 3 and content == DATA:
            has_ids = all(one.file.HasField("first_row_id") for one in page)
            found["first_row_id"] = min(one.file.first_row_id for one in page) if has_ids else None
        return found

    # -- what a version lacks

    def removed(self, facts: SnapshotFacts) -> Iterator[Record]:
        """The manifests of what the version before had and this one lacks, which readers of its rows pass over."""
        if not facts.removed:
            return
        for page in _pages(sorted(facts.removed.files, key=self._order)):
            heads = [self._entries.head_of_removed(one, facts.version) for one in page]
            yield self._removed(DATA, page, heads, [self._entries.data_file(one) for one in page], facts.version)
        dirty = [one for one in (*facts.removed.files, *facts.removed.changed) if one.hidden]
        known = {one.path: written for one in dirty if (written := self._deletes.written(one)) is not None}
        for page in _pages(sorted((one for one in dirty if one.path in known), key=self._order)):
            heads = [self._entries.head_of_removed_deletes(one, facts.version) for one in page]
            files = [self._entries.delete_file(one, known[one.path]) for one in page]
            yield self._removed(POSITION_DELETES, page, heads, files, facts.version)

    def _removed(
        self, content: int, page: Sequence[ShownFile], heads: Sequence[bytes], files: Sequence[bytes], version: int
    ) -> Record:
        records = [head + file for head, file in zip(heads, files, strict=True)]
        counts: Mapping[str, Sequence[int]] = {
            "added": (),
            "existing": (),
            "deleted": [_rows(content, one) for one in page],
        }
        return self._record(content, page, records, version, sequence_of(version), counts)

    def _summaries(self, page: Sequence[ShownFile]) -> list[Record]:
        """The range of each partition column. Those of floats and decimals say nothing: they prune nothing."""
        partitions = {id(one): one for one in map(self._entries.partition, page)}.values()
        found = []
        for at, column in enumerate(self._partitions):
            values = [one.plain[at] for one in partitions]
            known = [one for one in values if one is not None]
            summary: Record = {"contains_null": len(known) < len(values)}
            if known and isinstance(column.kind, Atomic) and column.kind.name not in FLOATS:
                bound = bound_of(column.kind)
                summary |= {"lower_bound": bound(min(known)), "upper_bound": bound(max(known))}
            found.append(summary)
        return found


def _spans(facts: SnapshotFacts, versions: Sequence[int]) -> list[range]:
    """The ranges of commits whose files share manifests. The last one ends with the newest commit that added files."""

    def count(span: range) -> int:
        begin, end = bisect_left(versions, span.start), bisect_left(versions, span.stop)
        return sum(len(facts.files[one]) for one in versions[begin:end])

    end = versions[-1] + 1 if versions else 0
    return merged_cover(end, count, min(ENTRIES_MAX, MERGED_BOUNDS_MAX // max(1, len(facts.schema.columns))))


def _rows(content: int, one: ShownFile) -> int:
    """The rows that an entry counts: those of a data file, or the hidden ones."""
    return int(one.file.rows) if content == DATA else len(one.hidden)


def _unchanged(some: Sequence[Sequence[ShownFile]], others: Sequence[Sequence[ShownFile]]) -> bool:
    """Whether commits have the same files."""
    return len(some) == len(others) and all(
        before is now or _same(before, now) for before, now in zip(some, others, strict=True)
    )


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether both are the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def _pages(files: Sequence[ShownFile]) -> Iterator[Sequence[ShownFile]]:
    """The files of each manifest. Where one ends is told by the file, so another file more or less changes only one."""
    if len(files) <= ENTRIES_MAX:
        if files:
            yield files
        return
    begin = 0
    for at, one in enumerate(files, 1):
        ends = zlib.crc32(one.path.encode()) % (ENTRIES_MAX // 2) == 0
        if ends or at - begin == ENTRIES_MAX or at == len(files):
            yield files[begin:at]
            begin = at
