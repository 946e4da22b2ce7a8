"""Hudi or Paimon on the work of `benchmarks/compact.py`: a table with a key, ten upserts, one compaction of it all.

`python -m benchmarks.peers.compact_keyed_spark hudi|paimon FOLDER ROWS BUCKETS DELTAS RUNS`, in their environment.
Seconds, those of plain Spark that copies the same rows, and bytes written as JSON in the last line.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.environment import HUDI_SETTINGS, PAIMON_SETTINGS
from benchmarks.spark_data import SCHEMA, rows, session
from benchmarks.turns import interleaved


class Peer(Protocol):
    """A table that takes upserts by `id`."""

    folder: Path

    def upsert(self, changed: DataFrame) -> None: ...

    def compact(self, copy: Path) -> None:
        """A copy of the table, which lies beside it."""


class Hudi:
    """Merge on read, buckets by a hash of the key, nothing compacted meanwhile."""

    def __init__(self, spark: SparkSession, folder: Path, buckets: int) -> None:
        self.folder = folder / "hudi" / "keyed"
        self._spark = spark
        self._options = {
            "hoodie.table.name": "keyed",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": "",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": str(buckets),
            "hoodie.compact.inline": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.parquet.compression.codec": "zstd",
        }

    def upsert(self, changed: DataFrame) -> None:
        mode = "append" if self.folder.exists() else "overwrite"
        changed.write.format("hudi").options(**self._options).mode(mode).save(str(self.folder))

    def compact(self, copy: Path) -> None:
        for step in ("schedule", "run"):
            self._spark.sql(f"CALL run_compaction(op => '{step}', path => '{copy}')").collect()


class Paimon:
    """Writers that leave compaction to others."""

    def __init__(self, spark: SparkSession, folder: Path, buckets: int) -> None:
        self.folder = folder / "paimon" / "bench.db" / "keyed"
        self._spark = spark
        spark.sql("CREATE DATABASE paimon.bench")
        columns = SCHEMA.replace("id bigint", "id bigint not null")
        properties = f"'primary-key'='id', 'bucket'='{buckets}', 'write-only'='true', 'file.format'='parquet'"
        spark.sql(f"CREATE TABLE paimon.bench.keyed ({columns}) TBLPROPERTIES ({properties})")

    def upsert(self, changed: DataFrame) -> None:
        changed.writeTo("paimon.bench.keyed").append()

    def compact(self, copy: Path) -> None:
        self._spark.sql(f"CALL paimon.sys.compact(table => 'bench.{copy.name}')").collect()


PEERS: dict[str, tuple[dict[str, str], Callable[[SparkSession, Path, int], Peer]]] = {
    "hudi": (HUDI_SETTINGS, Hudi),
    "paimon": (PAIMON_SETTINGS, Paimon),
}


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    count, buckets, deltas, runs = map(int, sys.argv[3:])
    settings, kind = PEERS[name]
    if name == "paimon":
        settings = {**settings, "spark.sql.catalog.paimon.warehouse": f"file:{folder}/paimon"}
    spark = session("4g", **settings)
    frames = [rows(spark, count)]
    frames += [rows(spark, count // 100, start=at, step=100, files=2, edition=at + 1) for at in range(deltas)]
    peer, source, target = kind(spark, folder, buckets), str(folder / f"{name}-rows"), str(folder / f"{name}-plain")
    for frame in frames:
        frame.write.mode("append").parquet(source)
        peer.upsert(frame)
    found: dict[str, list[float]] = {"seconds": [], "plain": []}
    for run in range(-1, runs):
        copy = peer.folder.with_name(f"copy{run + 1}")
        shutil.copytree(peer.folder, copy)
        before = set(copy.rglob("*.parquet"))
        ways: dict[str, Callable[[], object]] = {
            "plain": lambda: spark.read.parquet(source).write.mode("overwrite").parquet(target),
            "seconds": partial(peer.compact, copy),
        }
        for way, (seconds,) in interleaved(ways, runs=1, warm_ups=0).items():
            found[way] += [seconds] if run >= 0 else []
        written = [path.stat().st_size for path in copy.rglob("*.parquet") if path not in before]
        if not written:
            raise AssertionError(f"{name} compacted nothing")
        found["bytes"] = [float(sum(written))]
        shutil.rmtree(copy)
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
