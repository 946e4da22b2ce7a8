"""Delete sets that a write stages: the ids of hidden rows, inline or in a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2
from worker.base.values import PartitionKey, partition_key
from worker.files.storage import make_folder, storage

INLINE_BYTES_MAX: Final = common_pb2.LIMIT_DELETE_SET_BYTES  # a larger delete set is kept in a file
TOUCHES_BYTES_MAX: Final = common_pb2.LIMIT_TOUCHES_BYTES  # the service takes 2 MiB
RANGES_MAX: Final = int(common_pb2.LIMIT_ROW_RANGES)


def named(touches: set[str]) -> list[str]:
    """Return the paths of the touched files; none if there are too many: then the set touches any older file."""
    if "" in touches:
        return []
    size = sum(len(path.encode()) for path in touches)
    return sorted(touches) if size <= TOUCHES_BYTES_MAX else []


def delete_sets(
    folder: str, txn_id: str, hidden: Iterable[tuple[common_pb2.DataFile, Iterable[int]]]
) -> list[common_pb2.DeleteSet]:
    """Return a transaction's delete sets, one for each partition. `hidden` are files with ids of their rows.

    A file without a path stands for any older one.
    """
    ids: dict[PartitionKey, BitMap64] = defaultdict(BitMap64)
    files: dict[PartitionKey, list[common_pb2.DataFile]] = defaultdict(list)
    for file, row_ids in hidden:
        key = partition_key(file.partition)
        ids[key].update(row_ids)
        files[key].append(file)
    return [_delete_set(folder, txn_id, files[key], bitmap, number) for number, (key, bitmap) in enumerate(ids.items())]


def _delete_set(
    folder: str, txn_id: str, touched: Sequence[common_pb2.DataFile], bitmap: BitMap64, number: int
) -> common_pb2.DeleteSet:
    raw = bitmap.serialize()
    delete_set = common_pb2.DeleteSet(
        path=f"{txn_id}/deletes-{number}.bin",
        partition=touched[0].partition,
        rows=len(bitmap),
        touches=named({file.path for file in touched}),
    )
    if len(raw) <= INLINE_BYTES_MAX:
        delete_set.bitmap = raw
        return delete_set
    delete_set.bytes, delete_set.row_id_min, delete_set.row_id_max = len(raw), bitmap.min(), bitmap.max()
    delete_set.ranges.extend(ranges_of(bitmap))
    files, root = storage(folder)
    make_folder(files, f"{root}/{txn_id}")
    with files.open_output_stream(f"{root}/{delete_set.path}") as out:
        out.write(raw)
    return delete_set


def ranges_of(bitmap: Any, most: int = RANGES_MAX) -> list[common_pb2.RowIdRange]:
    """Return ranges that contain every id, split at the widest gaps."""
    ids = np.asarray(bitmap.to_array())
    gaps = np.diff(ids)
    cuts = np.flatnonzero(gaps > 1)
    if len(cuts) >= most:
        widest = np.argsort(gaps[cuts])[len(cuts) - (most - 1) :]
        cuts = np.sort(cuts[widest])
    firsts, lasts = np.append(0, cuts + 1), np.append(cuts, len(ids) - 1)
    return [
        common_pb2.RowIdRange(first=int(ids[first]), last=int(ids[last]))
        for first, last in zip(firsts, lasts, strict=True)
    ]
