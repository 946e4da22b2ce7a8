"""The process that measures one peer, in the peers' environment; it prints one PeerRun as JSON.

Writers run on from the warm-up into the window, and what is acknowledged within the window counts: a commit that
straddles its start makes good for one that straddles its end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from benchmarks.peers.port import Peer, Refused, Writer
from benchmarks.together import run_together, wait_for_all

MODULES = {"deltalake": "benchmarks.peers.delta", "pyiceberg": "benchmarks.peers.iceberg"}


@dataclass
class Tally:
    """What one writer saw."""

    acknowledged: list[str] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)  # of commits acknowledged in the window
    refusals: Counter[str] = field(default_factory=Counter)
    unfinished: int = 0
    attempts: int | None = None


@dataclass(frozen=True)
class Plan:
    peer: str
    folder: Path
    warm_up_s: float
    window_s: float


def main() -> None:
    plan, writers, mode = _arguments()
    peer = _peer(plan.peer)
    peer.create(plan.folder)
    tallies = run_together(partial(write, plan), writers, mode)
    print(json.dumps(_report(peer, plan, writers, mode, tallies)))


def write(plan: Plan, writer_number: int) -> Tally:
    """Commit file after file until the window is over, beside the other writers, who start at the same moment."""
    writer = _peer(plan.peer).open_writer(plan.folder)
    tally = Tally()
    wait_for_all()
    window_start = time.monotonic() + plan.warm_up_s
    window_end = window_start + plan.window_s
    began = time.monotonic()
    while began < window_end:
        file_name = f"w{writer_number}-{len(tally.acknowledged)}.parquet"
        if _commit(writer, file_name, window_end, tally):
            tally.acknowledged.append(file_name)
            ended = time.monotonic()
            if window_start <= ended < window_end:
                tally.latencies_s.append(ended - began)
        else:
            tally.unfinished += 1
        began = time.monotonic()
    tally.attempts = writer.attempts
    return tally


def _commit(writer: Writer, file_name: str, window_end: float, tally: Tally) -> bool:
    """Submit until the file is in the table, or the window is over."""
    while True:
        try:
            writer.commit(file_name)
        except Refused as refusal:
            tally.refusals[refusal.reason] += 1
            if time.monotonic() >= window_end:
                return False
        else:
            return True


def _report(peer: Peer, plan: Plan, writers: int, mode: str, tallies: list[Tally]) -> dict[str, object]:
    acknowledged = {name for tally in tallies for name in tally.acknowledged}
    latencies_ms = sorted(latency * 1000 for tally in tallies for latency in tally.latencies_s)
    refusals = sum((tally.refusals for tally in tallies), Counter[str]())
    attempts = [tally.attempts for tally in tallies if tally.attempts is not None]
    commits, live = peer.read_back(plan.folder)
    return {
        "peer": plan.peer,
        "version": peer.version(),
        "writers": writers,
        "mode": mode,
        "seconds": plan.window_s,
        "commits": len(latencies_ms),
        "commits_per_s": len(latencies_ms) / plan.window_s,
        "acknowledged": len(acknowledged),
        "refused": refusals.total(),
        "refusals": refusals,
        "unfinished": sum(tally.unfinished for tally in tallies),
        "attempts": sum(attempts) if attempts else None,
        "p50_ms": _percentile(latencies_ms, 0.50),
        "p99_ms": _percentile(latencies_ms, 0.99),
        "verified": commits == len(acknowledged) and sorted(live) == sorted(acknowledged),
        "lost": len(acknowledged - set(live)),
        "surplus": len(live) - len(acknowledged & set(live)),
        "durability": peer.durability,
    }


def _percentile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def _peer(name: str) -> Peer:
    """Only the peer that is measured is imported: every writer process pays for it."""
    return cast("Peer", importlib.import_module(MODULES[name]))


def _arguments() -> tuple[Plan, int, str]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=sorted(MODULES))
    parser.add_argument("--writers", type=int, required=True)
    parser.add_argument("--mode", choices=("threads", "processes"), required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    return Plan(given.peer, given.folder, given.warm_up, given.seconds), given.writers, given.mode


if __name__ == "__main__":
    main()
