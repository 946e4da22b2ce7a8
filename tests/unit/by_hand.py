"""A table driven by hand: files and changes in a line each."""

from collections.abc import Sequence

from metaservice.core.table.meta import Alteration, Profile
from metaservice.core.table.model import (
    Change,
    Conflict,
    Entry,
    FileKind,
    Group,
    Operation,
    Read,
    Rule,
    Scope,
    TableCommit,
)
from metaservice.core.table.predicates import TRUE
from tests.model.world import Content, Job, World

ONE, TWO = "p=1", "p=2"
Rows = dict[int, int | None]


class Table(World):
    """A world driven by hand; bucket 0 unless told."""

    def __init__(self, profile: Profile = Profile.MAXCOMPUTE, *, keyed: bool = True) -> None:
        super().__init__(profile, keyed=keyed, seed=0)

    def expected(self, job: Job) -> dict[tuple[str, int], int]:
        return {}  # by hand: there is no oracle

    def file(self, path: str, rows: Rows, kind: FileKind = FileKind.DELTA, partition: str = ONE) -> Entry:
        self.contents[path] = Content(rows)
        return Entry(path, partition, 0, kind if self.keyed else FileKind.APPEND, len(rows), 100, path.encode())

    def delete_set(self, path: str, ids: Sequence[int], touches: Sequence[str], partition: str = ONE) -> Entry:
        entry = self.file(path, dict.fromkeys(ids), partition=partition)
        entry.is_delete_set = True
        entry.row_id_min, entry.row_id_max = min(ids), max(ids)
        entry.touches = tuple(touches)
        return entry

    def decide(self, change: Change) -> TableCommit | Conflict:
        return self.commit(Job(change))

    def expect_win(self, change: Change) -> TableCommit:
        answer = self.decide(change)
        assert isinstance(answer, TableCommit), answer
        return answer

    def insert(self, path: str, rows: Rows, partition: str = ONE) -> None:
        self.expect_win(self.change(Operation.INSERT, adds=[self.file(path, rows, partition=partition)]))

    def change(
        self,
        operation: Operation,
        at: int | None = None,
        *,
        adds: Sequence[Entry] = (),
        reads: Sequence[Read] = (),
        scope: Scope | None = None,
        alteration: Alteration | None = None,
    ) -> Change:
        read_version = self.head if at is None else at
        return Change("t", operation, read_version, tuple(reads), adds=list(adds), scope=scope, alteration=alteration)

    def compact(
        self,
        operation: Operation,
        inputs: Sequence[str],
        out: str,
        rows: Rows,
        at: int | None = None,
        partition: str = ONE,
    ) -> Change:
        kind = FileKind.BASE if operation is Operation.MAJOR_COMPACT else FileKind.DELTA
        change = self.change(operation, at, adds=[self.file(out, rows, kind, partition)])
        change.groups = (Group(partition, 0, tuple(inputs), (out,)),)
        return change

    def live(self, partition: str = ONE) -> dict[str, int]:
        return {one.entry.path: one.data_version for one in self.snapshots.live(self.head, partition)}


def reading(*partitions: str) -> list[Read]:
    return [Read(TRUE, frozenset(partitions))]


def lost(answer: TableCommit | Conflict) -> Rule:
    assert isinstance(answer, Conflict), "it committed"
    return answer.rule
