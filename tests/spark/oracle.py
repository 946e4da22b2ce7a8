"""What a table must hold at every version, as plain dicts, while many write to it at once.

Writers say what their commit of a version does; the service's own stream of versions says in which order, and on top of
what each was made. Compactions do nothing. A version is known once all before it are.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from protos.laketx.v1 import common_pb2, read_pb2

Key = tuple[int, str]  # id, day
State = dict[Key, int | None]  # to the amount
Step = Callable[[State, State], State]  # of what was read, and of what is there now, makes what is there then
Rows = Counter[tuple[int, str, int | None]]

COMPACTIONS: Final = (
    common_pb2.OPERATION_MINOR_COMPACT,
    common_pb2.OPERATION_MAJOR_COMPACT,
    common_pb2.OPERATION_CLUSTER,
)
WAIT_S: Final = 60.0


class ViolationError(AssertionError):
    """Something that must never be."""


class Oracle:
    def __init__(self) -> None:
        self.states: list[State] = [{}]
        self.history: list[str] = ["created"]
        self.compactions = 0
        self._changed = threading.Condition()
        self._seen: dict[int, read_pb2.Version] = {}
        self._steps: dict[int, Step] = {}

    def saw(self, version: read_pb2.Version) -> None:
        """The next version, as the service tells."""
        with self._changed:
            self._seen[version.version] = version
            self._go_on()

    def did(self, version: int, step: Step) -> None:
        """What the commit of that version was to do."""
        with self._changed:
            if version in self._steps or version < len(self.states):
                raise ViolationError(f"version {version} is the answer to two commits")
            self._steps[version] = step
            self._go_on()

    def at(self, version: int) -> State:
        with self._changed:
            if not self._changed.wait_for(lambda: version < len(self.states), WAIT_S):
                raise ViolationError(f"nobody knows of version {len(self.states)}")
            return self.states[version]

    def _go_on(self) -> None:
        while (found := self._seen.get(len(self.states))) is not None:
            if found.operation in COMPACTIONS:
                self.states.append(self.states[-1])
                self.compactions += 1
            elif (step := self._steps.pop(found.version, None)) is not None:
                self.states.append(step(self.states[found.read_version], self.states[-1]))
            else:
                break
            word = common_pb2.Operation.Name(found.operation).removeprefix("OPERATION_")
            self.history.append(f"{found.version} {word} of {found.read_version}: {rows_of(self.states[-1])}")
            del self._seen[found.version]
        self._changed.notify_all()


def rows_of(state: State) -> Rows:
    return Counter((*key, amount) for key, amount in state.items())


def differences(found: Rows, wanted: Rows) -> str:
    return (
        f"too many: {sorted((found - wanted).items(), key=repr)}, missing: {sorted((wanted - found).items(), key=repr)}"
    )


# -- steps: rows hidden and rows added are those of what was read ------------------------------------------------------


def adding(rows: State) -> Step:
    return lambda _read, now: now | rows


def replacing(holds: Callable[[str], bool], rows: State) -> Step:
    """Of the days for which it holds, everything that is there by then."""
    return lambda _read, now: {key: one for key, one in now.items() if not holds(key[1])} | rows


def changing(change: Callable[[Key, int | None], tuple[Key, int | None] | None], new: State | None = None) -> Step:
    """Row by row: what becomes of it, None where it goes; and new rows, where no such key is."""

    def step(read: State, now: State) -> State:
        found = dict(now)
        images: State = {}
        for key, amount in read.items():
            image = change(key, amount)
            if image == (key, amount):
                continue
            if now.get(key, key) != amount:
                raise ViolationError(f"a commit hid another row than it had read: {key} {amount}, now {now.get(key)}")
            del found[key]
            if image is not None:
                images[image[0]] = image[1]
        return found | images | {key: one for key, one in (new or {}).items() if key not in read}

    return step


def add_up(rows: Rows, changes: Iterable[Any]) -> Rows:
    """Rows after the changes. A change takes away what was there, and adds what is new."""
    found = Counter(rows)
    for change in changes:
        row = (change["id"], change["day"], change["amount"])
        found[row] += 1 if change["_change_type"] in ("insert", "update_postimage") else -1
    return Counter({row: count for row, count in found.items() if count})
