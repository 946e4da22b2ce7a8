"""A write from begin to commit: staged under its transaction, kept alive, cancelled when it can't commit, cleaned up.

A write is planned first (so that errors are raised before anything begins), then begun, staged, registered and
committed. The policy decides what happens after a lost race: nothing (`fail`), the same files at the new head
(`resubmit`, for blind INSERTs), or the whole write again (`rerun`); see `conflict_policies`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from metaservice.client import (
    BlockedError,
    CommitOutcomeUnknownError,
    ConflictError,
    ExhaustedError,
    MetaServiceError,
    Transaction,
    features,
    key_spans_partitions,
)
from metaservice.client.features import INLINED_ROWS
from metaservice.client.retries import Backoff
from metaservice.shared.ids import uuid7
from protos.laketx.v1 import common_pb2, transaction_pb2
from worker.base.errors import lost_race, word
from worker.base.logs import tell
from worker.base.values import moment_of
from worker.commit import spans
from worker.commit.conflict_policies import OnConflict, policy_for
from worker.commit.stages import Stage
from worker.commit.writes import Commit, Write
from worker.connection.lake_connection import Connection

ATTEMPTS_MAX: Final = int(common_pb2.LIMIT_ATTEMPTS)
BACKOFF: Final = Backoff(base_s=0.1, longest_s=5.0)
NOT_ADOPTED: Final = ("METADATA_CHANGED", "NOT_ADOPTABLE", "PURGE_HAS_BEGUN")  # the files fit no more, or are gone
NOT_KEPT: Final = "TOO_MANY_INLINED_ROWS"
PLANNED_AGAIN: Final[Mapping[str, str]] = {
    "SCHEMA_VERSION_MISMATCH": "the columns changed",
    "VERSION_RETIRED": "the version was retired",
    "KEYS_NOT_LOOKED_UP": "the key has to be looked up since",
}


@dataclass
class _Lost(Exception):  # noqa: N818 - never leaves this module
    """This transaction lost a race."""

    txn_id: str
    conflict: common_pb2.Conflict
    stages: list[Stage] = field(default_factory=list)
    are_refused: bool = False  # its files: an adoption was tried

    @property
    def adoptable(self) -> bool:
        metadata = (common_pb2.CONFLICT_RULE_METADATA_CHANGED, common_pb2.CONFLICT_RULE_PROTOCOL_CHANGED)
        has_read = any(stage.staged.looked_at for stage in self.stages)  # as its rows said while it was staged
        return self.conflict.rule not in metadata and not self.are_refused and not has_read


def run_writes(
    lake: Connection,
    plan: Callable[[], list[Write]],
    *,
    on_conflict: OnConflict | None = None,
    message: str = "",
    cursors: Sequence[transaction_pb2.CursorMove] = (),
    txn_id: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> list[Commit]:
    """Plan, stage and commit writes; repeat as the policy says, a bounded number of times.

    The policy is `on_conflict` or the table's; for writes at fixed versions, in a transaction, only `on_conflict`.

    Cursors advance with the commit. `txn_id`: the transaction under which files are staged already. `properties` are
    kept with the commit.
    """
    with spans.write() as span:
        commits = _run_writes(lake, plan, on_conflict, message, cursors, txn_id, properties)
        spans.note_commits(span, commits)
        return commits


def _run_writes(
    lake: Connection,
    plan: Callable[[], list[Write]],
    on_conflict: OnConflict | None,
    message: str,
    cursors: Sequence[transaction_pb2.CursorMove],
    txn_id: str | None,
    properties: Mapping[str, str] | None,
) -> list[Commit]:
    lost: _Lost | None = None  # its files are to be committed again
    race: _Lost | None = None
    policy: OnConflict = "fail"
    staged: dict[str, int] = {}
    writes: list[Write] = []
    may_inline = True
    for attempt in range(1, ATTEMPTS_MAX + 1):
        if attempt > 1:
            time.sleep(BACKOFF.delay_s(attempt - 2, random.random()))
        try:
            if lost is None:
                writes = plan()
                spans.note_plan([(_operation(write), write.meta.name) for write in writes])
                may_be_one = attempt == 1 and txn_id is None and not (cursors or properties) and len(writes) == 1
                if may_be_one and writes[0].is_one_call and writes[0].is_blind_insert:
                    done = _in_one_call(lake, writes[0], message) if lake.client.offers(INLINED_ROWS) else None
                    if done is not None:
                        return [done]
                    writes = plan()  # from the table as it is now
                policy = _policy(writes, on_conflict)
                writes, txn = _begun(lake, writes, plan, message, txn_id, properties)
                committed, staged, txn_id = _attempt(lake, writes, txn, policy, cursors, may_inline=may_inline)
            else:
                committed, txn_id = _resubmit(lake, writes, lost, message, cursors)
            return _commits(writes, committed, txn_id, staged, attempt)
        except ExhaustedError as error:
            may_repeat = may_inline and txn_id is None and attempt < ATTEMPTS_MAX
            if error.reason != NOT_KEPT or not may_repeat or any(write.are_rows_once for write in writes):
                raise
            may_inline, lost = False, None  # files are not bounded
        except _Lost as error:
            race = error
            may_resubmit = policy == "resubmit" and race.adoptable
            name = _name(writes, race.conflict.table_id)
            tell("lost a race to", table=name, version=race.conflict.winner_version, txn_id=race.txn_id)
            stays = _why_rows_stay(writes, race)
            is_over = policy == "fail" or attempt == ATTEMPTS_MAX or (policy == "resubmit" and not may_resubmit)
            if is_over or (policy == "rerun" and stays):
                raise lost_race(race.conflict, name, attempt, stays) from None
            if policy == "rerun":
                _read_anew(writes)
            lost = race if may_resubmit else None
            staged = staged or _staged_rows(race.stages)
    raise AssertionError("the last attempt raises")


def _why_rows_stay(writes: Sequence[Write], race: _Lost) -> str:
    """Why its rows would be the same, however often the write runs again; nothing: they would not."""
    if any(write.rows_anew for write in writes):
        return ""
    for write in writes:
        if write.are_rows_once:
            return "its rows came as a stream, which can be read once: make it again, and write again"
        is_loser = write.meta.table_id == race.conflict.table_id
        if is_loser and write.rows_version is not None and write.rows_version < race.conflict.winner_version:
            return (
                f"its rows were read at version {write.rows_version} and stay as they are: "
                "read them again, and write again"
            )
    return ""


def _read_anew(writes: Sequence[Write]) -> None:
    for write in writes:
        if write.rows_anew is not None:
            write.rows_anew()


def _policy(writes: Sequence[Write], given: OnConflict | None) -> OnConflict:
    is_blind = all(write.is_blind_insert for write in writes)
    is_fixed = any(write.read_version is not None for write in writes)
    is_alone = len(writes) == 1 + len(writes[0].elsewhere)
    is_repeatable = is_alone and not is_fixed and writes[0].is_repeatable_insert
    meta = writes[0].meta if is_alone and not is_fixed else None
    return policy_for(given, meta, is_blind=is_blind, is_repeatable=is_repeatable)


def _in_one_call(lake: Connection, write: Write, message: str) -> Commit | None:
    """Begins and commits a blind INSERT with the rows in the call; None if it has to begin first."""
    assert write.stage is not None
    stage = Stage(write.meta, write.table.folder, uuid7(), write.meta.head_version)
    is_inlined = False
    try:
        with _staging(write, stage):
            stage.staged = staged = write.stage(stage)
        is_inlined = all(file.content for file in staged.files)
    finally:
        if not is_inlined:
            with suppress(OSError):
                stage.remove()
    if not is_inlined:  # the rows took more bytes than they seemed to
        return None
    try:
        committed = lake.client.append(
            write.meta.table_id,
            staged.files,
            txn_id=stage.txn_id,
            schema_version=write.meta.schema_version,
            commit_message=message,
            app_versions=[] if write.app is None else [write.app],
        )
    except ConflictError:  # the columns changed, and nothing else can be one
        return None
    except BlockedError as error:
        if error.reason != "KEYS_NOT_LOOKED_UP":  # the table was as it is in the plan
            raise
        return None
    return _commits([write], committed, stage.txn_id, {write.meta.table_id: staged.rows()}, 1)[0]


def _begun(
    lake: Connection,
    writes: list[Write],
    plan: Callable[[], list[Write]],
    message: str,
    txn_id: str | None,
    properties: Mapping[str, str] | None,
) -> tuple[list[Write], Transaction]:
    """Begins the write; plans it again if an ALTER came in between, or if the version was retired meanwhile.

    A write at a fixed version stays at that version.
    """
    left = ATTEMPTS_MAX
    lake.mark_warehouse()
    while True:
        left -= 1
        try:
            intents = [write.intent() for write in writes]
            txn = lake.client.begin(
                intents,
                txn_id=txn_id,
                commit_message=message,
                properties=properties,
                features=_features(writes),
            )
            return writes, txn
        except MetaServiceError as error:
            is_fixed = any(write.read_version is not None for write in writes)
            if error.reason not in PLANNED_AGAIN or is_fixed or not left:
                raise
            for write in writes:
                tell(
                    f"{PLANNED_AGAIN[error.reason]}; the write is planned again",
                    table=write.meta.name,
                    version=write.meta.head_version,
                )
            writes = plan()


def _features(writes: Sequence[Write]) -> Sequence[str]:
    """What these writes can do. Those to tables whose key spans partitions must look it up, each of them."""
    spanning = [write for write in writes if key_spans_partitions(write.meta)]
    for write in spanning:
        if write.stage is not None and not write.looks_keys_up:
            raise features.keys_not_looked_up(write.meta.name)
    return [features.KEY_LOOKUPS] if spanning else []


def _attempt(
    lake: Connection,
    writes: list[Write],
    txn: Transaction,
    policy: OnConflict,
    cursors: Sequence[transaction_pb2.CursorMove],
    *,
    may_inline: bool,
) -> tuple[common_pb2.Committed, dict[str, int], str]:
    stages = [
        Stage(
            write.meta,
            write.table.folder,
            txn.txn_id,
            txn.tables[write.meta.table_id].read_version,
            may_inline=lambda: may_inline and lake.client.offers(INLINED_ROWS),
        )
        for write in writes
    ]
    keeps_files = False
    stops = policy != "resubmit" and all(
        write.app is None for write in writes
    )  # applied before, it commits though it lost
    applied: set[str] = set()
    try:
        with txn:
            for write, stage in zip(writes, stages, strict=True):
                _tell(write, "begins", stage.read_version, txn.txn_id)
            if stops and txn.doomed is not None:
                raise ConflictError(txn.doomed)
            for write, stage in zip(writes, stages, strict=True):
                if write.stage is not None:
                    with _staging(write, stage):
                        stage.staged = write.stage(stage)
                    if stage.staged.files or stage.staged.delete_sets:
                        txn.queue(write.meta.table_id, stage.staged.files, stage.staged.delete_sets)
                    staged = f"staged {stage.staged.rows()} rows"
                    _tell(write, staged, stage.read_version, txn.txn_id, logging.DEBUG)
            committed = txn.commit(_changes(writes, stages), cursors)
        applied = {table.table_id for table in committed.tables if table.already_applied}
        keeps_files = not applied
    except ConflictError as error:
        lost = _Lost(txn.txn_id, error.conflict, stages)
        # An adopter needs them; the service sweeps those that are not adopted.
        keeps_files = lost.adoptable and all(write.is_blind_insert for write in writes)
        raise lost from error
    except CommitOutcomeUnknownError:
        keeps_files = True  # it may have committed
        raise
    finally:
        if not keeps_files:
            for write, stage in zip(writes, stages, strict=True):
                if not applied or write.meta.table_id in applied:
                    _tell(write, "rolled back", stage.read_version, txn.txn_id)
                    with suppress(OSError):
                        stage.remove()
    return committed, _staged_rows(stages), txn.txn_id


def _staging(write: Write, stage: Stage) -> AbstractContextManager[None]:
    return spans.stage(_operation(write), write.meta, stage)


def _changes(writes: Sequence[Write], stages: Sequence[Stage]) -> list[common_pb2.Change]:
    return [write.change(stage.staged) for write, stage in zip(writes, stages, strict=True)]


def _resubmit(
    lake: Connection, writes: list[Write], lost: _Lost, message: str, cursors: Sequence[transaction_pb2.CursorMove]
) -> tuple[common_pb2.Committed, str]:
    """A new transaction takes over the files of the one that lost; no byte is written again."""
    intents = [transaction_pb2.TableIntent(table_id=write.meta.table_id, operation=write.operation) for write in writes]
    try:
        txn = lake.client.begin(intents, commit_message=message, adopt_from=lost.txn_id)
    except MetaServiceError as error:
        if error.reason not in NOT_ADOPTED:
            raise
        raise _Lost(lost.txn_id, lost.conflict, are_refused=True) from error
    with txn:
        try:
            committed = txn.commit(_changes(writes, lost.stages), cursors)
        except ConflictError as error:
            raise _Lost(txn.txn_id, error.conflict, lost.stages) from error
    return committed, txn.txn_id


def _commits(
    writes: Sequence[Write], committed: common_pb2.Committed, txn_id: str, staged: dict[str, int], attempt: int
) -> list[Commit]:
    moment = moment_of(committed.commit_time_us)
    by_id = {table.table_id: table for table in committed.tables}
    commits = []
    for write in writes:
        table = by_id[write.meta.table_id]
        rows = staged.get(write.meta.table_id, 0)
        applied = table.already_applied
        name = write.meta.name
        commits.append(
            Commit(
                table=name,
                version=table.version,
                time=moment,
                txn_id=txn_id,
                rebased_over=table.rebased_over,
                rows_staged=0 if applied else rows,
                attempts=attempt,
                already_applied=applied,
            )
        )
        _tell(write, "applied before" if applied else "committed", table.version, txn_id)
    return commits


def _operation(write: Write) -> str:
    return _operation_name(write.operation)


@cache
def _operation_name(operation: common_pb2.Operation.ValueType) -> str:
    return word(common_pb2.Operation.Name(operation), "OPERATION_").lower()


def _tell(write: Write, event: str, version: int, txn_id: str, level: int = logging.INFO) -> None:
    tell(f"{_operation(write)} {event}", table=write.meta.name, version=version, txn_id=txn_id, level=level)


def _staged_rows(stages: Sequence[Stage]) -> dict[str, int]:
    return {stage.meta.table_id: stage.staged.rows() for stage in stages}


def _name(writes: Sequence[Write], table_id: str) -> str:
    return next((write.meta.name for write in writes if write.meta.table_id == table_id), table_id)
