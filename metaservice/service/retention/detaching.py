"""When a clone lets go of the table that it was made of, its base.

That is when nothing that the clone keeps is the base's any more: no file that it shows, none of an older version that
is kept or held, and no version from before it began. Then the base gives up versions without regard to the clone, and
one that was dropped is purged. The clone answers what it did before: what it reads in its base's records, it gets.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from metaservice.core.errors import MetaError
from metaservice.service.decider.snapshots import TableState
from metaservice.service.decider.state import State
from metaservice.store import entry_keys, keys
from metaservice.store.forks import is_of_base
from metaservice.store.port import prefix_end
from metaservice.store.records.branches import Fork, moved_app
from metaservice.store.records.tables import decode_live

PAGE: Final = 500
Looked = tuple[int, int, tuple[int, ...]]  # a clone's newest version, its horizon, and what is held


class Detaching:
    """Looks at clones, in steps that answer how many records they read. Other jobs run between two steps."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Looked] = {}  # clones that had files of their bases when they were so

    def steps(self, state: State, table: TableState, held: Sequence[int]) -> Iterator[int]:
        """Detaches a clone if it can be. `held`: all that is held of it."""
        fork, looked = table.fork, (table.head, table.oldest, tuple(held))
        if fork is None or fork.branch or fork.is_detached or self._kept.get(table.raw_id) == looked:
            return
        if any(version <= fork.version for version in held) or not _is_apart(state, table, fork):
            return
        if (yield from _has_of_base(state, fork)):
            self._kept[table.raw_id] = looked
            return
        yield from _take_app_versions(state, fork)
        _take_schemas(state, fork)
        if state.forks.get(fork.raw_id) == fork:
            state.put_fork(replace(fork, is_detached=True, holds=()))


def _is_apart(state: State, table: TableState, fork: Fork) -> bool:
    """Whether the clone has given up all versions from before it began, and no commit is judged against them."""
    return table.oldest > fork.version and state.trimmed(table) > fork.version


def _has_of_base(state: State, fork: Fork) -> Generator[int, None, bool]:
    """Whether an entry of the base is live in the clone, or in a version that is not retired.

    What is taken out meanwhile goes from the live entries to the past ones, so those are looked at last.
    """
    state.flush()  # what this round swept is gone
    own_past, past = entry_keys.past_prefix(fork.raw_id), entry_keys.past_prefix(fork.base)
    for start, end, is_own in (
        (entry_keys.live_prefix(fork.raw_id), prefix_end(entry_keys.live_prefix(fork.raw_id)), True),
        (entry_keys.live_prefix(fork.base), prefix_end(entry_keys.live_prefix(fork.base)), False),
        (entry_keys.past_from(fork.base, fork.version + 1), prefix_end(past), False),
        (own_past, prefix_end(own_past), True),
    ):
        after, records = start, state.store if is_own else state.records
        while page := list(islice(records.cursor().scan(after, end), PAGE)):
            cursor = state.store.cursor()
            for _, raw in page:
                live = decode_live(raw)[0]
                is_shared, entry = is_own or live.added <= fork.version, live.entry
                if is_shared and is_of_base(cursor, fork.raw_id, (entry.partition, entry.bucket), entry.path) == is_own:
                    return True
            after = page[-1][0] + b"\x00"
            yield len(page)
    return False


def _take_app_versions(state: State, fork: Fork) -> Iterator[int]:
    """What the clone answers of applications, as its own. It does not know what the base got after the clone began."""
    base, moved = state.tables.get(keys.uuid_text(fork.base)), dict[str, int]()
    version = fork.version
    while base is not None and version < base.head:
        version += 1
        moved.update(dict.fromkeys(state.winner(base, version).app_ids, version))
        yield 1
    above: Fork | None = fork
    while above is not None:
        prefix = keys.app_key(above.base, "")
        for key, _ in list(state.store.cursor().scan(prefix, prefix_end(prefix))):
            _take_app_version(state, fork, key[len(prefix) :].decode(), moved)
        above = state.forks.get(above.base)


def _take_app_version(state: State, fork: Fork, app_id: str, moved: dict[str, int]) -> None:
    own = keys.app_key(fork.raw_id, app_id)
    if state.store.get(own) is not None:
        return
    try:
        record = None if app_id in moved else state.app_version(keys.uuid_text(fork.base), app_id)
    except MetaError:  # it moved further up
        record = None
    state.batch.put(own, record or moved_app(moved.get(app_id, fork.version)))


def _take_schemas(state: State, fork: Fork) -> None:
    prefix = keys.schemas_prefix(fork.raw_id)
    for key, raw in list(state.records.cursor().scan(prefix, prefix_end(prefix))):
        state.batch.put(key, raw)
