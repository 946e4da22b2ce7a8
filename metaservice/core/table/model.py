"""The nouns: entries, changes, footprints, conflicts, commits.

A table is a log of commits. Worked example, a primary-key table with one bucket:

    version 1  insert   + d1            d1 has data version 1
    version 2  insert   + d2            d2 hides older images of its keys in d1
    version 3  minor    d1 d2 -> m3     m3 gets the highest data version of its inputs: 2
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.core.table.predicates import Predicate


class Operation(IntEnum):
    """Numbers are the wire's."""

    INSERT = 1
    OVERWRITE = 2
    TRUNCATE = 3
    RESTORE = 4
    UPDATE = 5
    DELETE = 6
    MERGE = 7
    MINOR_COMPACT = 8
    MAJOR_COMPACT = 9
    CLUSTER = 10
    ALTER = 11
    CUSTOM = 12
    CREATE = 13


COMPACTIONS = frozenset({Operation.MINOR_COMPACT, Operation.MAJOR_COMPACT, Operation.CLUSTER})
UNSORTED = COMPACTIONS - {Operation.CLUSTER}
SCOPED = frozenset({Operation.OVERWRITE, Operation.TRUNCATE, Operation.RESTORE})
ROW_CHANGES = frozenset({Operation.UPDATE, Operation.DELETE, Operation.MERGE})


class FileKind(IntEnum):
    """Numbers are the wire's."""

    APPEND = 0
    BASE = 1
    DELTA = 2


class Rule(IntEnum):
    """The rule behind a conflict. The numbers are the wire's."""

    OUTCOME_TABLE = 1
    LINEAGE = 2
    PROTOCOL_CHANGED = 3
    METADATA_CHANGED = 4
    CONCURRENT_TRANSACTION = 5
    CONCURRENT_APPEND = 6
    CONCURRENT_DELETE_READ = 7
    CONCURRENT_DELETE_DELETE = 8
    CONCURRENT_ROW_CHANGE = 9
    CONCURRENT_KEY = 10


class Advice(IntEnum):
    """The loser's next step. The numbers are the wire's."""

    RESUBMIT = 1
    RERUN = 2
    RELOAD = 3
    PLAN_AGAIN = 4


@dataclass(slots=True)
class Entry:
    """A data file or a delete set, as staged; it does not depend on the commit that adds it.

    `inlined`: the store keeps its rows. `content` are those rows until they are stored.
    `encoded` belongs to the store: the entry's bytes, cached once encoded. A change of the entry empties it.
    """

    path: str
    partition: str
    bucket: int
    kind: FileKind
    rows: int
    size_bytes: int
    payload: bytes
    data_change: bool = True
    is_delete_set: bool = False
    carries_row_ids: bool = False
    external: bool = False
    first_row_id: int = 0
    row_id_min: int = -1
    row_id_max: int = -1
    touches: tuple[str, ...] = ()
    inlined: bool = False
    content: bytes = field(default=b"", compare=False, repr=False)
    encoded: bytes = field(default=b"", init=False, compare=False, repr=False)

    @property
    def hides_anywhere(self) -> bool:
        """A delete set that names no files: it may hide rows of every older file of its partition."""
        return self.is_delete_set and not self.touches


@dataclass(slots=True)
class Live:
    """An entry in a snapshot."""

    entry: Entry
    data_version: int
    added: int

    @property
    def payload(self) -> bytes:
        return self.entry.payload

    @property
    def is_delete_set(self) -> bool:
        return self.entry.is_delete_set

    @property
    def first_row_id(self) -> int:
        return self.entry.first_row_id

    @property
    def inlined(self) -> bool:
        return self.entry.inlined


@dataclass(frozen=True, slots=True)
class Ref:
    """A reference to an entry."""

    path: str
    partition: str
    bucket: int
    data_change: bool = True


@dataclass(frozen=True, slots=True)
class Removed:
    """An entry that a commit removed, or whose hidden rows it changed."""

    path: str
    partition: str
    bucket: int
    added: int
    data_version: int
    rows: int
    size_bytes: int
    is_delete_set: bool
    data_change: bool


@dataclass(frozen=True, slots=True)
class Read:
    """A scan's condition on partitions, or partitions by name.

    `condition` is the whole condition, other columns included; None: it equals `predicate`. `changes_all`: the change
    hides every row that was found. `columns`: the ids of those whose values were used; empty: any. `prepared` caches
    what judging derives from the conditions, which may be large and are judged often.
    """

    predicate: Predicate
    partitions: frozenset[str] | None = None
    reads_files: bool = True
    condition: Predicate | None = None
    changes_all: bool = False
    columns: frozenset[int] = frozenset()
    prepared: dict[object, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    wire: Any = field(default=None, compare=False, repr=False)  # the message that it was made of


@dataclass(frozen=True, slots=True)
class Scope:
    """The part that an overwrite covers; `partitions` None is the whole table."""

    partitions: frozenset[str] | None
    written: bool = False

    def touches(self, partition: str) -> bool:
        return self.partitions is None or partition in self.partitions


@dataclass(frozen=True, slots=True)
class Group:
    """One bucket's part of a compaction, from the plan to the commit's footprint, where `inputs` are those removed.

    A plan has the inputs' `rows`, including hidden ones, and bytes. The worker counts the visible rows of inputs and
    outputs, and takes their digests; None and b"" if it doesn't.
    """

    partition: str
    bucket: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    input_digest: bytes = b""
    output_digest: bytes = b""
    input_rows: int | None = None
    output_rows: int | None = None
    rows: int = 0
    size_bytes: int = 0

    @property
    def place(self) -> tuple[str, int]:
        return self.partition, self.bucket


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys written to a bucket, as hashes: one per row."""

    partition: str
    bucket: int
    hashes: Sequence[int]


@dataclass(slots=True)
class Change:
    """The change of one table by one transaction.

    `key_sets` None: the written keys are not known yet. `unchanged_since`: the version whose rows the table must still
    have; None: any. `others_…`: the changes of its other tables; see `tell` in
    core's `whole`.
    """

    table_id: str
    operation: Operation
    read_version: int
    reads: tuple[Read, ...] = ()
    app_ids_read: tuple[str, ...] = ()
    app_versions: tuple[tuple[str, int], ...] = ()
    adds: list[Entry] = field(default_factory=list)
    removes: tuple[Ref, ...] = ()
    scope: Scope | None = None
    restore_version: int = 0
    groups: tuple[Group, ...] = ()
    alteration: Alteration | None = None
    changes_data: bool = True
    key_sets: tuple[KeySet, ...] | None = None
    unchanged_since: int | None = None
    others_blind: bool = True
    others_insert: bool = True
    others_change_data: bool = False

    @property
    def logical(self) -> bool:
        if self.operation is Operation.CUSTOM:
            return self.changes_data
        return self.operation not in COMPACTIONS and self.operation is not Operation.ALTER


@dataclass(frozen=True, slots=True)
class Principal:
    """The user and program, as the client gives them."""

    name: str = ""
    client: str = ""


@dataclass(slots=True)
class Footprint:
    """The part of a commit that judging later ones needs.

    `shared`: its transaction changed other tables too. `blind`: in none of them it removed anything or read data.
    `hid_anywhere`: partitions where it may have hidden rows of every older file (`hides_beyond`).
    """

    version: int
    time_us: int
    txn_id: str
    operation: Operation
    principal: Principal
    partitions: frozenset[str] = frozenset()
    added: tuple[tuple[str, str, int], ...] = ()
    removed: tuple[Removed, ...] = ()
    touched: tuple[Removed, ...] = ()
    groups: tuple[Group, ...] = ()
    blind: bool = True
    metadata_changed: bool = False
    features_changed: bool = False
    features_removed: bool = False
    altered: bool = False
    app_ids: tuple[str, ...] = ()
    shared: bool = False
    hid_anywhere: frozenset[str] = frozenset()

    @property
    def changes_rows(self) -> bool:
        """Whether readers may find other rows after it: a compaction keeps them, and so does one without effect."""
        return bool(self.partitions) and self.operation not in COMPACTIONS


def hides_beyond(touches: Collection[str], live: frozenset[str]) -> bool:
    """Whether a delete set may hide rows of other files than these: it names none, or one that is not live.

    The rows of such a file are in the output of a compaction.
    """
    return not touches or not live.issuperset(touches)


@dataclass(frozen=True, slots=True)
class Idle:
    """The newest commit without a time version, and the last earlier commit with one."""

    version: int = -1
    logical: int = -1

    def after(self, version: int) -> Idle:
        """The value after one more commit."""
        return Idle(version, self.logical if version == self.version + 1 else version - 1)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A lost race: the winner, the object, the rule and the advice."""

    table_id: str
    rule: Rule
    winner: Footprint
    operation: Operation
    read_version: int
    advice: Advice
    partition: str = ""
    path: str = ""
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()  # that the winner set and the loser sets or has read


@dataclass(frozen=True, slots=True)
class PassedCommit:
    """A commit that changed the same rows, and that a later one passed: each set other columns of them."""

    version: int
    txn_id: str
    columns: tuple[int, ...]  # that it set
    own_columns: tuple[int, ...]  # that the later one set


@dataclass(slots=True)
class TableCommit:
    """The committed form of a change: the next commit of the log and its effect on the snapshot."""

    version: int
    time_us: int
    change: Change
    rebased_over: int
    footprint: Footprint
    added: list[Live]
    removed: list[Live]
    meta: TableMeta | None = None
    already_applied: bool = False
    passed: tuple[PassedCommit, ...] = ()  # the newest COMMITS_PASSED_MAX


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """A commit as the history shows it."""

    footprint: Footprint
    logical: bool
    message: str
    properties: dict[str, str]
    read_version: int
    rebased_over: int
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    sets_added: int
    sets_removed: int
    bytes_added: int
    bytes_removed: int
    adopt_from: str = ""  # the transaction that lost, and whose files this one committed
    metadata_changed: bool = False  # what writers that began earlier, and streams, rely on; features, too

    @property
    def has_time_version(self) -> bool:
        return self.logical and self.footprint.operation is not Operation.CREATE
