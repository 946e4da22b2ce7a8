"""Commits of several tables by Iceberg's clients, as one transaction: all of them take place, or none."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from metaservice.client import ConflictError, MetaClient, MetaServiceError, NotFoundError, UnavailableError, uuid7
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.files.delete_sets import delete_sets
from worker.iceberg.commits.appends import Append, explained
from worker.iceberg.commits.changes import Hidden
from worker.iceberg.commits.data_files import DataFiles, Schemas
from worker.iceberg.commits.txn_ids import derived_id, paths_below

TRIES_MAX: Final = 20  # of one request that was refused before


@dataclass(frozen=True, slots=True)
class TablePart:
    """What a transaction does to one of its tables: rows, or columns and properties; neither: it only requires it."""

    table: TableView
    schemas: Schemas
    since: int | None  # the version whose rows the table must still have
    rows: Append | None = None
    hidden: Hidden = ()
    alteration: common_pb2.Alteration | None = None

    @property
    def does_nothing(self) -> bool:
        return self.rows is None and self.alteration is None and self.since is None

    @property
    def intent(self) -> wire.TableIntent:
        meta = self.table.meta
        intent = wire.TableIntent(table_id=meta.table_id, read_version=meta.head_version)
        if self.alteration is not None:
            intent.operation, intent.schema_version = common_pb2.OPERATION_ALTER, meta.schema_version
        elif self.hidden:
            has_files = self.rows is not None and bool(self.rows.added)
            intent.operation = common_pb2.OPERATION_MERGE if has_files else common_pb2.OPERATION_DELETE
        else:
            intent.operation = common_pb2.OPERATION_INSERT
        return intent

    @property
    def change(self) -> common_pb2.Change:
        found = common_pb2.Change(table_id=self.table.table_id)
        if self.alteration is not None:
            found.alteration.CopyFrom(self.alteration)
        since = self.since
        if self.hidden:
            found.reads.add()
            head = self.table.meta.head_version
            since = head if since is None else min(since, head)
        if since is not None:
            found.unchanged_since = since
        return found

    def stage(self, txn_id: str) -> tuple[Sequence[common_pb2.DataFile], Sequence[common_pb2.DeleteSet]]:
        """Puts its files into the folder of the transaction."""
        files: Sequence[common_pb2.DataFile] = ()
        if self.rows is not None and self.rows.added:
            ids: dict[PartitionKey, BitMap64] = defaultdict(BitMap64)
            for file, found in self.hidden:
                ids[partition_key(file.partition)] |= found
            paths = [one.path for one in self.rows.added]
            targets = paths_below(txn_id, paths)
            files = DataFiles(self.table.meta, self.schemas, self.rows.places, ids).entries(self.rows.added, targets)
            self.rows.places.put(paths, targets)
        sets = delete_sets(self.table.folder, txn_id, self.hidden) if self.hidden else ()
        return files, list(sets)


def own_ids(rows: Iterable[Append]) -> list[str]:
    """The ids that the transaction of these snapshots may have, each after a refusal of the one before.

    They are made of the snapshots, so a repeat finds them.
    """
    listed = sorted((one.table_id, one.snapshot.snapshot_id, one.snapshot.time_ms) for one in rows)
    if not listed:
        return [uuid7()]  # columns and properties: a repeat finds the tables so already
    digest = hashlib.sha256(repr(listed).encode()).hexdigest()
    time_ms = max(one[2] for one in listed)
    return [derived_id(digest, number, time_ms) for number in range(TRIES_MAX)]


def unused_id(client: MetaClient, ids: Sequence[str]) -> str | None:
    """The id to commit under; None: the transaction took place before. Refuses where that is not known yet."""
    for txn_id in ids:
        try:
            known = client.get_transaction(txn_id)
        except NotFoundError:
            return txn_id
        if known.state == wire.TRANSACTION_STATE_COMMITTED:
            return None
        if known.state == wire.TRANSACTION_STATE_OPEN:
            raise UnfinishedError(txn_id)
    raise UnfinishedError(ids[-1])


class UnfinishedError(Exception):
    """The same commit was sent before, and has not ended: its outcome is not known."""

    def __init__(self, txn_id: str) -> None:
        super().__init__(f"the transaction {txn_id} of the same commit has not ended; send it again in a minute")


def commit_all(client: MetaClient, txn_id: str, parts: Sequence[TablePart]) -> None:
    """Raises ConflictError with the table in its text."""
    names = {one.table.table_id: one.table.name for one in parts}
    try:
        with client.begin([one.intent for one in parts], txn_id=txn_id) as txn:
            for one in parts:
                files, sets = one.stage(txn_id)
                if files or sets:
                    txn.register(one.table.table_id, files, sets)
            txn.commit([one.change for one in parts])
    except ConflictError as lost:
        raise explained(lost, names.get(lost.conflict.table_id, "")) from lost


def took_place(client: MetaClient, txn_id: str) -> bool:
    """Whether a transaction is committed, after an error of one of the calls for it."""
    try:
        return bool(client.get_transaction(txn_id).state == wire.TRANSACTION_STATE_COMMITTED)
    except UnavailableError:
        raise
    except MetaServiceError:
        return False
