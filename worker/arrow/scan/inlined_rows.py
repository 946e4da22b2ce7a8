"""Rows that MetaService keeps itself: files that are no files yet, each an Arrow stream of a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import pyarrow as pa

from metaservice.shared.arrow_streams import END, head_of, join_streams
from protos.laketx.v1 import common_pb2
from worker.connection.table_view import TableView
from worker.files.arrow_types import field_id

Content: TypeAlias = bytes  # of an inlined file: a stream of Arrow
OPTIONS: Final = pa.ipc.IpcWriteOptions()  # pyarrow looks for others in the environment each time if none are given


def fetch_rows(table: TableView, files: Iterable[common_pb2.DataFile]) -> None:
    """Fetch the rows of inlined files. Their version must be pinned, or newer than every retired version."""
    missing = {file.path: file for file in files if file.inlined and not file.content}
    if not missing:
        return
    for inlined in table.client.read_inlined(table.table_id, list(missing)):
        missing[inlined.path].content = inlined.content


def fetch_entries(table: TableView, entries: Sequence[common_pb2.LiveEntry]) -> None:
    """Fetch the rows of the inlined files among a plan's entries."""
    fetch_rows(table, [entry.file for entry in entries if entry.file.inlined])


def rows_in(content: Content) -> pa.Table:
    """Return the rows of an inlined file, in the shape of the file's schema version."""
    return pa.ipc.open_stream(content).read_all().combine_chunks()


def read_columns(content: Content, schema: pa.Schema) -> pa.Table:
    """Return the rows with only the schema's columns, which are matched by id, or by name if they have no id."""
    head = head_of(content)
    if len(head) == len(content):
        return rows_in(content)  # in Arrow's old format
    places = _places(head)
    columns = [field.name if (number := field_id(field)) is None else number for field in schema]
    included = sorted({places[column] for column in columns if column in places}) or [
        0
    ]  # without a column the number of rows would be lost
    options = pa.ipc.IpcReadOptions(included_fields=included)
    return pa.ipc.open_stream(content, options=options).read_all().combine_chunks()


@lru_cache(maxsize=1 << 5)
def _places(head: bytes) -> Mapping[int | str, int]:
    """Return the positions of the columns of a stream with this schema, by name and by id."""
    schema = pa.ipc.open_stream(head + END).schema
    by_name: dict[int | str, int] = {field.name: at for at, field in enumerate(schema)}
    return by_name | {number: at for at, field in enumerate(schema) if (number := field_id(field)) is not None}


def joined(contents: Sequence[Content]) -> Content:
    """Join the contents of several inlined files of a schema version."""
    return join_streams(contents) or content_of(pa.concat_tables(map(rows_in, contents)))


def content_of(rows: pa.Table) -> Content:
    """Return the content of an inlined file with these rows."""
    (content,) = contents_of([rows])
    return content


def contents_of(parts: Sequence[pa.Table]) -> list[Content]:
    """Return inlined files with these rows. Their schema is encoded once: it is most of a small file."""
    sink = pa.BufferOutputStream()
    ends = []
    with pa.ipc.new_stream(sink, parts[0].schema, options=OPTIONS) as out:
        for rows in parts:
            out.write_table(rows.combine_chunks())
            ends.append(sink.tell())
    whole = bytes(sink.getvalue())
    if len(parts) == 1:
        return [whole]
    head = head_of(whole)
    begins = [len(head), *ends]
    return [head + whole[begin:end] + END for begin, end in zip(begins, ends, strict=False)]
