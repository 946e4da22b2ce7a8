"""Statements of Spark SQL, run by the interpreter of its environment with Iceberg.

Takes a JSON file: the settings of the session, and the statements. Each answers a line of JSON: its error, or its rows.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path


def main(asked: Path) -> None:
    given = json.loads(asked.read_text(encoding="utf-8"))
    session = import_module("pyspark.sql").SparkSession.builder.master("local[2]").config(map=given["settings"])
    spark = session.getOrCreate()
    for one in given["statements"]:
        try:
            rows = [list(row) for row in spark.sql(one).collect()]
        except Exception as error:  # noqa: BLE001 - what is refused is what is asked
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        else:
            print(json.dumps({"rows": rows}, default=str), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
