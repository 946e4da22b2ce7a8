"""`python -m tests.plant`: plants each bug in a copy of the tree and runs suites until one fails; 0 if all are caught.

Writes docs/planted-bugs.md where all were. `python -m tests.plant WORD…` plants only bugs whose name has a WORD.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.plant.bug import Bug
from tests.plant.bugs import BUGS

ROOT = Path(__file__).resolve().parents[2]
CODE = ("laketx", "metaservice", "protos", "tests", "worker", "iceberg", "imports", "tools", "examples")
COPIED = (*CODE, "docs", "pyproject.toml", "README.md")
TIMEOUT_S = 900  # a suite that takes so long has caught nothing
AT_A_TIME = 2
PYTEST = ("pytest", "-x", "-q", "-p", "no:cacheprovider")
QUICK = ("-m", "not long")
SUITES = {  # the quick ones first
    "conformance": ["tests.conformance"],
    "unit": [*PYTEST, "tests/unit"],
    "model": [*PYTEST, "tests/model"],
    "retention": [*PYTEST, "tests/retention"],
    "simulation": ["tests.simulation", "--seeds", "120", "--stop"],
    "take-overs": ["tests.simulation", "--seeds", "0", "--take-overs", "150", "--stop"],
    "histories": ["tests.histories", "--minutes", "0.3", "--transactions", "96", "--kills", "1"],
}


def main(words: Sequence[str]) -> int:
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    own = {f"own tests: {' '.join(bug.own_tests)}": [*PYTEST, *QUICK, *bug.own_tests] for bug in bugs if bug.own_tests}
    started = time.monotonic()
    clean = try_bug(None, {**SUITES, **own})
    if clean:
        print(f"without a planted bug this suite fails: {clean}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        found = {bug: pool.submit(try_bug, bug, suites_for(bug)) for bug in bugs}
    catchers = {bug: one.result() for bug, one in found.items()}
    missed = sum(not one for one in catchers.values())
    print(f"{len(bugs) - missed} caught, {missed} missed, {time.monotonic() - started:.0f} s")
    if not missed and len(bugs) == len(BUGS):
        (ROOT / "docs" / "planted-bugs.md").write_text(write_table(catchers), encoding="utf-8")
    return 1 if missed else 0


def suites_for(bug: Bug) -> dict[str, list[str]]:
    """A bug that no suite can see has tests of its own."""
    return {"own tests": [*PYTEST, *QUICK, *bug.own_tests]} if bug.own_tests else SUITES


def try_bug(bug: Bug | None, suites: dict[str, list[str]]) -> str:
    """Which suite fails first on a copy with the bug; empty: none does."""
    with tempfile.TemporaryDirectory(prefix="laketx-plant-") as folder:
        root = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, root / name)
        if bug is not None:
            bug.plant(root)
            if bug.file.endswith(".java") and fails("the jar", ["tools.spark_jar", "--require"], root):
                raise LookupError(f"{bug.name}: the jar does not build")
        started = time.monotonic()
        found = next((name for name, command in suites.items() if fails(name, command, root)), "")
        if bug is not None:
            result = f"caught by {found}" if found else "MISSED"
            print(f"{result}: {bug.name} ({time.monotonic() - started:.0f} s)", flush=True)
        return found


def fails(name: str, command: list[str], root: Path) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=root,
            env=environment,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{name} did not end within {TIMEOUT_S} s, which counts for nothing", file=sys.stderr)
        return False
    return ended.returncode != 0


def write_table(catchers: dict[Bug, str]) -> str:
    lines = [
        "# Planted bugs",
        "",
        "`make plant` plants each bug in a copy of the tree, runs quick suites on it until one fails, and writes this",
        "table. A bug that no suite can see has tests of its own. Without a planted bug every suite passes.",
        "",
        "| bug | file | caught by |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {bug.name} | `{bug.file}` | {found} |" for bug, found in catchers.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
