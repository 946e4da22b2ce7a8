"""The service's parts over a store in memory, with branches: tables are played on by name, files are paths alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from metaservice.core.errors import MetaError
from metaservice.core.table.branches import Branch
from metaservice.rpc.convert.wire import kept_reads
from metaservice.service.branch.branch_replay import Merged
from metaservice.service.branch.branches import Branches, BranchRequest
from metaservice.service.branch.merging import MergeRequest, Merging
from metaservice.service.branch.refreshing import Refreshing, RefreshRequest
from metaservice.service.decider.snapshots import TableState
from tests.retention.rig import HOUR_MS, WHO, Rig

DAY_MS = 24 * HOUR_MS


@contextmanager
def refused(*reasons: str) -> Iterator[None]:
    """What may be refused, for one of these reasons."""
    try:
        yield
    except MetaError as refusal:
        if refusal.reason not in reasons:
            raise


class BranchRig(Rig):
    """`on` chooses the table that the other methods play on."""

    def start(self) -> None:
        super().start()
        self.branches = Branches(self.decider, self.transactions, self.clock)
        keep_ms = self.keeping.outcome_keep_ms
        self.merging = Merging(self.decider, self.transactions, self.clock, keep_ms, kept_reads)
        self.refreshing = Refreshing(self.decider, self.transactions, self.clock, keep_ms, kept_reads)

    def tick(self) -> None:
        super().tick()
        if hasattr(self, "branches"):
            self.branches.tick()

    def on(self, name: str) -> BranchRig:
        self.table_id = self.reads_table(name)
        return self

    def reads_table(self, name: str) -> str:
        state = self.decider.state
        found = state.views.find_by_name(name) or self.ask(lambda: self.reads._fork(name))
        assert found is not None, name
        return found.meta.table_id

    @property
    def table(self) -> TableState:
        return self.decider.state.tables[self.table_id]

    def branch(self, name: str, parent: str = "", keep_ms: int = 0, tables: tuple[str, ...] = ()) -> Branch:
        request = BranchRequest(self.uuid(), name, parent, keep_ms, "", WHO, b"branch", tables)
        return self.ask(lambda: self.branches.create(request))

    def merge(self, name: str, *, keep: bool = False, validate_only: bool = False, txn_id: str = "") -> Merged:
        request = MergeRequest(txn_id or self.uuid(), name, WHO, b"merge", keep, validate_only)
        return self.ask(lambda: self.merging.merge(request))

    def refresh(self, name: str, *, validate_only: bool = False, txn_id: str = "") -> Merged:
        request = RefreshRequest(txn_id or self.uuid(), name, WHO, b"refresh", validate_only)
        return self.ask(lambda: self.refreshing.refresh(request))

    def drop(self, name: str) -> bool:
        return self.ask(lambda: self.branches.drop(name, WHO))[0]

    def clone(self, table_id: str, name: str, version: int | None = None) -> str:
        clone_id = self.uuid()
        self.ask(lambda: self.branches.clone(clone_id, table_id, version, name))
        return clone_id

    def kept_files(self) -> set[str]:
        """What any version shows that can be read, of any table."""
        state, found = self.decider.state, set[str]()
        before = self.table_id
        for table_id, table in list(state.tables.items()):
            self.table_id = table_id
            for version in range(table.head + 1):
                with refused("VERSION_RETIRED"):
                    found |= self.list_files(version)
        self.table_id = before
        return found


def purge(rig: BranchRig, root: str) -> set[str]:
    """Deletes what is on the list; what any version shows is not."""
    dead = rig.purgeable(root)
    assert not dead & rig.kept_files()
    rig.ask(lambda: rig.purge.confirm(root, dead))
    return dead
