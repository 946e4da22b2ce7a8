"""Files that were staged become entries, with the facts in their footers: rows, bounds, partition, bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow.compute as pc

from protos.laketx.v1 import common_pb2
from worker.base.errors import InputError
from worker.base.schema import PART
from worker.commit.stages import Stage
from worker.files.footers import check_required, data_file, footers_and_sizes, in_threads, list_parquet, partition_of
from worker.files.storage import in_pages, storage

ROWS_AT_ONCE: Final = 1 << 17


def entries_in(stage: Stage, name: str, kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
    """The entries of the files with rows below a folder."""
    files, root = storage(stage.table_folder)
    found = list_parquet(files, f"{root}/{name}")
    return entries_of(stage, [info.path.removeprefix(f"{root}/") for info in found], kind)


def entries_of(stage: Stage, paths: Sequence[str], kind: common_pb2.FileKind.ValueType) -> list[common_pb2.DataFile]:
    """The entries of those files that have rows; their paths are relative to the table's folder."""
    files, root = storage(stage.table_folder)
    written = zip(paths, footers_and_sizes(files, [f"{root}/{path}" for path in paths]), strict=True)
    entries = [entry_of(stage, path, footer, size, kind) for path, (footer, size) in written if footer.num_rows]
    check_required(stage.meta, entries)
    return entries


def entry_of(
    stage: Stage, path: str, footer: Any, size: int, kind: common_pb2.FileKind.ValueType
) -> common_pb2.DataFile:
    """The entry of a file with rows; the path is relative to the table's folder."""
    files, root = storage(stage.table_folder)
    entry = data_file(stage.meta, path, footer, size)
    entry.kind = kind
    if kind != common_pb2.FILE_KIND_UNSPECIFIED:
        entry.bucket = bucket_in(path)
    entry.partition.CopyFrom(partition_of(stage.meta, entry, files, f"{root}/{path}"))
    return entry


def check_duplicates(stage: Stage, entries: Sequence[common_pb2.DataFile], if_twice: str) -> None:
    files, root = storage(stage.table_folder)
    keys = list(stage.meta.primary_key)

    def look(entry: common_pb2.DataFile) -> dict[str, Any] | None:
        return first_duplicate(files, f"{root}/{entry.path}", keys)

    for duplicate in in_threads(look, entries):
        if duplicate is not None:
            raise InputError(
                "KEY_TWICE",
                f"the key {duplicate} appears twice in the rows written to {stage.meta.name}; {if_twice}",
            )


def bucket_in(path: str) -> int:
    """The bucket of a staged file, from its folder or the number of the task that wrote it."""
    folder = path.rpartition(f"/{PART}=")[2].partition("/")[0] if f"/{PART}=" in path else ""
    number = folder.partition("-")[0] or path.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    return int(number)


def first_duplicate(
    files: Any, path: str, keys: Sequence[str], rows_at_once: int = ROWS_AT_ONCE
) -> dict[str, Any] | None:
    """The first key that appears twice in a file sorted by key."""
    last: Any = None
    for batch in in_pages(path, files).iter_batches(batch_size=rows_at_once, columns=list(keys)):
        columns = [batch.column(batch.schema.get_field_index(name)) for name in keys]
        if last is not None and all(column[0] == before for column, before in zip(columns, last, strict=True)):
            return {name: column[0].as_py() for name, column in zip(keys, columns, strict=True)}
        same: Any = None
        for column in columns:
            equal = pc.equal(column.slice(1), column.slice(0, len(column) - 1))
            same = equal if same is None else pc.and_(same, equal)
        where = pc.index(same, True).as_py() if len(same) else -1
        if where >= 0:
            return {name: column[where].as_py() for name, column in zip(keys, columns, strict=True)}
        last = [column[-1] for column in columns]
    return None
