"""The other tree: a worktree of the commit, with an environment and a jar of its own, built by its own `make setup`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.frame import ROOT, WORK


def git(*words: str, folder: Path = ROOT) -> str:
    return subprocess.run(["git", *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def commit_of(name: str) -> str:
    return git("rev-parse", "--verify", f"{name}^{{commit}}")


def tree_of(commit: str) -> Path:
    """A worktree that is at the commit and unchanged, or a new one; then made ready."""
    entries = [entry.splitlines() for entry in git("worktree", "list", "--porcelain").split("\n\n")]
    places = [Path(lines[0].removeprefix("worktree ")) for lines in entries if f"HEAD {commit}" in lines]
    tree = next((place for place in places if place.exists() and not git("status", "--porcelain", folder=place)), None)
    if tree is None:
        tree = WORK / "trees" / commit[:12]
        git("worktree", "add", "--force", "--detach", str(tree), commit)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # what ran us is no matter
    subprocess.run(["make", "--silent", "setup"], cwd=tree, env=env, stdout=sys.stderr, check=True)
    return tree
