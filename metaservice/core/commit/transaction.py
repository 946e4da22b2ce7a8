"""The life of a transaction: open -> committed | conflict | aborted | expired. An end is final."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.model import Conflict, Entry, Operation, PassedCommit, Principal, Read

HISTORY_CHANGED: Final = "HISTORY_CHANGED"
CLAIM_LOST: Final = "TASK_CLAIM_LOST"
SHARES_FOLDER: Final = "iceberg.snapshot-id"  # the property of one whose folder may have files of other commits


class TxnState(IntEnum):
    """Numbers are the wire's."""

    OPEN = 1
    COMMITTED = 2
    CONFLICT = 3
    ABORTED = 4
    EXPIRED = 5


class TxnEvent(StrEnum):
    """What is asked of a transaction, or happens to it."""

    USE = "files are registered, the lease is renewed, or the outcome is asked for in advance"
    COMMIT = "the decision is asked for"
    WIN = "the decision: it committed"
    LOSE = "the decision: a conflict"
    ABORT = "by its client; or its table was dropped, its claim lost, the service restored"
    EXPIRE = "the transaction's lease ran out: begin a new one"


NEXT: Final[Mapping[TxnState, Mapping[TxnEvent, TxnState]]] = {  # any other event is refused
    TxnState.OPEN: {
        TxnEvent.USE: TxnState.OPEN,
        TxnEvent.COMMIT: TxnState.OPEN,
        TxnEvent.WIN: TxnState.COMMITTED,
        TxnEvent.LOSE: TxnState.CONFLICT,
        TxnEvent.ABORT: TxnState.ABORTED,
        TxnEvent.EXPIRE: TxnState.EXPIRED,
    },
    TxnState.COMMITTED: {TxnEvent.COMMIT: TxnState.COMMITTED},  # a repeat gets the first answer
    TxnState.CONFLICT: {TxnEvent.COMMIT: TxnState.CONFLICT},
    TxnState.ABORTED: {TxnEvent.ABORT: TxnState.ABORTED},
    TxnState.EXPIRED: {TxnEvent.ABORT: TxnState.EXPIRED},  # it is over, as was asked for
}


@dataclass(slots=True)
class Look:
    """The version up to which a change, with how many of its files, was found not doomed."""

    met: int
    files: int


@dataclass(slots=True)
class TxnTable:
    """One table of a transaction; `staged` is by path, and its data files hold `staged_rows`. `look` is not stored."""

    table_id: str
    operation: Operation
    read_version: int
    schema_version: int
    reads: tuple[Read, ...] = ()
    staged: dict[str, Entry] = field(default_factory=dict)
    chunks: int = 0
    adopted: int = 0
    staged_rows: int = 0
    look: Look | None = None


@dataclass(slots=True)
class TableOutcome:
    """The result of a commit for one table."""

    table_id: str
    version: int
    logical: bool
    rebased_over: int
    already_applied: bool = False
    passed: tuple[PassedCommit, ...] = ()


@dataclass(frozen=True, slots=True)
class NameOutcome:
    """What a merge or a refresh did to a view or a namespace: it is new, changed or dropped."""

    kind: str
    name: str
    change: str


@dataclass(frozen=True, slots=True)
class Written:
    """Files of a transaction, delete sets among them; the rows of its data files; the bytes of all."""

    files: int
    rows: int
    size_bytes: int


@dataclass(slots=True)
class Txn:
    """A transaction, open or ended."""

    txn_id: str
    tables: dict[str, TxnTable]
    principal: Principal
    message: str
    properties: Mapping[str, str]
    begin_us: int
    begin_digest: bytes
    adopt_from: str = ""
    state: TxnState = TxnState.OPEN
    end_us: int = 0
    commit_digest: bytes = b""
    commit_time_us: int = 0
    outcomes: tuple[TableOutcome, ...] = ()
    conflict: Conflict | None = None
    abort_reason: str = ""
    adopted_by: str = ""
    adoptable: bool = False
    files: int = 0
    staged_files: int = 0  # in memory; not stored
    staged_bytes: int = 0  # of memory; not stored
    one_call: bool = False
    lost: Written | None = None  # what it had written when it lost a race
    names: tuple[NameOutcome, ...] = ()  # of a merge or a refresh


def txn_time_ms(txn_id: str) -> int:
    """The time inside a UUIDv7."""
    return int(txn_id[:8] + txn_id[9:13], 16)


def first_id(time_ms: int) -> str:
    """The first id of that time: as text, ids of earlier times sort before it, and later ones after it."""
    return f"{time_ms >> 16:08x}-{time_ms & 0xFFFF:04x}"


def check_txn_age(txn_id: str, now_ms: int, keep_ms: int, forgotten_ms: int = 0) -> None:
    """Refuses unknown ids that are older than outcomes are kept, or than a forgotten outcome: they could repeat it."""
    time_ms = txn_time_ms(txn_id)
    age_ms = now_ms - time_ms
    if time_ms < forgotten_ms:
        raise invalid(
            "TRANSACTION_ID_TOO_OLD",
            "outcomes that old were forgotten; if the id is new, check the clocks of client and service",
            txn_id=txn_id,
            forgotten_before_ms=forgotten_ms,
        )
    if age_ms > keep_ms:
        raise invalid("TRANSACTION_ID_TOO_OLD", "outcomes that old are no longer kept: use a new id", txn_id=txn_id)
    if -age_ms > limits.FUTURE_TXN_MS_MAX:
        raise invalid(
            "TRANSACTION_ID_IN_FUTURE",
            "the time in the id is ahead of the service's clock: correct the client's clock",
            txn_id=txn_id,
        )


def unknown_txn(txn_id: str, epoch: str, since_us: int) -> MetaError:
    """The refusal of an unknown id; an id older than this history can only belong to another one."""
    if txn_time_ms(txn_id) * 1000 < since_us:
        return MetaError(
            ErrorKind.STALE,
            HISTORY_CHANGED,
            "the service was restored from a backup since: begin a new transaction",
            txn_id=txn_id,
            epoch=epoch,
        )
    return MetaError(ErrorKind.NOT_FOUND, "TRANSACTION_UNKNOWN", txn_id=txn_id)


def next_state(txn: Txn, event: TxnEvent) -> TxnState:
    """Return the state after an event; refuse an event that the present state doesn't allow."""
    state = NEXT[txn.state].get(event)
    if state is None:
        raise _ended(txn)
    return state


def check_open(txn: Txn) -> None:
    """Refuses what only an open transaction may do."""
    next_state(txn, TxnEvent.USE)


def end(txn: Txn, event: TxnEvent, now_us: int) -> None:
    txn.state, txn.end_us = next_state(txn, event), now_us


def _ended(txn: Txn) -> MetaError:
    if txn.state is TxnState.EXPIRED:
        return MetaError(
            ErrorKind.STALE,
            "TRANSACTION_EXPIRED",
            txn_id=txn.txn_id,
        )
    if txn.state is TxnState.ABORTED:
        if txn.abort_reason == "TABLE_DROPPED":
            return MetaError(ErrorKind.BLOCKED, "TABLE_DROPPED", txn_id=txn.txn_id, why=txn.abort_reason)
        reason = txn.abort_reason if txn.abort_reason in (HISTORY_CHANGED, CLAIM_LOST) else "TRANSACTION_ABORTED"
        return MetaError(ErrorKind.STALE, reason, txn_id=txn.txn_id, why=txn.abort_reason)
    return MetaError(ErrorKind.STALE, "TRANSACTION_ENDED", txn_id=txn.txn_id, state=txn.state.name.lower())
