"""Branches over time: a lane for each, from the moment it left the lane of its parent until now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from protos.laketx.v1 import catalog_pb2
from worker.console.charts import WIDTH, Tick, scaled
from worker.console.history_strip import tick_text

LANE: Final = 30
LABEL_WIDTH: Final = 190
LEAD: Final = 36  # of the lake's own lane, before the first branch leaves it
NAME_CHARS_MAX: Final = 22
DRAWN_MAX: Final = 40
TICKS: Final = 4
MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class Lane:
    """A branch from `x` on, and the lane `parent_y` that it leaves; the lake's own leaves none."""

    name: str
    label: str
    x: float
    y: int
    parent_y: int


@dataclass(frozen=True, slots=True)
class BranchGraph:
    """The lanes, the lake's own first, and the axis of time."""

    lanes: Sequence[Lane]
    ticks: Sequence[Tick]
    height: int


def draw_branches(branches: Sequence[catalog_pb2.Branch], now_us: int) -> BranchGraph:
    """Each below its parent, the oldest first. One whose parent the caller may not see leaves the lake's own lane."""
    names = {branch.name for branch in branches}
    children: dict[str, list[catalog_pb2.Branch]] = {}
    for branch in sorted(branches, key=lambda each: (each.time_us, each.name)):
        children.setdefault(branch.parent if branch.parent in names else "", []).append(branch)
    first_us = min((branch.time_us for branch in branches), default=now_us)
    begin = LABEL_WIDTH + LEAD
    wide = WIDTH - begin
    lanes = [Lane(MAIN, MAIN, LABEL_WIDTH, LANE // 2, -1)]
    places = {"": LANE // 2}
    for branch in walk(children, ""):
        x, y = begin + scaled(branch.time_us, first_us, now_us, wide), len(lanes) * LANE + LANE // 2
        is_long = len(branch.name) > NAME_CHARS_MAX
        label = f"{branch.name[: NAME_CHARS_MAX - 1]}…" if is_long else branch.name
        lanes.append(Lane(branch.name, label, round(x, 2), y, places[branch.parent if branch.parent in names else ""]))
        places[branch.name] = y
        if len(lanes) > DRAWN_MAX:
            break
    span = now_us - first_us
    ticks = [
        Tick(
            round(begin + wide * at / (TICKS - 1), 2),
            tick_text(first_us + span * at // (TICKS - 1), span),
        )
        for at in range(TICKS if span > 0 else 1)
    ]
    return BranchGraph(lanes, ticks, len(lanes) * LANE + LANE)


def walk(children: dict[str, list[catalog_pb2.Branch]], parent: str) -> Iterator[catalog_pb2.Branch]:
    for branch in children.pop(parent, ()):
        yield branch
        yield from walk(children, branch.name)
