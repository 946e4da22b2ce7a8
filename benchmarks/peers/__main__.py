"""`python -m benchmarks.peers`: the peers' figures on their own; SCALE makes the windows shorter, JSON names a list."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.figures import figure_text
from benchmarks.frame import describe_machine, scale, scratch
from benchmarks.peers import PeerRun, measure

WINDOW_SECONDS = 5.0


def main() -> None:
    with scratch() as folder:
        figures = measure(folder, seconds=WINDOW_SECONDS * scale(), runs=3).values()
    runs = [run for figure in figures for run in figure.all_runs]
    Console(width=None if sys.stdout.isatty() else 150).print(_table(runs))
    for figure in figures:
        print(f"{figure.commits_per_s:8.1f} commits/s  {figure.note}")
    if target := os.environ.get("JSON"):
        listed = [asdict(run) | {"machine": describe_machine()} for run in runs]
        Path(target).write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def _table(runs: Sequence[PeerRun]) -> Table:
    table = Table(title="Peers: commits of one small registered file", title_justify="left")
    table.add_column("peer")
    for column in ("writers", "commits/s", "p50 ms", "p99 ms", "commits", "refused", "attempts", "unfinished"):
        table.add_column(column, justify="right")
    table.add_column("verified")
    for run in runs:
        table.add_row(
            f"{run.peer} {run.version}",
            f"{run.writers} {run.mode}" if run.writers > 1 else "1",
            figure_text(run.commits_per_s),
            "" if run.p50_ms is None else figure_text(run.p50_ms),
            "" if run.p99_ms is None else figure_text(run.p99_ms),
            str(run.acknowledged),
            str(run.refused),
            "" if run.attempts is None else str(run.attempts),
            str(run.unfinished),
            "yes" if run.verified else f"[bold red]NO: {run.lost} lost, {run.surplus} surplus",
        )
    return table


if __name__ == "__main__":
    main()
