"""Files that were staged become entries, with the facts in their footers: rows, bounds, partition, bucket."""

from __future__ import annotations

from typing import Any

from protos.laketx.v1 import common_pb2
from worker.base.schema import PART
from worker.commit.stages import Stage
from worker.files.footers import data_file, partition_of
from worker.files.storage import storage


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


def bucket_in(path: str) -> int:
    """The bucket of a staged file, from its folder or the number of the task that wrote it."""
    folder = path.rpartition(f"/{PART}=")[2].partition("/")[0] if f"/{PART}=" in path else ""
    number = folder.partition("-")[0] or path.rpartition("/")[2].removeprefix("part-").partition("-")[0]
    return int(number)
