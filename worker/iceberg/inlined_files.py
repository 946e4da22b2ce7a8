"""Inlined rows as Parquet files: those of a range of commits together, a file for each partition and schema version.

The live small writes of a version alone decide the rows of each file: every catalog makes the same files.
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
    """A written file, and the position of each small write's first row in it."""

    entry: common_pb2.LiveEntry
    begins: Mapping[str, int]  # by path

    @property
    def name(self) -> str:
        return self.entry.file.path


@dataclass(slots=True)
class _Group:
    """The small writes of a range, by path, with their file and how a version showed it last."""

    paths: Sequence[str]
    written: _Written
    shown: ShownFile | None = None


class InlinedFiles:
    """The small writes of a table as files. A written file is used again."""

    def __init__(self, location: str, put: Put) -> None:
        self._location = location
        self._put = put
        self._groups: dict[tuple[Kind, range], _Group] = {}

    def shown(self, table: TableView, inlined: Sequence[ShownFile], end: int) -> Iterator[ShownFile]:
        """Yield the files for the inlined files of a version. `end` is the version after it."""
        written = WrittenSchemas(table)
        kinds: dict[Kind, list[ShownFile]] = defaultdict(list)
        for inlined_file in sorted(
            inlined, key=lambda inlined_file: (inlined_file.entry.added_version, inlined_file.file.path)
        ):
            kinds[partition_key(inlined_file.file.partition), inlined_file.file.schema_version].append(inlined_file)
        for kind, files in kinds.items():
            for span, group in _grouped(files, end):
                cached = self._group(table, written, kind, span, group)
                written_file = cached.written
                hidden = BitMap64()
                for inlined_file in group:
                    hidden |= (
                        inlined_file.hidden.shift(written_file.begins[inlined_file.file.path])
                        if inlined_file.hidden
                        else inlined_file.hidden
                    )
                if len(hidden) < written_file.entry.file.rows:
                    hid_last, before = max(inlined_file.hidden_version for inlined_file in group), cached.shown
                    if before is None or before.hidden != hidden or before.hidden_version != hid_last:
                        before = ShownFile(
                            written_file.entry, f"{self._location}/{written_file.name}", hidden, hid_last
                        )
                        cached.shown = before
                    yield before

    def _group(
        self, table: TableView, written: WrittenSchemas, kind: Kind, span: range, group: Sequence[ShownFile]
    ) -> _Group:
        paths = [inlined_file.file.path for inlined_file in group]
        cached = self._groups.get((kind, span))
        if cached is None or cached.paths != paths:
            cached = self._groups[kind, span] = _Group(paths, self._write(table, written, group))
        return cached

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
        for inlined_file in group:
            begins[inlined_file.file.path] = count
            file_rows = rows_in(inlined_file.file.content)
            if is_keyed:
                file_rows = file_rows.drop_columns([OP]) if OP in file_rows.column_names else file_rows
            else:
                ids = pa.array(row_ids_in(file_rows, inlined_file.file.first_row_id))
                file_rows = file_rows.drop_columns([ROW_ID]) if ROW_ID in file_rows.column_names else file_rows
                file_rows = file_rows.append_column(ROW_ID, ids)
            rows.append(file_rows.select(schema.names))
            count += len(file_rows)
        whole = pa.concat_tables(rows).combine_chunks()
        sink = io.BytesIO()
        footers: list[pq.FileMetaData] = []
        pq.write_table(pa.table(whole.columns, schema=schema), sink, metadata_collector=footers)
        content = sink.getvalue()
        name = f"{DATA}/{hashlib.sha256(content).hexdigest()[:32]}.parquet"
        file = data_file(meta, name, footers[0], len(content))
        file.partition.CopyFrom(first.partition)
        if not is_keyed:
            file.first_row_id = min(inlined_file.file.first_row_id for inlined_file in group)
        entry = common_pb2.LiveEntry(
            file=file,
            data_version=max(inlined_file.entry.data_version for inlined_file in group),
            added_version=_formed_at([inlined_file.entry.added_version for inlined_file in group]),
        )
        self._put(MadeFile(name, content))
        return _Written(entry, begins)


def _formed_at(versions: Sequence[int]) -> int:
    """Return the first version whose ranges put the commits of these versions together."""
    return smallest_with(min(versions), max(versions), WIDTH).stop - 1


def _grouped(files: Iterable[ShownFile], end: int) -> Iterator[tuple[range, list[ShownFile]]]:
    """Yield files in the order of their versions, by ranges of versions with few enough files."""
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
