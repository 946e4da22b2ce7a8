"""Views and namespaces by name: the lake's, those of branches, and what names stood for as long as a branch shows it.

A branch has records for what was changed on it alone. Any other name stands for what it stood for in the parent at the
branch's instant: what the parent changes later is kept while a branch began before. Things are kept by their names
without a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic

from metaservice.core.table.branches import Branch
from metaservice.core.table.meta import Namespace, View
from metaservice.core.table.name_history import NOW, Meaning, Thing, is_needed, meaning_at
from metaservice.service.decider.names import AnyCase
from metaservice.store import keys
from metaservice.store.port import Batch, StoreCursor, prefix_end
from metaservice.store.records.branches import decode_meaning, encode_meaning
from metaservice.store.records.tables import decode_namespace, decode_view, encode_namespace, encode_view

LAKE: Final = bytes(16)  # in place of a branch's id


@dataclass(frozen=True, slots=True)
class Kind(Generic[Thing]):
    """How a kind of things is stored."""

    letter: bytes
    key: Callable[[str], bytes]  # of one in the lake
    encode: Callable[[Thing], bytes]
    decode: Callable[[bytes], Thing]


VIEWS: Final[Kind[View]] = Kind(keys.VIEWS, keys.view_key, encode_view, decode_view)
NAMESPACES: Final[Kind[Namespace]] = Kind(keys.NAMESPACES, keys.namespace_key, encode_namespace, decode_namespace)


class NameBook(Generic[Thing]):
    """The things of one kind. `lake` has those of the lake."""

    def __init__(self, kind: Kind[Thing], lake: AnyCase[Thing], branches: AnyCase[Branch]) -> None:
        self._kind: Kind[Thing] = kind
        self._branches = branches
        self.lake: AnyCase[Thing] = lake
        self._lines: dict[bytes, dict[str, list[Meaning[Thing]]]] = {}  # by branch, and by name in small letters
        self.newest_us = 0  # no branch may leave before it
        self._is_stale = True  # a branch may have ended that showed something

    def load(self, cursor: StoreCursor) -> None:
        prefix = keys.meanings_prefix(self._kind.letter)
        for key, raw in cursor.scan(prefix, prefix_end(prefix)):  # of a name the oldest first
            line, name, until_us = keys.decode_meaning_key(key)
            since_us, record = decode_meaning(raw)
            thing = self._kind.decode(record) if record else None
            self._lines.setdefault(line, {}).setdefault(name, []).append(Meaning(thing, since_us, until_us))
            self._note(since_us if until_us == NOW else until_us)
        for thing in self.lake.values():
            self._note(thing.since_us)

    def __len__(self) -> int:
        """Those of the lake, and the changes on branches."""
        return len(self.lake) + sum(len(line) for branch, line in self._lines.items() if branch != LAKE)

    def find(self, name: str, branch: Branch | None) -> Thing | None:
        """What the name stands for on the branch, or in the lake."""
        return self.find_at(name, branch, NOW - 1)

    def find_at(self, name: str, branch: Branch | None, time_us: int) -> Thing | None:
        """The same at an instant: an earlier one only if a branch has left then."""
        meanings = self._lines.get(_line(branch), {}).get(name.lower(), ())
        if branch is None:
            thing = self.lake.find(name)
            if thing is not None and thing.since_us <= time_us:
                return thing
        meant = meaning_at(meanings, time_us)
        if meant is not None:
            return meant.thing
        is_shown = branch is not None and self._has(branch, name)
        return self.find_at(name, self._parent(branch), branch.time_us) if branch is not None and is_shown else None

    def list_all(self, branch: Branch | None) -> Mapping[str, Thing]:
        """All things by name."""
        return {thing.name: thing for thing in self._shown(branch, NOW - 1).values()}

    def _shown(self, branch: Branch | None, time_us: int) -> dict[str, Thing]:
        if branch is None:
            shown = {name: thing for name, thing in self.lake.items() if thing.since_us <= time_us}
        else:
            above = self._shown(self._parent(branch), branch.time_us)
            shown = {name: thing for name, thing in above.items() if self._has(branch, name)}
        for name, meanings in self._lines.get(_line(branch), {}).items():
            meant = meaning_at(meanings, time_us)
            if meant is not None and (branch is not None or meant.thing is not None):
                shown = {known_as: thing for known_as, thing in shown.items() if known_as.lower() != name}
                if meant.thing is not None:
                    shown[meant.thing.name] = meant.thing
        return shown

    def own(self, branch: Branch) -> Mapping[str, Thing | None]:
        """What was changed on a branch, by name."""
        line = self._lines.get(_line(branch), {})
        newest = {name: meanings[-1] for name, meanings in list(line.items())}
        return {name: meaning.thing for name, meaning in newest.items() if meaning.until_us == NOW}

    # -- changes

    def put(self, batch: Batch, branch: Branch | None, thing: Thing) -> None:
        """From `thing.since_us` on its name stands for it."""
        self._end(batch, branch, thing.name, thing.since_us)
        if branch is not None:
            self._begin(batch, branch, thing.name, Meaning(thing, thing.since_us))
            return
        written = self.lake.as_written(thing.name)
        if written is not None and written != thing.name:
            batch.delete(self._kind.key(written))
            del self.lake[written]
        batch.put(self._kind.key(thing.name), self._kind.encode(thing))
        self.lake[thing.name] = thing
        self._note(thing.since_us)

    def drop(self, batch: Batch, branch: Branch | None, name: str, time_us: int) -> None:
        """From then on the name stands for nothing."""
        self._end(batch, branch, name, time_us)
        if branch is not None:
            self._begin(batch, branch, name, Meaning(None, time_us))
            return
        batch.delete(self._kind.key(name))
        del self.lake[name]

    def forget(self, batch: Batch, branch: Branch, names: Iterable[str] | None = None) -> None:
        """Takes back what was changed on a branch that no other one has left; all of it, or some names."""
        self._is_stale = True
        line = self._lines.get(_line(branch), {})
        for name in list(line if names is None else names):
            for meaning in line.pop(name, ()):
                batch.delete(self._key(branch, name, meaning.until_us))
        if not line:
            self._lines.pop(_line(branch), None)

    def prune(self, batch: Batch) -> None:
        """Forgets what no branch shows any more."""
        if not self._is_stale:
            return
        self._is_stale = False
        if not self._lines:
            return
        instants: dict[bytes, list[int]] = {}
        for child in self._branches.values():
            instants.setdefault(_line(self._parent(child)), []).append(child.time_us)
        for left_us in instants.values():
            left_us.sort()
        for line, names in list(self._lines.items()):
            for name, meanings in list(names.items()):
                kept = [
                    meaning
                    for meaning in meanings
                    if meaning.until_us == NOW or is_needed(meaning, instants.get(line, ()))
                ]
                for gone in meanings:
                    if gone not in kept:
                        batch.delete(keys.meaning_key(self._kind.letter, line, name, gone.until_us))
                names[name] = kept
                if not kept:
                    del names[name]
            if not names:
                del self._lines[line]

    def _end(self, batch: Batch, branch: Branch | None, name: str, time_us: int) -> None:
        """What the name stood for is kept if a branch shows it."""
        self._note(time_us)
        meanings = self._lines.get(_line(branch), {}).get(name.lower(), [])
        before: Meaning[Thing] | None = None
        if branch is None:
            thing = self.lake.find(name)
            before = None if thing is None else Meaning(thing, thing.since_us)
        elif meanings and meanings[-1].until_us == NOW:
            before = meanings.pop()
            batch.delete(self._key(branch, name, NOW))
        if before is None or not self._is_shown_since(branch, before.since_us):
            return
        self._begin(batch, branch, name, Meaning(before.thing, before.since_us, time_us))

    def _begin(self, batch: Batch, branch: Branch | None, name: str, meaning: Meaning[Thing]) -> None:
        self._lines.setdefault(_line(branch), {}).setdefault(name.lower(), []).append(meaning)
        record = b"" if meaning.thing is None else self._kind.encode(meaning.thing)
        batch.put(self._key(branch, name, meaning.until_us), encode_meaning(meaning.since_us, record))

    def _is_shown_since(self, branch: Branch | None, since_us: int) -> bool:
        parent = "" if branch is None else branch.name
        return any(child.parent == parent and child.time_us >= since_us for child in list(self._branches.values()))

    def _has(self, branch: Branch, name: str) -> bool:
        """Whether a branch that is limited to some tables shows a view; it shows all namespaces."""
        return self._kind.letter == keys.NAMESPACES or branch.has(name)

    def _parent(self, branch: Branch) -> Branch | None:
        return self._branches[branch.parent] if branch.parent else None

    def _key(self, branch: Branch | None, name: str, until_us: int) -> bytes:
        return keys.meaning_key(self._kind.letter, _line(branch), name.lower(), until_us)

    def _note(self, time_us: int) -> None:
        self.newest_us = max(self.newest_us, time_us)


def _line(branch: Branch | None) -> bytes:
    return LAKE if branch is None else keys.uuid_bytes(branch.branch_id)
