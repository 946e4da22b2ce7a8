"""A tree map: parts of a whole as tiles whose areas are their shares. Numbers in, rectangles out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TILES_MAX: Final = 60
HEIGHT: Final = 300
LINE: Final = 18
CHAR_WIDTH: Final = 7.5
PADDING: Final = 6
NAME_CHARS_MIN: Final = 8  # a name is cut to no fewer
STEPS: Final = (0.05, 0.2, 0.5, 0.8)  # shares at which the next shade begins


@dataclass(frozen=True, slots=True)
class Tile:
    """A rectangle; `lines` are as much of its text as it has room for."""

    x: float
    y: float
    width: float
    height: float
    step: int  # of the shade, 0 to 4
    text: str
    lines: Sequence[str]
    is_wide: bool  # its name has room in twice the size, as small screens need it


@dataclass(frozen=True, slots=True)
class Item:
    """A part of the whole: its size, the share that decides its shade, and its texts."""

    size: float
    share: float
    name: str
    size_text: str
    text: str


def shade(share: float) -> int:
    """A step of the scale, 0 to 4."""
    return sum(share >= step for step in STEPS)


def tree_map(items: Sequence[Item], width: float) -> list[Tile]:
    """The tiles, the largest first. Items come in that order; those without a size have no tile."""
    sized = [item for item in items if item.size > 0]
    scale = width * HEIGHT / sum(item.size for item in sized) if sized else 0.0
    tiles: list[Tile] = []
    x, y, wide, high = 0.0, 0.0, width, float(HEIGHT)
    at = 0
    while at < len(sized):
        side = min(wide, high)
        end, areas = at + 1, [sized[at].size * scale]
        while end < len(sized):
            more = [*areas, sized[end].size * scale]
            if _worst(more, side) > _worst(areas, side):
                break
            areas, end = more, end + 1
        deep = sum(areas) / side if side else 0.0
        along = 0.0
        for item, area in zip(sized[at:end], areas, strict=True):
            long = area / deep if deep else 0.0
            if wide >= high:
                tiles.append(_tile(item, x, y + along, deep, long))
            else:
                tiles.append(_tile(item, x + along, y, long, deep))
            along += long
        if wide >= high:
            x, wide = x + deep, max(wide - deep, 0.0)
        else:
            y, high = y + deep, max(high - deep, 0.0)
        at = end
    return tiles


def _worst(areas: Sequence[float], side: float) -> float:
    """How far the tile of a row that is farthest from a square is from one; the row lies along a side."""
    whole, square = sum(areas), side * side
    if not whole or not square:
        return float("inf")
    return max(square * max(areas) / whole**2, whole**2 / (square * min(areas)))


def _tile(item: Item, x: float, y: float, width: float, height: float) -> Tile:
    room = int((width - 2 * PADDING) / CHAR_WIDTH)
    lines: list[str] = []
    if room >= min(NAME_CHARS_MIN, len(item.name)) and height >= LINE + PADDING:
        lines.append(item.name if len(item.name) <= room else f"{item.name[: room - 1]}…")
        if height >= 2 * LINE + PADDING and len(item.size_text) <= room:
            lines.append(item.size_text)
    left, top, wide, high = (round(each, 2) for each in (x, y, width, height))
    is_wide = room >= 2 * len(item.name) and height >= 2 * LINE + PADDING
    return Tile(left, top, wide, high, shade(item.share), item.text, lines, is_wide)
