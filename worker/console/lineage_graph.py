"""Which view reads which table, as a graph: sources on the left, what is made of them to their right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

BOX_WIDTH: Final = 200
BOX_HEIGHT: Final = 32
GAP_X: Final = 80
GAP_Y: Final = 16
NAME_CHARS_MAX: Final = 26


@dataclass(frozen=True, slots=True)
class Box:
    """A table or view; `text` is its name, cut to fit."""

    name: str
    text: str
    is_view: bool
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """The boxes, the curves between them, and the size of the picture."""

    boxes: Sequence[Box]
    curves: Sequence[str]
    width: int
    height: int


def draw_lineage(sources: Mapping[str, Sequence[str]]) -> LineageGraph:
    """The graph of views by name, each with the names of what it reads; an empty name is left out."""
    reads = {view: [name for name in names if name] for view, names in sources.items()}
    depths: dict[str, int] = {}
    for name in sorted({*reads, *(source for names in reads.values() for source in names)}):
        _depth(name, reads, depths, frozenset())
    columns: dict[int, list[str]] = {}
    for name in sorted(depths):
        columns.setdefault(depths[name], []).append(name)
    boxes = {
        name: Box(name, cut(name), name in reads, depth * (BOX_WIDTH + GAP_X), row * (BOX_HEIGHT + GAP_Y))
        for depth, names in columns.items()
        for row, name in enumerate(names)
    }
    curves = [curve(boxes[source], boxes[view]) for view, names in sorted(reads.items()) for source in names]
    width = (max(columns, default=0) + 1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = max((len(names) for names in columns.values()), default=0) * (BOX_HEIGHT + GAP_Y) - GAP_Y
    return LineageGraph(list(boxes.values()), curves, width, max(height, 0))


def _depth(name: str, reads: Mapping[str, Sequence[str]], depths: dict[str, int], path: frozenset[str]) -> int:
    """The longest way from a table that nothing is read for; a name that comes again, by a race, ends the way."""
    if name not in depths:
        below = [_depth(source, reads, depths, path | {name}) for source in reads.get(name, ()) if source not in path]
        depths[name] = max(below, default=-1) + 1
    return depths[name]


def curve(source: Box, view: Box) -> str:
    """The path of a line from the right of a box to the left of another one."""
    x1, y1, x2, y2 = source.x + BOX_WIDTH, source.y + BOX_HEIGHT // 2, view.x, view.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2} {y2}"


def cut(name: str) -> str:
    return name if len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 1]}…"
