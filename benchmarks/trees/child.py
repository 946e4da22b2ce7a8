"""A process of a tree: a service, a lake and the work of rows, a unit whenever it is asked for one.

It reads lines, such as `run append`, and answers each with a line of JSON. What else is printed goes to stderr.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.trees.work import Place, Row, Work
from laketx import connect
from metaservice.client.meta_client import MetaClient

LISTENS = "listening on "


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, int]]:
    """The service of the packages that this process has: its address and its process."""
    command = [sys.executable, "-m", "metaservice", "--listen", "127.0.0.1:0", "--data", str(folder / "store")]
    with (
        (folder / "service.log").open("wb") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        assert running.stdout is not None
        try:
            yield running.stdout.readline().removeprefix(LISTENS).strip(), running.pid
        finally:
            running.terminate()
            running.wait(60)


class Works:
    """The rows of a module, made when they are first asked for."""

    def __init__(self, rows: dict[str, Row], place: Place) -> None:
        self._rows = rows
        self._place = place
        self._made: dict[str, Work] = {}

    def answer(self, step: str, name: str) -> dict[str, Any]:
        if step == "make":
            self._made.clear()  # what the row before holds is no part of this one
            self._made[name] = self._rows[name].make(self._place)
            return {}
        work = self._made[name]
        if step == "before":
            if work.before is not None:
                work.before()
            gc.collect()
            return {}
        start = time.perf_counter()
        work.unit()
        return {"wall": time.perf_counter() - start}


def main() -> None:
    module, folder = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    with ExitStack() as stack:
        address, pid = stack.enter_context(service(folder))
        client = stack.enter_context(MetaClient(address, principal="bench"))
        session = module.session(folder) if hasattr(module, "session") else None
        if session is not None:
            stack.callback(session.stop)
        lake = stack.enter_context(connect(f"laketx://{address}", session, warehouse=str(folder / "files")))
        works = Works(module.ROWS, Place(folder, address, client, lake))
        tell({"service": pid})
        for line in sys.stdin:
            step, name = line.split()
            tell(works.answer(step, name))


if __name__ == "__main__":
    main()
