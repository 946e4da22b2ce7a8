"""Draws docs/pictures/timeline.svg: writers that cross, and the log that comes of it. `--check` compares instead.

The story is data, and tests play it: the picture can't claim what the rules don't do.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from metaservice.core.table.model import Operation
from tools.generated import wants_check, write_or_check
from tools.wire import ROOT

TARGET = "docs/pictures/timeline.svg"
FIRST_VERSION = 4  # the story's first commit
WIDTH, LEFT, UNIT, LANE, TOP = 900, 185, 84, 46, 40
STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #24292f } .who { font-weight: 600 } .small { font-size: 11px }
.good { fill: #2da44e } .quiet { fill: #0969da } .bad { fill: #cf222e } .on { fill: #fff; font-weight: 600 }
.axis { stroke: #8c959f; stroke-width: 1.5 } .drop { stroke: #8c959f; stroke-dasharray: 3 3 }"""


@dataclass(frozen=True)
class Act:
    """A transaction from begin to commit; `version` None is a conflict."""

    who: str
    operation: Operation
    day: int
    begin: float
    end: float
    version: int | None
    rebased_over: int
    says: str


STORY: Sequence[Act] = (
    Act("Ana", Operation.OVERWRITE, 1, 0.3, 6.2, 7, 3, "over 3, and removes Bo's file too"),
    Act("Bo", Operation.INSERT, 1, 0.8, 2.6, 4, 0, "over none"),
    Act("Cy", Operation.UPDATE, 2, 1.5, 3.6, 5, 1, "over 1"),
    Act("a compaction", Operation.MINOR_COMPACT, 2, 1.9, 4.9, 6, 2, "over 2"),
    Act("Di", Operation.INSERT, 1, 2.9, 7.3, None, 0, "conflict with 7; the files can be resubmitted"),
)


def draw() -> str:
    log_y = TOP + LANE * len(STORY) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {log_y + 62}" width="{WIDTH}" role="img">',
        "<title>Five transactions from begin to commit, and the versions that they get</title>",
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{log_y + 62}" fill="#fff"/>',
        _text(LEFT, 22, "each bar: begin to commit; “over n”: put on top of n commits since its begin", "small"),
    ]
    parts += [_drop(act, TOP + LANE * lane, log_y) for lane, act in enumerate(STORY) if act.version is not None]
    for lane, act in enumerate(STORY):
        parts += _lane(act, TOP + LANE * lane)
    parts += [
        _text(12, log_y + 5, "the log", "who"),
        f'<line class="axis" x1="{LEFT}" y1="{log_y}" x2="{WIDTH - 20}" y2="{log_y}"/>',
        *_version(LEFT, log_y, str(FIRST_VERSION - 1), "good"),
        _text(12, log_y + 28, "ID version in the dot", "small"),
        _text(12, log_y + 46, "time version below it", "small"),
    ]
    for act in STORY:
        if act.version is not None:
            parts += _version(_x(act.end), log_y, str(act.version), _colour(act))
            label = "none" if _quiet(act) else f"t{act.version}"
            parts.append(_text(_x(act.end), log_y + 40, label, "small", middle=True))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _drop(act: Act, y: int, log_y: int) -> str:
    end = _x(act.end)
    return f'<line class="drop" x1="{end}" y1="{y + 12}" x2="{end}" y2="{log_y}"/>'


def _lane(act: Act, y: int) -> Iterator[str]:
    begin, end = _x(act.begin), _x(act.end)
    yield _text(12, y + 13, act.who, "who")
    yield _text(12, y + 28, f"{act.operation.name.replace('_', ' ')}, day {act.day}", "small")
    yield f'<rect class="{_colour(act)}" x="{begin}" y="{y + 4}" width="{end - begin}" height="18" rx="4"/>'
    yield _text(begin + 8, y + 17, act.says, "on small")


def _version(x: int, y: int, label: str, colour: str) -> list[str]:
    return [f'<circle class="{colour}" cx="{x}" cy="{y}" r="11"/>', _text(x, y + 4, label, "on small", middle=True)]


def _quiet(act: Act) -> bool:
    return act.operation is Operation.MINOR_COMPACT


def _colour(act: Act) -> str:
    if act.version is None:
        return "bad"
    return "quiet" if _quiet(act) else "good"


def _x(time: float) -> int:
    return LEFT + round(time * UNIT)


def _text(x: int, y: int, text: str, kind: str, *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text class="{kind}" x="{x}" y="{y}"{anchor}>{escape(text)}</text>'


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    return write_or_check({TARGET: draw()}, root, check=wants_check(arguments, __doc__))


if __name__ == "__main__":
    sys.exit(main())
