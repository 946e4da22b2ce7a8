"""Runs the whole matrix and keeps its results, from which `make docs` makes the table of readers."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.iceberg.matrix.results import save
from tests.iceberg.matrix.run import FAR, NEAR, run


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), [*NEAR, *FAR])
    save(found)
    for one in found:
        right = one.reads - len(one.failures)
        print(f"{one.engine} {one.version}, format {one.form}: {right} of {one.reads} reads are right")


if __name__ == "__main__":
    main()
