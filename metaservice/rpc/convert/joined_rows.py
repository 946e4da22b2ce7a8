"""Inlined files joined: what a read of a whole table needs of many small commits, in few entries."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from metaservice.shared.arrow_batches import in_one_batch
from metaservice.shared.arrow_streams import head_of, join_streams
from protos.laketx.v1 import common_pb2, read_pb2


def joined_entries(entries: bytes, is_final: bool) -> bytes | None:
    """Entries of a plan, as fields of its answer, with inlined files of a kind as one.

    Their rows are put into one batch if that is final: it takes long, and spares each reader far more.

    None if there is a delete set, or a file of a table with a primary key: then each file has to be known.
    """
    alike: dict[Hashable, list[common_pb2.LiveEntry]] = {}
    for entry in read_pb2.PlanScanResponse.FromString(entries).entries:
        file = entry.file
        if entry.HasField("delete_set") or file.kind != common_pb2.FILE_KIND_UNSPECIFIED:
            return None
        kind = (file.schema_version, file.carries_row_ids, head_of(file.content)) if file.content else file.path
        alike.setdefault(kind, []).append(entry)
    answer = read_pb2.PlanScanResponse()
    for group in alike.values():
        joined = _joined(group, is_final) if len(group) > 1 else None
        answer.entries.extend(group if joined is None else [joined])
    return answer.SerializeToString()


def _joined(group: Sequence[common_pb2.LiveEntry], is_final: bool) -> common_pb2.LiveEntry | None:
    content = join_streams([entry.file.content for entry in group])
    if content is None:
        return None
    if is_final:
        content = in_one_batch(content) or content
    first = group[0].file
    return common_pb2.LiveEntry(
        data_version=max(entry.data_version for entry in group),
        added_version=max(entry.added_version for entry in group),
        file=common_pb2.DataFile(
            path=first.path,
            kind=first.kind,
            schema_version=first.schema_version,
            carries_row_ids=first.carries_row_ids,
            inlined=True,
            rows=sum(entry.file.rows for entry in group),
            bytes=len(content),
            content=content,
        ),
    )
