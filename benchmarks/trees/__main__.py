"""This tree beside another commit's: the same small units of work in turns. `make bench-turns BASE=COMMIT`.

Both trees do the same work: a process each, with its own environment, service and Spark session. A unit of one, then
the same of the other, and the other way round in every second pair. ROUNDS=2 times with new processes, PAIRS=20 pairs
each. The table has the ratios of this tree to the base within pairs: medians, and in brackets where the median lies
with 95 % confidence. Processor time is that of all processes of a tree, and so depends little on what else the machine
does; time by the clock depends much on it. It leaves out what a JVM's compiler takes, which depends on how often code
ran before and not on a unit. `holds` compares processor time with 1.05.

ARGS="commit arrow" chooses groups, ARGS="arrow:clean sql:merge" rows. BASE=HEAD without changes shows the method's own
error. JSON=FILE writes every ratio.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.frame import ROOT, describe_machine
from benchmarks.trees.team import Sample, child, measure
from benchmarks.trees.work import Row
from benchmarks.trees.worktree import commit_of, tree_of
from benchmarks.turns import median_interval, over, paired, verdict
from benchmarks.words import chosen

GROUPS = {
    "commit": "benchmarks.trees.commits",
    "arrow": "benchmarks.trees.arrow_tables",
    "sql": "benchmarks.trees.spark_sql",
}
BASE, OURS = "base", "ours"
AT_MOST = 1.05
Samples = dict[str, list[Sample]]


class Ratios(NamedTuple):
    """Of a row: this tree's figures over the base's, one a pair, and what their units took."""

    title: str
    cpu: list[float]
    wall: list[float]
    service: list[float]
    units: Samples

    @property
    def cpu_s(self) -> float:
        return statistics.median(sample.cpu for sample in self.units[OURS])

    @property
    def holds(self) -> str:
        return verdict(self.cpu, AT_MOST)


def ratios(row: Row, samples: Samples) -> Ratios:
    def of(figure: str) -> list[float]:
        ours, base = ([getattr(sample, figure) for sample in samples[name]] for name in (OURS, BASE))
        return over(ours, base)

    return Ratios(row.title, of("cpu"), of("wall"), of("service"), samples)


def text(figures: Sequence[float]) -> str:
    low, high = median_interval(figures)
    return f"{statistics.median(figures):.2f} ({low:.2f} … {high:.2f})"


def measured(
    trees: dict[str, Path], module: str, rows: dict[str, Row], rounds: int, pairs: int
) -> Iterator[tuple[str, Ratios]]:
    """What is known of a row after each round."""
    log, samples = Console(stderr=True), {name: Samples({BASE: [], OURS: []}) for name in rows}
    for number in range(1, rounds + 1):
        with ExitStack() as stack:
            children = {name: stack.enter_context(child(tree, module)) for name, tree in trees.items()}
            for name, row in rows.items():
                for tree, taken in measure(children, name, paired((BASE, OURS), pairs), row.warm_ups).items():
                    samples[name][tree] += taken
                result = ratios(row, samples[name])
                log.print(f"[dim]{row.title}: {text(result.cpu)} after round {number} of {rounds}", soft_wrap=True)
                yield name, result


def chosen_rows(words: Sequence[str], group: str, rows: dict[str, Row]) -> dict[str, Row]:
    if not words or group in words:
        return rows
    return {name: row for name, row in rows.items() if f"{group}:{name}" in words}


def main() -> int:
    all_rows: dict[str, dict[str, Row]] = {group: import_module(module).ROWS for group, module in GROUPS.items()}
    words = chosen(__doc__, [*GROUPS, *(f"{group}:{name}" for group, rows in all_rows.items() for name in rows)])
    base = os.environ.get("BASE")
    if not base:
        sys.exit("BASE is missing: make bench-turns BASE=COMMIT")
    rounds, pairs = (int(os.environ.get(name) or default) for name, default in (("ROUNDS", 2), ("PAIRS", 20)))
    commit, machine = commit_of(base), describe_machine(["pyarrow", "grpcio", "rocksdict"])
    trees = {BASE: tree_of(commit), OURS: ROOT}
    results: dict[str, Ratios] = {}
    try:
        for group, module in GROUPS.items():
            if rows := chosen_rows(words, group, all_rows[group]):
                for name, result in measured(trees, module, rows, rounds, pairs):
                    results[f"{group}:{name}"] = result
    finally:
        show(commit, machine, results)
    return 0 if all(result.holds != "no" for result in results.values()) else 1


def show(commit: str, machine: dict[str, object], results: dict[str, Ratios]) -> None:
    caption = f"{machine['cpu']} · {machine['cores']} cores · load at start {machine['load_at_start']}"
    table = Table(title=f"This tree over {commit[:12]}, within pairs", caption=caption, caption_justify="left")
    for column in ("row", "work", "processor time", "the service's", "clock", "seconds", "holds"):
        table.add_column(column, justify="left" if column in {"row", "work", "holds"} else "right")
    for name, result in results.items():
        figures = (text(result.cpu), text(result.service), text(result.wall))
        table.add_row(name, result.title, *figures, f"{result.cpu_s:.2f}", result.holds)
    Console(width=None if sys.stdout.isatty() else 170).print(table)
    if target := os.environ.get("JSON"):
        entries = [{"row": name, **result._asdict(), "holds": result.holds} for name, result in results.items()]
        contents = {"base": commit, "machine": machine, "rows": entries}
        Path(target).write_text(json.dumps(contents, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"list: {target}")


if __name__ == "__main__":
    sys.exit(main())
