"""Who is first in each row, by what factor, and whether LakeTX reaches its goal."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from rich.table import Table

from benchmarks.field.system import LAKETX
from benchmarks.figures import figure_text

if TYPE_CHECKING:
    from benchmarks.frame import Benchmark  # draws plots

NEAR: Final = 1.03  # of the first
SMALL: Final = 10.0  # times the best other
COUNTED: Final = ("lost", "doubled", "refused", "given_up")


@dataclass(frozen=True)
class Row:
    """What every system did with one work. `unranked` has those that don't count, and why."""

    work: str
    unit: str
    runs: Mapping[str, Sequence[float]]
    better: Literal["more", "less"] = "less"
    times_best: float = 1 / NEAR  # what LakeTX should be over the best other
    unranked: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def ranked(self) -> list[tuple[str, float]]:
        """Names and medians, the best first."""
        medians = [(name, statistics.median(runs)) for name, runs in self.runs.items() if name not in self.unranked]
        return sorted(medians, key=lambda entry: entry[1], reverse=self.better == "more")

    @property
    def best_other(self) -> float | None:
        return next((median for name, median in self.ranked if name != LAKETX), None)

    @property
    def target(self) -> float | None:
        """What LakeTX should reach."""
        if self.best_other is None:
            return None
        return self.best_other * self.times_best if self.better == "more" else self.best_other / self.times_best

    @property
    def times(self) -> float | None:
        """How many times as good as the best other LakeTX is."""
        if self.best_other is None:
            return None
        ours = statistics.median(self.runs[LAKETX])
        return ours / self.best_other if self.better == "more" else self.best_other / ours

    @property
    def lead(self) -> str:
        """The first, and by what factor."""
        (first, median), *others = self.ranked
        if not others:
            return f"{first}, alone"
        second, other = others[0]
        factor = median / other if self.better == "more" else other / median
        return f"{first}, {figure_text(factor)} times {second}"

    @property
    def goal(self) -> str:
        return f"{SMALL:g} times the best other" if self.times_best == SMALL else "first, or within 3 %"

    @property
    def verdict(self) -> str:
        if self.times is None:
            return ""
        return "holds" if self.times >= self.times_best else "falls short"

    @property
    def counted(self) -> str:
        """What was counted, by system."""
        parts = []
        for name, counts in self.counts.items():
            numbers = [f"{counts[word]} {word.replace('_', ' ')}" for word in COUNTED if counts[word]]
            if numbers:
                parts.append(f"{name} {', '.join(numbers)}")
        if len(parts) < len(self.counts):
            nothing = "nothing lost, doubled, refused or given up"
            parts.append(f"the others: {nothing}" if parts else nothing)
        return "; ".join(parts)

    def add_to(self, bench: Benchmark) -> None:
        notes = [f"first: {self.lead}", self.counted, *(f"{name}: {why}" for name, why in self.unranked.items())]
        bench.add(
            self.work,
            self.runs[LAKETX],
            unit=self.unit,
            at_least=self.target if self.better == "more" else None,
            at_most=self.target if self.better == "less" else None,
            peers={name: runs for name, runs in self.runs.items() if name != LAKETX},
            note="\n".join(note for note in notes if note),
            details={
                "first": self.ranked[0][0],
                "times_best_other": self.times,
                "goal": self.goal,
                "counts": {name: dict(counts) for name, counts in self.counts.items()},
                "unranked": dict(self.unranked),
            },
        )


def ranking_table(rows: Sequence[Row]) -> Table:
    table = Table(title="Who is first", title_justify="left", show_lines=True)
    for column in ("work", "first", "LakeTX over the best other", "goal", "", "counted; left out"):
        table.add_column(column)
    for row in rows:
        left_out = [f"{name}: {why}" for name, why in row.unranked.items()]
        times = "" if row.times is None else f"{figure_text(row.times)} times"
        notes = "\n".join(note for note in (row.counted, *left_out) if note)
        table.add_row(row.work, row.lead, times, row.goal, row.verdict, notes)
    return table
