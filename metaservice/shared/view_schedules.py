"""When a materialized view is refreshed: the property `view.schedule` as text.

on commit             soon after a source has a new version
every 5 minutes       this long after the last refresh, if a source has a new version
target lag 1 minute   early enough that the view is at most this far behind
downstream            before a refresh of a view that reads it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MANUAL, ON_COMMIT, EVERY, TARGET_LAG, DOWNSTREAM = "manual", "on commit", "every", "target lag", "downstream"
UNIT_SECONDS: Final = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_INTERVAL: Final = re.compile(r"(?:([1-9][0-9]{0,4}) )?(second|minute|hour|day)s?\Z")


@dataclass(frozen=True, slots=True)
class ViewSchedule:
    """A schedule; `seconds` are those of `every` and `target lag`."""

    kind: str
    seconds: int = 0

    @property
    def text(self) -> str:
        """The schedule as the property has it; empty: manual."""
        if self.kind == MANUAL:
            return ""
        return f"{self.kind} {_interval(self.seconds)}" if self.seconds else self.kind


def parse_view_schedule(text: str) -> ViewSchedule:
    """Return the schedule of a text in any case of letters. Raises ValueError."""
    words = " ".join(text.lower().replace("'", " ").split())
    if words in ("", MANUAL):
        return ViewSchedule(MANUAL)
    if words in (ON_COMMIT, DOWNSTREAM):
        return ViewSchedule(words)
    for kind in (EVERY, TARGET_LAG):
        interval = _INTERVAL.match(words.removeprefix(f"{kind} ")) if words.startswith(f"{kind} ") else None
        if interval is not None:
            return ViewSchedule(kind, int(interval[1] or 1) * UNIT_SECONDS[interval[2]])
    if words.startswith(f"{TARGET_LAG} ") and words.endswith(DOWNSTREAM) and len(words.split()) == 3:
        return ViewSchedule(DOWNSTREAM)
    raise ValueError(text)


def is_view_schedule(text: str) -> bool:
    """Whether a text is a schedule."""
    try:
        parse_view_schedule(text)
    except ValueError:
        return False
    return True


def _interval(seconds: int) -> str:
    unit, length = next((unit, length) for unit, length in reversed(UNIT_SECONDS.items()) if seconds % length == 0)
    count = seconds // length
    return f"{count} {unit}{'' if count == 1 else 's'}"
