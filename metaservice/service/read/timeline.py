"""The log for readers: history backwards, with filters; commits after a version, forwards; transactions.

A page examines a bounded part of the log. If that ends before the page is full, the page says where to continue: a
filter that matches nothing costs many short pages, never one endless page, and never ends silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from metaservice.core import limits
from metaservice.core.commit.transaction import Txn
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.model import CommitSummary, Operation
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.views import TableView
from metaservice.store import keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tables import decode_summary
from metaservice.store.records.transactions import decode_txn

Item = TypeVar("Item")
Token = TypeVar("Token")


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """Selects the commits that match every field that is set."""

    principal: str = ""
    client: str = ""
    operations: frozenset[Operation] = frozenset()
    logical_only: bool = False
    message_contains: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    from_version: int = 0
    to_version: int | None = None
    from_time_us: int | None = None
    to_time_us: int | None = None

    def fits(self, commit: CommitSummary) -> bool:
        """Returns whether all fields match, except the ranges, which limit the part of the log that is examined."""
        footprint = commit.footprint
        who = footprint.principal
        return (
            (not self.principal or who.name == self.principal)
            and (not self.client or who.client == self.client)
            and (not self.operations or footprint.operation in self.operations)
            and (not self.logical_only or commit.has_time_version)
            and (not self.message_contains or self.message_contains.casefold() in commit.message.casefold())
            and all(_has(commit.properties, name, value) for name, value in self.properties.items())
        )


@dataclass(frozen=True, slots=True)
class HistoryPage(Generic[Item, Token]):
    """The results, and where the next page begins; None: there is none."""

    items: list[Item]
    below: Token | None


class Timeline:
    """Reads logs, on any thread."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def list_versions(
        self, table: TableView, matching: VersionFilter, below: int | None, count: int
    ) -> HistoryPage[CommitSummary, int]:
        """Commits, newest first, from below a version down to the oldest that is kept. An older one that something
        holds is answered when it alone is asked for.
        """
        state = self._decider.state
        cursor = state.records.cursor()
        oldest = state.views.oldest(table)
        if below is not None and below < oldest:
            raise _retired(below, oldest)
        lowest, highest = _range(cursor, table.raw_id, matching)
        if not (lowest == highest and state.is_held(table.meta.table_id, lowest)):
            lowest = max(lowest, oldest)
        highest = min(highest, table.head, table.head if below is None else below - 1)
        if highest < lowest:
            return HistoryPage([], None)
        start, end = keys.commit_key(table.raw_id, lowest), keys.commit_key(table.raw_id, highest + 1)
        page = _page(cursor.scan_back(start, end), decode_summary, matching.fits, count)
        last = lowest if page.below is None else page.below.footprint.version
        return HistoryPage(page.items, last if last > lowest else None)

    def list_transactions(self, fits: Callable[[Txn], bool], below: str, count: int) -> HistoryPage[Txn, str]:
        """Lists transactions, newest id first, from below an id."""
        end = keys.txn_key(keys.uuid_bytes(below)) if below else prefix_end(keys.TRANSACTIONS)
        cursor = self._decider.call(self._cursor)
        page = _page(cursor.scan_back(keys.TRANSACTIONS, end), decode_txn, fits, count)
        return HistoryPage(page.items, page.below.txn_id if page.below is not None else None)

    def follow(self, table: TableView, after: int, to: int) -> Iterator[CommitSummary]:
        """The commits in (after, to], in order, without gaps; `to` is durable."""
        cursor = self._decider.state.records.cursor()
        start, end = keys.commit_key(table.raw_id, after + 1), keys.commit_key(table.raw_id, to + 1)
        for _, raw in cursor.scan(start, end):
            summary = decode_summary(raw)
            after += 1
            if summary.footprint.version != after:
                raise _retired(after, summary.footprint.version)
            yield summary
        if after < to:
            raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", version=after + 1)

    def check_kept(self, table: TableView, version: int) -> None:
        """Raises GONE if the commit is no longer kept."""
        store = self._decider.state.records
        if version > table.head or store.get(keys.commit_key(table.raw_id, version)) is not None:
            return
        start = keys.commit_key(table.raw_id, version)
        following = next(iter(store.cursor().scan(start, prefix_end(keys.commits_prefix(table.raw_id)))), None)
        oldest = keys.decode_version(following[0][-8:]) if following is not None else table.head + 1
        raise _retired(version, oldest)

    def _cursor(self) -> StoreCursor:
        """On the decider's thread: when it is answered, everything that the cursor sees is durable."""
        state = self._decider.state
        state.flush()
        return state.records.cursor()


def _has(properties: Mapping[str, str], name: str, value: str) -> bool:
    return name in properties and value in ("", properties[name])


def _retired(version: int, oldest: int) -> MetaError:
    return MetaError(
        ErrorKind.GONE,
        "VERSION_RETIRED",
        "the log begins at a later version: ask for a newer one",
        version=version,
        oldest=oldest,
    )


def _range(cursor: StoreCursor, raw_id: bytes, matching: VersionFilter) -> tuple[int, int]:
    """Return the lowest and highest version that the filter allows; times order commits as versions do."""
    lowest, highest = matching.from_version, limits.INTEGER_MAX - 1
    if matching.to_version is not None:
        highest = min(highest, matching.to_version)
    times = keys.times_prefix(raw_id)
    if matching.from_time_us is not None:
        start = keys.time_key(raw_id, max(matching.from_time_us, 0))
        first = next(iter(cursor.scan(start, prefix_end(times))), None)
        lowest = max(lowest, keys.decode_version(first[1])) if first is not None else limits.INTEGER_MAX
    if matching.to_time_us is not None:
        end = keys.time_key(raw_id, max(matching.to_time_us + 1, 0))
        last = next(iter(cursor.scan_back(times, end)), None)
        highest = min(highest, keys.decode_version(last[1])) if last is not None else -1
    return lowest, highest


def _page(
    entries: Iterator[tuple[bytes, bytes]],
    decode: Callable[[bytes], Item],
    fits: Callable[[Item], bool],
    count: int,
) -> HistoryPage[Item, Item]:
    """Return matches, until the page is full or enough was examined; `below` is the last one examined."""
    matches: list[Item] = []
    looked, looked_bytes = 0, 0
    for _, raw in entries:
        decoded = decode(raw)
        looked, looked_bytes = looked + 1, looked_bytes + len(raw)
        if fits(decoded):
            matches.append(decoded)
        if len(matches) == count or looked == limits.PAGE_SCAN_MAX or looked_bytes >= limits.PAGE_SCAN_BYTES_MAX:
            return HistoryPage(matches, decoded)
    return HistoryPage(matches, None)
