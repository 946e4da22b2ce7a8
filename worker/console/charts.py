"""Geometry of the charts: numbers in, shapes out. The templates draw them as SVG, beside a table of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 960
HEIGHT: Final = 160
GAP: Final = 2
PAIR_WIDTH_MAX: Final = 64
FACTORS: Final = (1, 2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle; `kind` is its class in the style sheet, `text` what it stands for."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A point on an axis; `size` is half its width."""

    x: float
    y: float
    size: float
    kind: str
    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """A line of an axis with its text."""

    at: float
    text: str


def nice_top(highest: float) -> int:
    """The end of an axis: a round number."""
    step = 1
    while True:
        for factor in FACTORS:
            if factor * step >= highest:
                return factor * step
        step *= 10


def stacked_bars(columns: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> tuple[list[Bar], int]:
    """Columns of parts, each a kind and a number, and the end of the axis."""
    top = nice_top(max((sum(number for _, number in parts) for _, parts in columns), default=0))
    wide = WIDTH / max(len(columns), 1)
    bars = []
    for at, (name, parts) in enumerate(columns):
        below = 0.0
        for kind, number in parts:
            if number:
                height = max(HEIGHT * number / top, 1.0)
                x, y = round(at * wide, 2), round(HEIGHT - below - height, 2)
                bars.append(Bar(x, y, round(max(wide - GAP, 1), 2), round(height, 2), kind, f"{name}: {number} {kind}"))
                below += height
    return bars, top


def paired_bars(columns: Sequence[tuple[str, int, int]], kinds: tuple[str, str]) -> tuple[list[Bar], int]:
    """Columns of two bars beside each other, each with its text, and the end of the axis."""
    top = nice_top(max((max(first, second) for _, first, second in columns), default=0))
    wide = min(WIDTH / max(len(columns), 1), PAIR_WIDTH_MAX)
    half = max(wide / 2 - GAP, 1.0)
    bars = []
    for at, (text, *numbers) in enumerate(columns):
        for side, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
            high = max(HEIGHT * number / top, 1.0) if number else 0.0
            x = round(at * wide + side * half, 2)
            bars.append(Bar(x, round(HEIGHT - high, 2), round(half, 2), round(high, 2), kind, text))
    return bars, top


def scaled(value: float, first: float, last: float, width: float = WIDTH) -> float:
    """Where a value is between two others, as a coordinate."""
    return round(width * (value - first) / (last - first), 2) if last > first else round(width / 2, 2)


def heat(count: int, highest: int) -> int:
    """A step of the colour scale, 0 to 5; 0 is for nothing alone."""
    return 0 if not count else 1 + min(4, 4 * (count - 1) // max(highest - 1, 1))
