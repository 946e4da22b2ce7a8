"""A statement that waits while another commit is made."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


class Held:
    """A statement that waits, planned and begun to read, until another commit is there."""

    def __init__(self, spark: SparkSession, folder: Path, name: str) -> None:
        self.begun, self.go = folder / "begun", folder / "go"
        begun, go = str(self.begun), str(self.go)

        def wait(value: int) -> int:
            Path(begun).touch()
            while not Path(go).exists():
                time.sleep(0.02)
            return value

        spark.udf.register(name, wait, "bigint")

    def run(self, statement: Callable[[], Any], meanwhile: Callable[[], Any]) -> Exception | None:
        self.begun.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)
        failed: list[Exception] = []

        def work() -> None:
            try:
                statement()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            while not self.begun.exists():
                thread.join(0.02)
                assert thread.is_alive(), failed
            meanwhile()
        finally:
            self.go.touch()
            thread.join()
        return failed[0] if failed else None
