"""Rows that MetaService keeps itself: files that are no files yet, each an Arrow stream of a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from protos.laketx.v1 import common_pb2
from worker.connection.table_view import TableView

Content: TypeAlias = bytes  # of an inlined file: a stream of Arrow
CONTINUES: Final = b"\xff\xff\xff\xff"  # before the size of each part of a stream
END: Final = CONTINUES + bytes(4)
OPTIONS: Final = pa.ipc.IpcWriteOptions()  # pyarrow looks for others in the environment each time if none are given


def fetch_rows(table: TableView, files: Iterable[common_pb2.DataFile]) -> None:
    """Gives inlined files their rows. Their version must be pinned, or newer than any that is retired."""
    wanted = {file.path: file for file in files if file.inlined and not file.content}
    if not wanted:
        return
    for one in table.client.read_inlined(table.table_id, list(wanted)):
        wanted[one.path].content = one.content


def fetch_entries(table: TableView, entries: Sequence[common_pb2.LiveEntry]) -> None:
    """The same for the files among a plan's entries."""
    fetch_rows(table, [entry.file for entry in entries if entry.file.inlined])


def rows_in(content: Content) -> pa.Table:
    """The rows of an inlined file, in the shape of the file's schema version."""
    return pa.ipc.open_stream(content).read_all().combine_chunks()


def head_of(content: Content) -> bytes:
    """Its schema, as bytes; all of a stream in Arrow's old format, which no other continues."""
    return content[: 8 + int.from_bytes(content[4:8], "little")] if content.startswith(CONTINUES) else content


def joined(contents: Sequence[Content]) -> Content:
    """The rows of several inlined files of a schema version, as those of one.

    A stream is its schema, batches, and an end. Where the schemas are the same bytes, as those of one kind of writer
    are, only the batches are put together: reading the schemas is most of the time that small streams take.
    """
    head = head_of(contents[0])
    begin, end = len(head), -len(END)
    if head.startswith(CONTINUES) and {(one[:begin], one[end:]) for one in contents} == {(head, END)}:
        return b"".join([head, *[one[begin:end] for one in contents], END])
    return content_of(pa.concat_tables(map(rows_in, contents)))


def content_of(rows: pa.Table) -> Content:
    """An inlined file with these rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=OPTIONS) as out:
        out.write_table(rows.combine_chunks())
    return bytes(sink.getvalue())
