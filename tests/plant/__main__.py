"""`python -m tests.plant`: plants each bug in a copy of the tree and runs the quick suites; 0 if all are caught.

Writes docs/planted-bugs.md where all were. `python -m tests.plant WORD…` plants only bugs whose name has a WORD.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.plant.bugs import BUGS, Bug

ROOT = Path(__file__).resolve().parents[2]
CODE = ("laketx", "metaservice", "protos", "tests", "worker", "tools", "examples")
COPIED = (*CODE, "docs", "pyproject.toml", "README.md")
TIMEOUT_S = 120
SPARK, SPARK_TIMEOUT_S = "spark", 600  # its start alone takes seconds
AT_A_TIME = 2
SUITES = {
    "simulation": ["tests.simulation", "--seeds", "120", "--stop"],
    "conformance": ["tests.conformance"],
    "histories": ["tests.histories", "--minutes", "0.3", "--transactions", "96", "--kills", "1"],
}
PYTEST = ("pytest", "-x", "-q", "-p", "no:cacheprovider")
PYTEST_FOLDERS = ("tests/unit", "tests/model")
CAUGHT, MISSED = "caught", "-"


def main(words: Sequence[str]) -> int:
    bugs = [bug for bug in BUGS if not words or any(word in bug.name for word in words)]
    suites = list_suites()
    started = time.monotonic()
    clean = try_bug(None, suites, {bug.spark for bug in bugs if bug.spark})
    wrong = [name for name, result in clean.items() if result != MISSED]
    if wrong:
        print(f"without a planted bug these suites fail: {', '.join(wrong)}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(lambda bug: try_bug(bug, suites, {bug.spark} - {()}), bugs))
    missed = 0
    for bug, found in zip(bugs, results, strict=True):
        by = [name for name, result in found.items() if result == CAUGHT]
        missed += not by
        print(f"{'caught' if by else 'MISSED'}  {bug.name}: {', '.join(by) or 'by nobody'}")
    print(f"{len(bugs) - missed} caught, {missed} missed, {time.monotonic() - started:.0f} s")
    if not missed and len(bugs) == len(BUGS):
        (ROOT / "docs" / "planted-bugs.md").write_text(write_table(bugs, results, suites), encoding="utf-8")
    return 1 if missed else 0


def list_suites() -> dict[str, list[str]]:
    suites = dict(SUITES)
    for folder in PYTEST_FOLDERS:
        if any((ROOT / folder).glob("test_*.py")):
            suites[folder.removeprefix("tests/")] = [*PYTEST, folder]
    return suites


def try_bug(bug: Bug | None, suites: dict[str, list[str]], spark: Collection[tuple[str, ...]]) -> dict[str, str]:
    """What every suite says of a copy with the bug."""
    with tempfile.TemporaryDirectory(prefix="laketx-plant-") as folder:
        root = Path(folder)
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, root / name)
        if bug is not None:
            bug.plant(root)
            if bug.file.endswith(".java"):
                run_suite(["tools.spark_jar", "--require"], root, SPARK_TIMEOUT_S)
        found = {name: run_suite(command, root) for name, command in suites.items()}
        on_spark = [run_suite([*PYTEST, *tests], root, SPARK_TIMEOUT_S) for tests in sorted(spark)]
        return {**found, SPARK: CAUGHT if CAUGHT in on_spark else MISSED}


def run_suite(command: list[str], root: Path, timeout_s: float = TIMEOUT_S) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=root,
            env=environment,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CAUGHT
    return MISSED if ended.returncode == 0 else CAUGHT


def write_table(bugs: Sequence[Bug], results: Sequence[dict[str, str]], suites: dict[str, list[str]]) -> str:
    lines = [
        "# Planted bugs",
        "",
        "`make plant` plants each bug in a copy of the tree, runs the quick suites on it and writes this table.",
        "Beside them it runs tests of its own for a bug that only Spark can see.",
        "Every bug is caught by one suite at least; the suites pass on the tree without a bug.",
        "",
        f"| bug | file | {' | '.join([*suites, SPARK])} |",
        f"| --- | --- | {' | '.join('---' for _ in [*suites, SPARK])} |",
    ]
    for bug, found in zip(bugs, results, strict=True):
        cells = " | ".join(found[name] for name in [*suites, SPARK])
        lines.append(f"| {bug.name} | `{bug.file}` | {cells} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
