"""Plans of scans and increments: the stored bytes that a reader of a version needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.predicates import Predicate
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.views import TableView
from metaservice.service.read.increments import Increment, difference, log, logical_before
from metaservice.service.read.key_files import AddedMemory
from metaservice.service.read.plan_caches import AnswerMemory, StatsMemory
from metaservice.service.read.reads import Reads, Resolved
from metaservice.service.read.scan import Scan
from metaservice.service.read.scan_counts import ScanCounts
from metaservice.service.read.scan_request import ScanRequest
from metaservice.store.port import StoreCursor


class Planning:
    """The use cases of plans."""

    def __init__(self, decider: Decider, reads: Reads, scan_counts: ScanCounts) -> None:
        self._decider = decider
        self._reads = reads
        self.scan_counts = scan_counts
        self._memory = StatsMemory()
        self._answers = AnswerMemory()
        self._added = AddedMemory()

    def scan(self, table: TableView, request: ScanRequest) -> Scan:
        cursor = self._decider.state.records.cursor()
        self._decider.state.check_readable(table, request.version)
        if request.key_files is not None and request.key_files.history != self._decider.state.history.epoch:
            request = replace(request, key_files=None)
        if not request.explain:
            self.scan_counts.add(table.raw_id, request.version, whole=request.is_whole)
        return Scan(table, cursor, request, self._memory, self._answers, self._added)

    def _since(self, table: TableView, version: int) -> StoreCursor:
        """An increment needs every commit after its begin: a version that only a pin holds is not enough."""
        cursor = self._decider.state.records.cursor()
        oldest = self._decider.state.views.oldest(table)
        if version < oldest:
            raise MetaError(
                ErrorKind.GONE,
                "VERSION_RETIRED",
                "the commits after that version are no longer kept: start at a newer version",
                version=version,
                oldest=oldest,
            )
        return cursor

    def resolve_commits_ago(self, table: TableView, count: int) -> Resolved:
        """The logical commit that many before the newest one."""
        if not 0 <= count <= limits.COMMITS_AGO_MAX:
            raise invalid("COMMITS_AGO_INVALID", asked=count, most=limits.COMMITS_AGO_MAX)
        head = table.head
        cursor = self._decider.state.records.cursor()
        version = logical_before(cursor, table.raw_id, head, count)
        self._decider.state.check_readable(table, version)
        return Resolved(version, self._reads.commit(table, version).footprint.time_us)

    def log(self, table: TableView, after: int, to: int, on_partitions: Predicate) -> Iterator[Increment]:
        """The logical commits in (after, to], in order."""
        return log(self._since(table, after), table, after, to, on_partitions)

    def difference(self, table: TableView, after: int, to: int, on_partitions: Predicate) -> Increment:
        """The entries that only the snapshot at `to` has, and those that only the snapshot at `after` has."""
        return difference(self._since(table, after), table, after, to, on_partitions)
