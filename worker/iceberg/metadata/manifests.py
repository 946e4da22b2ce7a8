"""The manifests and the manifest lists of a table's snapshots.

A manifest contains the files that an aligned range of commits added, so a snapshot shares nearly all manifests with the
previous one. The newest files, while they are few, are in one manifest: opening a manifest takes longer than reading
an entry. Generated files are named by their content: a file that is made again is the same.

A file's sequence number is its data version's, so a delete applies to the same files as in LakeTX. The hidden rows of a
data file are the union of all its deletes: one vector a file, with the snapshot and the sequence number of the commit
that hid the last row. Clients that retry a commit look there for rows that others deleted in between.

Files that the previous version had and a version lacks are in separate manifests, as DELETED: there clients look for
files that others removed.
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
    """The manifests for the files of a range of commits."""

    files: Sequence[Sequence[ShownFile]]  # by commit
    manifests: Sequence[Record]
    totals: Totals
    orders: frozenset[SortOrder]


class Manifests:
    """Makes the manifests of a table's snapshots, and reuses them for later snapshots."""

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
        ranges = [made_range for span in _spans(facts, versions) for made_range in maker.ranges(span, facts, versions)]
        manifests = [record for made_range in ranges for record in made_range.manifests]
        return MadeSnapshot(
            facts.commit,
            facts.schema,
            self._list(facts, manifests + removed),
            sum((made_range.totals for made_range in ranges), start=Totals()),
            frozenset().union(*(made_range.orders for made_range in ranges)),
            follows=facts.removed is not None,
            adds_files=facts.version in facts.files,
            removes_files=bool(facts.removed),
        )

    def _list(self, facts: SnapshotFacts, manifests: Sequence[Record]) -> str:
        number = sequence_of(facts.version)
        header = {
            "snapshot-id": str(number),
            "parent-snapshot-id": "null",
            "sequence-number": str(number),
            "format-version": str(self._table.format),
        }
        if self._table.format >= 3:
            header["first-row-id"] = "0"
        made = named(f"snap-{facts.version}", "avro", avro_file(list_schema(self._table.format), manifests, header))
        self._put(made)
        return made.name


class _Maker:
    """Makes manifests under one version of the schema."""

    def __init__(self, table: TableFacts, facts: SnapshotFacts, put: Put, deletes: DeleteFiles) -> None:
        """`facts` are those of any snapshot with the schema."""
        schema = facts.schema
        self._table = table
        self._put = put
        self._partitions = partition_columns(table.meta, schema.columns)
        self._orders = facts.orders
        self._entries = Entries(self._partitions, schema.columns, table.format, facts.orders)
        self._entry_schema = entry_schema(
            [(partition.field_id, partition.name, partition.kind) for partition in self._partitions], table.format
        )
        self._header = {
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
        """Yield the manifests for the files that the commits of a range added. `versions` are all commits, in order."""
        begin, end = bisect_left(versions, span.start), bisect_left(versions, span.stop)
        files = [facts.files[version] for version in versions[begin:end]]
        if not files:
            return
        if len(span) > 1 and sum(map(len, files)) > ENTRIES_MAX:
            for part in parts(span):
                yield from self.ranges(part, facts, versions)
            return
        cached = self._ranges.get(span)
        if cached is None or not _unchanged(cached.files, files):
            follows = facts.removed is not None
            cached = self._ranges[span] = self._range(files, facts.version if follows else None, span.stop - 1)
        yield cached

    def _range(self, by_commit: Sequence[Sequence[ShownFile]], made_at: int | None, newest: int) -> _Range:
        """`made_at`: the version whose snapshot adds new manifests; None: earlier ones may have had the same files."""
        files = sorted(chain.from_iterable(by_commit), key=self._order)
        manifests, delete_files = [], 0
        for page in _pages(files):
            at = newest if made_at is None else made_at
            manifests.append(self._manifest(DATA, page, [shown.entry for shown in page], at))
            if dirty := [shown for shown in page if shown.hidden]:
                at = max(shown.hidden_at for shown in dirty) if made_at is None else made_at
                manifests.append(self._manifest(POSITION_DELETES, dirty, dirty, at))
                delete_files += len(dirty)
        totals = Totals(
            len(files),
            sum(shown.file.rows for shown in files),
            sum(len(shown.hidden) for shown in files if shown.hidden),
            delete_files,
            max(
                shown.file.first_row_id + shown.file.rows if shown.file.HasField("first_row_id") else 0
                for shown in files
            ),
        )
        orders = frozenset(order for shown in files if (order := self._orders.of(shown.file)) is not None)
        return _Range(by_commit, manifests, totals, orders)

    def _order(self, shown: ShownFile) -> tuple[tuple[tuple[bool, Any], ...], str]:
        """Return the sort key of a file: by partition, so that a manifest has few of them."""
        return self._entries.partition(shown).order, shown.path

    def _delete_files(self, dirty: Sequence[ShownFile]) -> list[bytes]:
        written = self._deletes.of(dirty)
        return [
            self._entries.delete_file(shown, delete_file) for shown, delete_file in zip(dirty, written, strict=True)
        ]

    def _write(self, kind: str, ending: str, content: bytes) -> str:
        """Write a file and return its location."""
        made = named(kind, ending, content)
        self._put(made)
        return f"{self._table.location}/{made.name}"

    # -- manifests

    def _manifest(self, content: int, page: Sequence[ShownFile], known_by: Sequence[Any], made_at: int) -> Record:
        """Return the record of a manifest with these files, or with their delete files; make it if it is new."""
        key = content, page[0].path, page[-1].path
        cached = self._manifests.get(key)
        if cached is None or not _same(cached[0], known_by):
            cached = self._manifests[key] = known_by, self._make(content, page, made_at)
        return cached[1]

    def _make(self, content: int, page: Sequence[ShownFile], made_at: int) -> Record:
        is_data = content == DATA
        files = [self._entries.data_file(shown) for shown in page] if is_data else self._delete_files(page)
        head = self._entries.head if is_data else self._entries.head_of_deletes
        records = [head(shown, made_at) + file for shown, file in zip(page, files, strict=True)]
        added: list[int] = []
        existing: list[int] = []
        for shown in page:
            at = shown.entry.added_version if is_data else shown.hidden_at
            (added if at == made_at else existing).append(_rows(content, shown))
        least = min(shown.sequence if is_data else shown.sequence_of_deletes for shown in page)
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
        """Write a manifest. `counts` are the rows of its files by status, `least` is its least sequence number."""
        word = "data" if content == DATA else "deletes"
        raw = file_of(self._entry_schema, records, self._header | {"content": word})
        manifest: Record = {
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
            manifest |= {f"{status}_files_count": len(rows), f"{status}_rows_count": sum(rows)}
        if self._table.format >= 3 and content == DATA:
            has_ids = all(shown.file.HasField("first_row_id") for shown in page)
            manifest["first_row_id"] = min(shown.file.first_row_id for shown in page) if has_ids else None
        return manifest

    # -- what a version lacks

    def removed(self, facts: SnapshotFacts) -> Iterator[Record]:
        """Yield the manifests of the files that the version removed. Readers of its rows skip them."""
        if not facts.removed:
            return
        for page in _pages(sorted(facts.removed.files, key=self._order)):
            heads = [self._entries.head_of_removed(shown, facts.version) for shown in page]
            yield self._removed(DATA, page, heads, [self._entries.data_file(shown) for shown in page], facts.version)
        dirty = [shown for shown in (*facts.removed.files, *facts.removed.changed) if shown.hidden]
        delete_files = {shown.path: written for shown in dirty if (written := self._deletes.written(shown)) is not None}
        for page in _pages(sorted((shown for shown in dirty if shown.path in delete_files), key=self._order)):
            heads = [self._entries.head_of_removed_deletes(shown, facts.version) for shown in page]
            files = [self._entries.delete_file(shown, delete_files[shown.path]) for shown in page]
            yield self._removed(POSITION_DELETES, page, heads, files, facts.version)

    def _removed(
        self, content: int, page: Sequence[ShownFile], heads: Sequence[bytes], files: Sequence[bytes], version: int
    ) -> Record:
        records = [head + file for head, file in zip(heads, files, strict=True)]
        counts: Mapping[str, Sequence[int]] = {
            "added": (),
            "existing": (),
            "deleted": [_rows(content, shown) for shown in page],
        }
        return self._record(content, page, records, version, sequence_of(version), counts)

    def _summaries(self, page: Sequence[ShownFile]) -> list[Record]:
        """Return the range of each partition column. Floats and decimals have no bounds, so they don't prune."""
        partitions = {id(partition): partition for partition in map(self._entries.partition, page)}.values()
        summaries = []
        for at, column in enumerate(self._partitions):
            values = [partition.plain[at] for partition in partitions]
            present = [value for value in values if value is not None]
            summary: Record = {"contains_null": len(present) < len(values)}
            if present and isinstance(column.kind, Atomic) and column.kind.name not in FLOATS:
                bound = bound_of(column.kind)
                summary |= {"lower_bound": bound(min(present)), "upper_bound": bound(max(present))}
            summaries.append(summary)
        return summaries


def _spans(facts: SnapshotFacts, versions: Sequence[int]) -> list[range]:
    """Return the ranges of commits whose files share manifests. The last ends with the newest commit with files."""

    def count(span: range) -> int:
        begin, end = bisect_left(versions, span.start), bisect_left(versions, span.stop)
        return sum(len(facts.files[version]) for version in versions[begin:end])

    end = versions[-1] + 1 if versions else 0
    return merged_cover(end, count, min(ENTRIES_MAX, MERGED_BOUNDS_MAX // max(1, len(facts.schema.columns))))


def _rows(content: int, shown: ShownFile) -> int:
    """Return the rows that an entry counts: those of a data file, or the hidden ones."""
    return int(shown.file.rows) if content == DATA else len(shown.hidden)


def _unchanged(some: Sequence[Sequence[ShownFile]], others: Sequence[Sequence[ShownFile]]) -> bool:
    """Return whether commits have the same files."""
    return len(some) == len(others) and all(
        before is now or _same(before, now) for before, now in zip(some, others, strict=True)
    )


def _same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether both contain the same objects."""
    return len(some) == len(others) and all(map(is_, some, others))


def _pages(files: Sequence[ShownFile]) -> Iterator[Sequence[ShownFile]]:
    """Yield the files of each manifest. A file's path decides whether it is the last: a new file changes one only."""
    if len(files) <= ENTRIES_MAX:
        if files:
            yield files
        return
    begin = 0
    for at, shown in enumerate(files, 1):
        ends = zlib.crc32(shown.path.encode()) % (ENTRIES_MAX // 2) == 0
        if ends or at - begin == ENTRIES_MAX or at == len(files):
            yield files[begin:at]
            begin = at
