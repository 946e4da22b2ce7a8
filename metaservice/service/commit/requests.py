"""Requests from the edge to the service, already checked and in core's types.

They are not frozen, though nothing changes them: creating a frozen one costs several times as much, and there are many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metaservice.core.commit.judge import Judging
from metaservice.core.retention.marks import CursorMove
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Change, Entry, Operation, Principal, Read

Counts = tuple[tuple[int | None, int | None], ...]  # by change: the files and rows that were registered for it


@dataclass(slots=True)
class Intent:
    """One table of a begin."""

    table_id: str
    operation: Operation
    schema_version: int = 0
    read_version: int | None = None
    reads: tuple[Read, ...] = ()
    definition: str = ""


@dataclass(slots=True)
class Begin:
    """Begins a transaction."""

    txn_id: str
    tables: tuple[Intent, ...]
    principal: Principal
    message: str
    digest: bytes
    adopt_from: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


@dataclass(slots=True)
class CommitProgress:
    """The progress of a commit: `own` are the files of its request, `files` those registered beside them."""

    changes: Sequence[Change]
    own: Sequence[list[Entry]]
    files: int = -1
    judged: dict[str, Judging | None] = field(default_factory=dict)
    applied: set[str] = field(default_factory=set)


@dataclass(slots=True)
class CommitRequest:
    """Commits a transaction; the changes hold files that were not registered."""

    txn_id: str
    changes: tuple[Change, ...]
    counts: Counts
    digest: bytes
    cursors: tuple[CursorMove, ...] = ()
    progress: CommitProgress | None = None


@dataclass(frozen=True, slots=True)
class Alter:
    """Changes a table's definition. `commit_digest` is that of the commit that a client would send for it."""

    txn_id: str
    table_id: str
    alteration: Alteration
    principal: Principal
    message: str
    digest: bytes
    commit_digest: bytes


@dataclass(slots=True)
class Append:
    """A blind append in one call."""

    txn_id: str
    table_id: str
    schema_version: int
    principal: Principal
    message: str
    digest: bytes
    entries: list[Entry]
    app_versions: tuple[tuple[str, int], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    unchanged_since: int | None = None
