"""Who keeps which versions of a table, as lanes over one axis of versions: one lane for each kind of holder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from worker.console.charts import WIDTH, Tick, scaled

LANE: Final = 34
BAR: Final = 12
LABEL_WIDTH: Final = 150
KINDS: Final = ("pin", "tag", "open transaction", "cursor", "view", "branch")
ONWARDS: Final = frozenset({"cursor", "view", "branch"})  # they keep what comes after their version, too


@dataclass(frozen=True, slots=True)
class Hold:
    """A version that somebody keeps."""

    version: int
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A holder: from `x` to the newest version, or a point if its width is 0."""

    x: float
    y: float
    width: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class HoldChart:
    """The lanes with their names, the shapes, the axis and the height of the picture."""

    lanes: Sequence[tuple[str, float]]
    shapes: Sequence[Shape]
    horizon: float  # where versions begin that need no holder
    ticks: Sequence[Tick]
    height: int


def draw_holds(holds: Sequence[Hold], horizon: int, head: int) -> HoldChart:
    """`horizon`: the oldest version that the table's own time to retain keeps."""
    kinds = [kind for kind in KINDS if any(hold.kind == kind for hold in holds)]
    lanes = {kind: at * LANE + LANE / 2 for at, kind in enumerate(kinds)}
    first = min((hold.version for hold in holds), default=horizon)
    first = min(first, horizon)
    wide = WIDTH - LABEL_WIDTH - BAR
    shapes = []
    for hold in holds:
        x = round(LABEL_WIDTH + scaled(hold.version, first, head, wide), 2)
        is_onwards = hold.kind in ONWARDS
        text = f"{hold.kind} {hold.name}: version {hold.version:,}{' and all after it' if is_onwards else ''}"
        width = round(LABEL_WIDTH + wide - x, 2) if is_onwards else 0.0
        shapes.append(Shape(x, lanes[hold.kind], width, hold.kind.replace(" ", "-"), text))
    versions = sorted({first, (first + head) // 2, head})
    ticks = [Tick(round(LABEL_WIDTH + scaled(each, first, head, wide), 2), f"{each:,}") for each in versions]
    line = round(LABEL_WIDTH + scaled(horizon, first, head, wide), 2)
    names = [(kind.split()[-1], y) for kind, y in lanes.items()]
    return HoldChart(names, shapes, line, ticks, len(kinds) * LANE + LANE)
