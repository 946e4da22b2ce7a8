"""Costs by size, on log-log scales: a panel for each cost, a line for each thing that grows."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.plot import QUIET

mpl.use("Agg")

Curves = Mapping[str, Mapping[str, Sequence[tuple[int, float]]]]


def save(path: Path, title: str, machine: str, curves: Curves, units: Mapping[str, str]) -> None:
    """Draw `curves`: by thing and cost, its sizes and figures."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    colours = mpl.colormaps["tab10"]
    for axis, (cost, unit) in zip(figure.subplots(2, 2).flat, units.items(), strict=False):
        for at, (thing, costs) in enumerate(curves.items()):
            sizes, figures = zip(*costs[cost], strict=True)
            axis.plot(sizes, figures, marker="o", markersize=4, linewidth=1.5, color=colours(at % 10), label=thing)
        axis.set(xscale="log", yscale="log", title=f"{cost}, {unit}")
        axis.grid(visible=True, which="major", alpha=0.3)
    figure.legend(*axis.get_legend_handles_labels(), title=title, loc="outside upper left", ncols=5, frameon=False)
    figure.supxlabel("\n".join(textwrap.wrap(machine, 150)), x=0.015, ha="left", fontsize=7.5, color=QUIET)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")
