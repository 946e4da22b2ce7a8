"""Runs the peers as child processes of their own environment and judges which way of running serves each best."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.environment import ROOT, ensure_python

PEERS = ("deltalake", "pyiceberg")
SECONDS_LEAST = 2.0
WARM_UP_SECONDS = 1.0
GRACE_SECONDS = 300.0  # starting the writers, and finishing what the window's end cuts


@dataclass(frozen=True)
class PeerRun:
    """What one run of a peer gave. Rates and latencies are of the commits acknowledged within the window."""

    peer: str
    version: str
    writers: int
    mode: str  # "threads" or "processes"
    seconds: float
    commits: int  # acknowledged in the window
    commits_per_s: float
    acknowledged: int  # warm-up and last commits included
    refused: int  # calls that gave up, after the peer's own retries
    refusals: Mapping[str, int]  # by the error's name
    unfinished: int  # files still not committed when the window was over
    attempts: int | None  # tries inside the calls, where the peer lets one count them
    p50_ms: float | None
    p99_ms: float | None
    verified: bool  # history and live files are exactly what was acknowledged
    lost: int  # acknowledged, yet not in the table
    surplus: int  # in the table, never acknowledged
    durability: str


@dataclass(frozen=True)
class PeerFigure:
    """A peer at a number of writers, in the mode that serves it best; `runs` are of that mode alone."""

    peer: str
    writers: int
    runs: Sequence[PeerRun]
    other_modes: Sequence[Sequence[PeerRun]]

    @property
    def mode(self) -> str:
        return self.runs[0].mode

    @property
    def commits_per_s(self) -> float:
        return median_rate(self.runs)

    @property
    def all_runs(self) -> list[PeerRun]:
        return [run for runs in (self.runs, *self.other_modes) for run in runs]

    @property
    def verified(self) -> bool:
        return all(run.verified for run in self.all_runs)

    @property
    def note(self) -> str:
        """What a reader should know beside the figure."""
        refused = sum(run.refused for run in self.runs)
        calls = refused + sum(run.acknowledged for run in self.runs)
        parts = [
            f"{self.peer} {self.runs[0].version}, {self.writers} {self.mode if self.writers > 1 else 'writer'}",
            *(f"as {runs[0].mode} {median_rate(runs):.3g}/s" for runs in self.other_modes),
            f"{refused} of {calls} calls refused",
            self.runs[0].durability,
            *([] if self.verified else ["NOT VERIFIED: the table isn't what was acknowledged"]),
        ]
        return "; ".join(parts)


def measure(
    folder: Path,
    *,
    seconds: float,
    writers: Sequence[int] = (1, 16),
    runs: int = 3,
    peers: Sequence[str] = PEERS,
) -> dict[tuple[str, int], PeerFigure]:
    """Every peer at every number of writers, by (peer, writers); tables are made below `folder`.

    Several writers run in every mode, the modes taking turns so that a disturbance of the machine meets them alike.
    """
    python = ensure_python()
    seconds = max(SECONDS_LEAST, seconds)
    figures = {}
    for peer in peers:
        for count in writers:
            modes = ("threads", "processes") if count > 1 else ("threads",)
            rounds = [[_run(python, folder, peer, count, mode, seconds) for mode in modes] for _ in range(runs)]
            by_mode = sorted(zip(*rounds, strict=True), key=median_rate)
            figures[peer, count] = PeerFigure(peer, count, by_mode[-1], by_mode[:-1])
    return figures


def median_rate(runs: Sequence[PeerRun]) -> float:
    return statistics.median(run.commits_per_s for run in runs)


def _run(python: Path, folder: Path, peer: str, writers: int, mode: str, seconds: float) -> PeerRun:
    with TemporaryDirectory(dir=folder) as table:
        command = [str(python), "-m", "benchmarks.peers.child", peer, f"--writers={writers}", f"--mode={mode}"]
        command += [f"--seconds={seconds}", f"--warm-up={WARM_UP_SECONDS}", f"--folder={table}"]
        child = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=seconds + GRACE_SECONDS, check=True)
    run = PeerRun(**json.loads(child.stdout))
    print(f"{peer}, {writers} {mode}: {run.commits_per_s:.3g} commits/s", file=sys.stderr)
    return run
