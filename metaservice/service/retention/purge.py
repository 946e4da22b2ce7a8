"""The purge list: paths that no kept snapshot holds.

It runs on the decider's thread, because workers delete by it: what it returns must be durable before it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import Entry
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.store import entry_keys, keys
from metaservice.store.external_files import find_named
from metaservice.store.forks import is_of_base
from metaservice.store.history import read_purge_hold
from metaservice.store.port import prefix_end


class PurgeList:
    """Lists paths that can be deleted, and removes confirmed ones.

    A path that any table's external entry names is not listed.
    """

    def __init__(self, decider: Decider, halted: Callable[[], bool] = lambda: False) -> None:
        """`halted` says that the clock is not trusted."""
        self._decider = decider
        self._halted = halted

    def list_paths(self, table_id: str, after: str, count: int) -> list[str]:
        """Lists paths of a table, live or dropped, in order."""
        state, table = self._decider.state, keys.uuid_bytes(table_id)
        state.flush()
        check_purge(state, halted=self._halted())
        prefix, cursor = keys.purgeable_prefix(table), state.store.cursor()
        start = keys.purgeable_key(table, after) + b"\x00" if after else prefix
        paths: list[str] = []
        scanned = (keys.path_of_purgeable(key) for key, _ in cursor.scan(start, prefix_end(prefix)))
        while len(paths) < count and (page := list(islice(scanned, count))):
            named = find_named(cursor, table, page)
            paths += [path for path in page if path not in named]
        return paths[:count]

    def list_tables(self, after: str, count: int) -> list[str]:
        """Lists tables with paths to purge."""
        state = self._decider.state
        state.flush()
        cursor, end = state.store.cursor(), prefix_end(keys.PURGEABLE)
        start = prefix_end(keys.purgeable_prefix(keys.uuid_bytes(after))) if after else keys.PURGEABLE
        tables: list[str] = []
        while len(tables) < count:
            first = next(iter(cursor.scan(start, end)), None)
            if first is None:
                break
            raw = first[0][1:17]
            tables.append(keys.uuid_text(raw))
            start = prefix_end(keys.purgeable_prefix(raw))
        return tables

    def confirm(self, table_id: str, paths: Iterable[str]) -> None:
        """Removes deleted paths from the list; paths that are not on it change nothing."""
        table = keys.uuid_bytes(table_id)
        for path in paths:
            self._decider.state.batch.delete(keys.purgeable_key(table, path))


def check_purge(state: State, *, halted: bool) -> None:
    """Refuses calls that lead to deletions while nothing may be deleted."""
    if halted:
        raise MetaError(ErrorKind.BLOCKED, "CLOCKS_DISAGREE")
    why = read_purge_hold(state.store)
    if why:
        raise MetaError(ErrorKind.BLOCKED, "PURGE_HELD", why=why)


def list_unless_live(state: State, raw: bytes, entry: Entry, now_us: int) -> None:
    """The last check before a file can be deleted: whatever its past records say, it must not be live."""
    if state.store.get(entry_keys.live_key(raw, entry.partition, entry.bucket, entry.path)) is None:
        list_purgeable(state, raw, entry, now_us)


def list_purgeable(state: State, raw: bytes, entry: Entry, now_us: int) -> None:
    """Deletes inlined rows; the path of a file that is ours goes to the purge list."""
    if entry.inlined:
        state.batch.delete(keys.inlined_key(raw, entry.path))
    elif not entry.external:
        home = state.home_of(raw)
        state.batch.put(keys.purgeable_key(home, entry.path), keys.encode_version(max(now_us, 0)))


def is_file_of_base(state: State, raw: bytes, entry: Entry) -> bool:
    """Whether the file of a fork's entry is one that its base had."""
    if raw not in state.forks:
        return False
    cursor = state.store.cursor()
    return is_of_base(cursor, raw, (entry.partition, entry.bucket), entry.path)
