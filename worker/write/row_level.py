"""What a write declares to MetaService, so that it can be judged by rows: keys, ranges of ids, kinds of reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sf

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.schema import quoted

PROFILE: Final = "row_level"
KEYS_MAX: Final = 10_000  # more are judged by bucket
RANGES_MAX: Final = 1_024
_SUBQUERY = re.compile(r"\b(select|exists|scalar\w*|\w*subquery)\b", re.IGNORECASE)


def changes_all(*expressions: str | Column | None) -> bool:
    """Whether an UPDATE or DELETE with these conditions and values reads only the rows that it changes."""
    return not any(_SUBQUERY.search(str(one)) for one in expressions if one is not None)


def key_sets(
    meta: catalog_pb2.Table, spark: SparkSession, table_folder: str, files: Sequence[common_pb2.DataFile]
) -> list[common_pb2.KeySet]:
    """The keys in files that were just written; empty if the profile does not use them, or if there are too many."""
    if meta.profile != PROFILE or not files or sum(file.rows for file in files) > KEYS_MAX:
        return []
    hashed = sf.xxhash64(*[sf.col(quoted(name)) for name in meta.primary_key])
    read = spark.read.parquet(*[f"{table_folder}/{file.path}" for file in files])
    rows = read.select(hashed.alias("hash"), sf.col("_metadata.file_path").alias("path")).collect()
    places = {_end(file.path): file for file in files}
    found: dict[tuple[bytes, int], common_pb2.KeySet] = {}
    for row in rows:
        file = places[_end(unquote(row.path))]
        place = (file.partition.SerializeToString(deterministic=True), file.bucket)
        one = found.setdefault(place, common_pb2.KeySet(partition=file.partition, bucket=file.bucket))
        one.hashes.append(row.hash)
    return list(found.values())


def _end(path: str) -> str:
    """Folder and name: one Spark task gives the files of several folders the same name."""
    return "/".join(path.rsplit("/", 2)[-2:])


def ranges_of(bitmap: Any, most: int = RANGES_MAX) -> list[common_pb2.RowIdRange]:
    """Ranges that contain every id, split at the widest gaps."""
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
