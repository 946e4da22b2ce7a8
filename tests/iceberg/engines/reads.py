"""Reads with one engine, run by the interpreter of that engine's environment.

Takes the name of the engine and a JSON file: the settings of the session, and the reads. Each read names the file for
its rows, an Arrow file; each answers a line of JSON: what failed, or nothing. The first line is the engine's version.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

Read = dict[str, Any]


def spark(settings: dict[str, str]) -> Callable[[Read], pa.Table]:
    session = import_module("pyspark.sql").SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()

    def read(one: Read) -> pa.Table:
        at = (
            ""
            if one["at"] is None
            else f" VERSION AS OF {one['at'] if isinstance(one['at'], int) else repr(one['at'])}"
        )
        return session.sql(f"SELECT * FROM {one['catalog']}.{one['namespace']}.`{one['table']}`{at}").toArrow()

    return read


def daft(_settings: dict[str, str]) -> Callable[[Read], pa.Table]:
    engine, catalogs = import_module("daft"), import_module("pyiceberg.catalog")

    def read(one: Read) -> pa.Table:
        catalog = catalogs.load_catalog("lake", type="rest", uri=one["url"], warehouse=one["warehouse"])
        table = catalog.load_table((one["namespace"], one["table"]))
        at = one["at"]
        number = table.snapshot_by_name(at).snapshot_id if isinstance(at, str) else at
        return engine.read_iceberg(table, snapshot_id=number).to_arrow()

    return read


def chdb(_settings: dict[str, str]) -> Callable[[Read], pa.Table]:
    engine = import_module("chdb")

    def read(one: Read) -> pa.Table:
        folder = one["export"].partition("/metadata/")[0].removeprefix("file://")
        statement = f"SELECT * FROM icebergLocal('{folder}')"
        found = engine.query(statement, "Arrow")
        return pa.ipc.open_file(found.bytes()).read_all()

    return read


ENGINES = {"spark": ("pyspark", spark), "daft": ("daft", daft), "chdb": ("chdb", chdb)}


def main(engine: str, reads: Path) -> None:
    asked = json.loads(reads.read_text(encoding="utf-8"))
    package, build = ENGINES[engine]
    print(json.dumps(importlib.metadata.version(package)), flush=True)
    read = build(asked["settings"])
    for one in asked["reads"]:
        try:
            rows = read(one)
            with pa.OSFile(one["to"], "wb") as sink, pa.ipc.new_file(sink, rows.schema) as out:
                out.write_table(rows)
        except Exception as error:  # noqa: BLE001 - what an engine can't is what is asked
            print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
        else:
            print(json.dumps(""), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
