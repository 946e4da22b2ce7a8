"""Inlined rows as Parquet files: those of a range of commits together, a file for each partition and schema version.

Which rows are in which file follows from the live small writes of a version alone: every catalog makes the same files.
A file stays until its range becomes part of a larger one, or one of its small writes is no longer live. Deleted rows
are hidden.
"""

from __future__ import annotations

import hashlib
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.scan.inlined_rows import rows_in
from worker.arrow.scan.plans import WrittenSchemas
from worker.base.schema import OP, ROW_ID
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.files.arrow_types import arrow_schema, file_schema
from worker.files.footers import data_file
from worker.iceberg.deleted_rows import row_ids_in
from worker.iceberg.metadata.facts import MadeFile, ShownFile
from worker.iceberg.metadata.ranges import cover, parts, smallest_with

WIDTH: Final = 32  # of ranges: so many files become one
FILES_MAX: Final = WIDTH**2  # of small writes, in one written file
DATA: Final = "data"  # the folder of written files, below the location
Put = Callable[[MadeFile], None]
Kind = tuple[PartitionKey, int]  # what rows of one file share: partition, schema version


@dataclass(frozen=True, slots=True)
class _Written:
    """A written file, and where the rows of each small write begin in it."""

    entry: common_pb2.LiveEntry
    begins: Mapping[str, int]  # by path

    @property
    def name(self) -> str:
        return self.entry.file.path


@dataclass(slots=True)
class _Group:
    """The small writes of a range, by their paths, their file, and how a version showed it last."""

    paths: Sequence[str]
    written: _Written
    shown: ShownFile | None = None


class InlinedFiles:
    """The small writes of a table as files. What was written once is used again."""

    def __init__(self, location: str, put: Put) -> None:
        self._location = location
        self._put = put
        self._groups: dict[tuple[Kind, range], _Group] = {}

    def shown(self, table: TableView, inlined: Sequence[ShownFile], end: int) -> Iterator[ShownFile]:
        """The files for the inlined ones of a version; `end` is the version after it."""
        written = WrittenSchemas(table)
        kinds: dict[Kind, list[ShownFile]] = defaultdict(list)
        for one in sorted(inlined, key=lambda each: (each.entry.added_version, each.file.path)):
            kinds[partition_key(one.file.partition), one.file.schema_version].append(one)
        for kind, files in kinds.items():
            for span, group in _grouped(files, end):
                known = self._group(table, written, kind, span, group)
                found = known.written
                hidden = BitMap64()
                for one in group:
                    hidden |= one.hidden.shift(found.begins[one.file.path]) if one.hidden else one.hidden
                if len(hidden) < found.entry.file.rows:
                    hid_last, before = max(one.hidden_version for one in group), known.shown
                    if before is None or before.hidden != hidden or before.hidden_version != hid_last:
                        before = ShownFile(found.entry, f"{self._location}/{found.name}", hidden, hid_last)
                        known.shown = before
                    yield before

    def _group(
        self, table: TableView, written: WrittenSchemas, kind: Kind, span: range, group: Sequence[ShownFile]
    ) -> _Group:
        paths = [one.file.path for one in group]
        known = self._groups.get((kind, span))
        if known is None or known.paths != paths:
            known = self._groups[kind, span] = _Group(paths, self._write(table, written, group))
        return known

    def _write(self, table: TableView, written: WrittenSchemas, group: Sequence[ShownFile]) -> _Written:
        is_keyed = bool(table.meta.primary_key)
        first = group[0].file
        meta = catalog_pb2.Table()
        meta.CopyFrom(table.meta)
        del meta.columns[:]
        meta.columns.extend(written.columns_of(first))
        meta.schema_version = first.schema_version
        schema = file_schema(arrow_schema(meta, with_row_id=not is_keyed))
        rows, begins, count = [], {}, 0
        for one in group:
            begins[one.file.path] = count
            found = rows_in(one.file.content)
            if is_keyed:
                found = found.drop_columns([OP]) if OP in found.column_names else found
            else:
                ids = pa.array(row_ids_in(found, one.file.first_row_id))
                found = found.drop_columns([ROW_ID]) if ROW_ID in found.column_names else found
                found = found.append_column(ROW_ID, ids)
            rows.append(found.select(schema.names))
            count += len(found)
        whole = pa.concat_tables(rows).combine_chunks()
        sink = io.BytesIO()
        footers: list[pq.FileMetaData] = []
        pq.write_table(pa.table(whole.columns, schema=schema), sink, metadata_collector=footers)
        content = sink.getvalue()
        name = f"{DATA}/{hashlib.sha256(content).hexdigest()[:32]}.parquet"
        file = data_file(meta, name, footers[0], len(content))
        file.partition.CopyFrom(first.partition)
        if not is_keyed:
            file.first_row_id = min(one.file.first_row_id for one in group)
        entry = common_pb2.LiveEntry(
            file=file,
            data_version=max(one.entry.data_version for one in group),
            added_version=_formed_at([one.entry.added_version for one in group]),
        )
        self._put(MadeFile(name, content))
        return _Written(entry, begins)


def _formed_at(versions: Sequence[int]) -> int:
    """The first version whose ranges put the commits of these versions together."""
    return smallest_with(min(versions), max(versions), WIDTH).stop - 1


def _grouped(files: Iterable[ShownFile], end: int) -> Iterator[tuple[range, list[ShownFile]]]:
    """Files in the order of their versions, by ranges of versions that hold few enough."""
    waiting = list(files)
    spans = list(reversed(list(cover(end, WIDTH))))
    while waiting:
        span = spans.pop()
        count = 0
        while count < len(waiting) and waiting[count].entry.added_version < span.stop:
            count += 1
        if count > FILES_MAX and len(span) > 1:
            spans += reversed(list(parts(span, WIDTH)))
        elif count:
            yield span, waiting[:count]
            waiting = waiting[count:]
