"""Names in order, and which of them contain a text: one look through all names as one text, instead of one for each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate


class NameIndex:
    """The names at one moment. It never changes, so threads share it.

    `find` reads the text of all names, of which the name at `i` begins at `starts[i]`:

        names    a.Orders  b.items      text     a.orders⏎b.items⏎      starts    0  9
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)
        lowered = [name.lower() + "\n" for name in self._names]
        self._text = "".join(lowered)
        self._starts = [0, *accumulate(map(len, lowered))]

    def find(self, prefix: str, after: str, part: str) -> Iterator[str]:
        """The names after a name that begin with `prefix` and contain `part`, in any case, in order."""
        names, starts = self._names, self._starts
        at = max(bisect_right(names, after), bisect_left(names, prefix))
        part = part.lower()
        while at < len(names):
            place = self._text.find(part, starts[at])
            if place < 0:
                return
            at = bisect_right(starts, place) - 1
            if not names[at].startswith(prefix):  # names with the prefix stand together
                return
            if place + len(part) < starts[at + 1]:
                yield names[at]
            at += 1
