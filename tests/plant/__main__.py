"""`python -m tests.plant`: plants each bug in a copy of the tree and runs suites until one fails; 0 if all are caught.

Each bug that is caught gets its row in docs/planted-bugs.md at once, so that a run that is broken off counts for what
it did. `python -m tests.plant WORD…` plants only bugs whose name or file has a WORD.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from tests.plant.bug import Bug
from tests.plant.bugs import BUGS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "planted-bugs.md"
CODE = ("laketx", "metaservice", "protos", "tests", "worker", "tools", "examples", "benchmarks")
COPIED = (*CODE, "docs", "pyproject.toml", "README.md", "CONTRIBUTING.md")
TIMEOUT_S = 900  # a suite that takes so long has caught nothing
AT_A_TIME = 2
PYTEST = ("pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long")
TESTS_FAILED = 1  # pytest's exit code; the others say that tests were not there or could not be read
SUITES = {  # the quick ones first
    "conformance": ["tests.conformance"],
    "unit": [*PYTEST, "tests/unit"],
    "model": [*PYTEST, "tests/model"],
    "retention": [*PYTEST, "tests/retention"],
    "simulation": ["tests.simulation", "--seeds", "120", "--stop"],
    "take-overs": ["tests.simulation", "--seeds", "0", "--take-overs", "150", "--stop"],
    "histories": ["tests.histories", "--minutes", "0.3", "--transactions", "96", "--kills", "1"],
}


class Catch(NamedTuple):
    suite: str
    day: str


def main(words: Sequence[str]) -> int:
    bugs = [bug for bug in BUGS if not words or any(word in bug.name or word in bug.file for word in words)]
    caught = read_page(PAGE.read_text(encoding="utf-8"))
    started = time.monotonic()
    commands = [command for bug in bugs for command in suites_for(bug, "").values()]
    failed = try_bug(None, {" ".join(command): command for command in commands})
    if failed:
        print(f"without a planted bug this suite fails: {failed}", file=sys.stderr)
        return 2
    today = datetime.now(UTC).date().isoformat()
    writes = threading.Lock()

    def play(bug: Bug) -> bool:
        suite = try_bug(bug, suites_for(bug, caught[bug.name].suite if bug.name in caught else ""))
        with writes:
            caught.pop(bug.name, None)
            if suite:
                caught[bug.name] = Catch(suite, today)
            PAGE.write_text(write_page(caught), encoding="utf-8")
        return bool(suite)

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        missed = list(pool.map(play, bugs)).count(False)
    print(f"{len(bugs) - missed} caught, {missed} missed, {time.monotonic() - started:.0f} s")
    return 1 if missed else 0


def suites_for(bug: Bug, first: str) -> dict[str, list[str]]:
    """A bug that no suite can see has tests of its own; else the suite that caught it the last time is tried first."""
    if bug.own_tests:
        return {f"`{bug.own_tests[0]}`": [*PYTEST, *bug.own_tests]}
    return {suite: SUITES[suite] for suite in sorted(SUITES, key=lambda one: one != first)}


def try_bug(bug: Bug | None, suites: Mapping[str, list[str]]) -> str:
    """Which suite fails first on a copy with the bug; empty: none does."""
    with tempfile.TemporaryDirectory(prefix="laketx-plant-") as folder:
        root = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, root / name)
        started = time.monotonic()
        if bug is not None:
            bug.plant(root)
            if bug.file.endswith(".java") and (said := failure_of(["tools.spark_jar", "--require"], root)):
                raise LookupError(f"{bug.name}: the jar does not build: {said}")
        for suite, command in suites.items():
            if said := failure_of(command, root):
                result = f"caught by {suite}" if bug is not None else f"{suite} fails"
                break
        else:
            suite, result, said = "", "MISSED" if bug is not None else "all suites pass", ""
        named = bug.name if bug is not None else "without a bug"
        print(f"{result}: {named} ({time.monotonic() - started:.0f} s) {said}", flush=True)
        return suite


def failure_of(command: list[str], root: Path) -> str:
    """What a suite says of the test that failed; empty where it passes, or takes too long to tell."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"{' '.join(command)} did not end within {TIMEOUT_S} s, which counts for nothing", file=sys.stderr)
        return ""
    if ended.returncode == 0:
        return ""
    lines = [line for line in ended.stdout.splitlines() if line.strip()]
    if command[0] == "pytest" and ended.returncode != TESTS_FAILED:
        raise LookupError(f"{' '.join(command)} ended with {ended.returncode}: {lines[-1:]}")
    named = [line for line in lines if line.startswith(("FAILED tests", "ERROR tests"))]
    return next(iter([*named, *lines[-1:]]), f"exit {ended.returncode}")


def read_page(text: str) -> dict[str, Catch]:
    rows = [[cell.strip() for cell in line.split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    return {row[0].removeprefix("| "): Catch(row[2], row[3].removesuffix(" |")) for row in rows[2:] if len(row) == 4}


def write_page(caught: Mapping[str, Catch]) -> str:
    lines = [
        "# Planted bugs",
        "",
        "`make plant` plants each bug in a copy of the tree and runs quick suites on the copy until one fails. It",
        "begins with the suite that last caught the bug. If no suite can detect a bug, its row names a separate test",
        "file. Without a planted bug all suites pass. The column `day` has the date on which the bug was last planted",
        "and caught, or a dash if it has not been caught yet.",
        "",
        "| bug | file | caught by | day |",
        "| --- | --- | --- | --- |",
    ]
    found = {bug: caught.get(bug.name, Catch("-", "-")) for bug in BUGS}
    lines += [f"| {bug.name} | `{bug.file}` | {catch.suite} | {catch.day} |" for bug, catch in found.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
