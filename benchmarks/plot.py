"""The picture of a benchmark: log-scale bars, one panel a unit, LakeTX beside its peers and its targets."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

mpl.use("Agg")

OURS, MISSED, TARGET = "#1f6feb", "#d9480f", "#111827"
PEER_COLOURS = ("#94a3b8", "#d4b106", "#7aa98b", "#b08bbf", "#c98b6b")
QUIET = "#64748b"
BAR_INCHES, GAP_BARS = 0.3, 0.9
DECADES_ALONE = 1000.0  # a span above which the ticks between decades go unlabelled


@dataclass(frozen=True)
class Bar:
    who: str
    figure: float
    lowest: float
    highest: float
    missed: bool = False


@dataclass(frozen=True)
class Row:
    """One piece of work; its first bar is ours."""

    label: str
    target_text: str
    bars: Sequence[Bar]
    target: float | None


@dataclass(frozen=True)
class Panel:
    """The works that share a unit, and how their figures are written."""

    unit: str
    rows: Sequence[Row]
    text: Callable[[float], str]

    @property
    def drawable(self) -> bool:
        """A log scale has no place for zeros alone; the table shows them."""
        return any(bar.figure > 0 for row in self.rows for bar in row.bars)

    @property
    def height(self) -> float:
        """In bars, each row with a gap."""
        return sum(len(row.bars) + GAP_BARS for row in self.rows)


def save(path: Path, title: str, machine: str, panels: Sequence[Panel]) -> None:
    """Draw the panels one below the other, each as tall as its bars need."""
    panels = [panel for panel in panels if panel.drawable]
    bars = [panel.height for panel in panels]
    figure = Figure(figsize=(11, sum(bars) * BAR_INCHES + len(panels) * 0.6 + 1.3), layout="constrained")
    colours = _colours(panels)
    axes = figure.subplots(max(1, len(panels)), 1, squeeze=False, height_ratios=bars or None)
    for panel, axis in zip(panels, axes[:, 0], strict=False):
        _draw(axis, panel, colours)
    figure.legend(
        title=title, title_fontproperties={"size": 15, "weight": "bold"}, handles=_legend(panels, colours), ncols=7,
        loc="outside upper left", alignment="left", frameon=False, fontsize=9, handlelength=1.4, columnspacing=1.6,
    )  # fmt: skip
    figure.supxlabel("\n".join(textwrap.wrap(machine, 150)), x=0.015, ha="left", fontsize=7.5, color=QUIET)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white")


def _draw(axis: Axes, panel: Panel, colours: dict[str, str]) -> None:
    left, right = _limits(panel)
    axis.set_xscale("log")
    axis.set_xlim(left, right)
    ticks, labels, y = [], [], 0.0
    for row in panel.rows:
        top = y
        for bar in row.bars:
            _draw_bar(axis, bar, y, left, MISSED if bar.missed else colours[bar.who], panel.text(bar.figure))
            y += 1
        if row.target:
            axis.plot([row.target] * 2, [top - 0.55, y - 0.45], color=TARGET, linewidth=2.2, zorder=4)
        ticks.append((top + y - 1) / 2)
        target = f"\ntarget {row.target_text}" if row.target_text else ""
        labels.append("\n".join(textwrap.wrap(row.label, 44)) + target)
        y += GAP_BARS
    axis.set_yticks(ticks, labels, fontsize=9)
    axis.set_ylim(y - (1 + GAP_BARS) / 2, -(1 + GAP_BARS) / 2)
    axis.set_title(panel.unit, loc="left", fontsize=10, color=QUIET)
    decades = right / left > DECADES_ALONE
    axis.xaxis.set_major_formatter(lambda value, _position: panel.text(value))
    axis.xaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
    axis.xaxis.set_minor_formatter(NullFormatter() if decades else lambda value, _position: panel.text(value))
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", which="both", labelsize=8, colors=QUIET)
    axis.grid(visible=True, axis="x", which="major", color="#e2e8f0", zorder=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.spines["bottom"].set_color("#cbd5e1")


def _draw_bar(axis: Axes, bar: Bar, y: float, left: float, colour: str, text: str) -> None:
    """A figure of zero has no place on a log scale: its text alone stands at the left edge."""
    end = max(bar.figure, left)
    axis.barh(y, end - left, left=left, height=0.82, color=colour, zorder=2)
    if bar.lowest < bar.highest and bar.lowest > 0:
        axis.plot([bar.lowest, bar.highest], [y, y], color="black", linewidth=1, alpha=0.55, zorder=3)
    axis.annotate(
        text, (max(end, bar.highest), y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9, zorder=5,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
    )  # fmt: skip


def _limits(panel: Panel) -> tuple[float, float]:
    """From well below the smallest figure, so that every bar shows, to room for the text right of the largest."""
    figures = [figure for row in panel.rows for bar in row.bars for figure in (bar.lowest, bar.highest)]
    positive = [figure for figure in (*figures, *(row.target or 0 for row in panel.rows)) if figure > 0] or [1.0]
    return min(positive) / 3, max(positive) * 3


def _colours(panels: Sequence[Panel]) -> dict[str, str]:
    peers = dict.fromkeys(bar.who for panel in panels for row in panel.rows for bar in row.bars[1:])
    ours = {row.bars[0].who: OURS for panel in panels for row in panel.rows}
    return dict(zip(peers, cycle(PEER_COLOURS), strict=False)) | ours


def _legend(panels: Sequence[Panel], colours: dict[str, str]) -> list[Patch | Line2D]:
    """Ours first, then peers; a kind of mark that no panel has is left out."""
    rows = [row for panel in panels for row in panel.rows]
    ours = list(dict.fromkeys(row.bars[0].who for row in rows))
    names = ours + [name for name in colours if name not in ours]
    handles: list[Patch | Line2D] = [Patch(color=colours[name], label=name) for name in names]
    if any(bar.missed for row in rows for bar in row.bars):
        handles.append(Patch(color=MISSED, label="target missed"))
    if any(row.target for row in rows):
        handles.append(Line2D([], [], color=TARGET, linewidth=2.2, label="target"))
    if any(bar.lowest < bar.highest for row in rows for bar in row.bars):
        handles.append(Line2D([], [], color="black", linewidth=1, alpha=0.55, label="lowest to highest run"))
    return handles
