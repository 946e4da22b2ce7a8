"""Commits of several tables by Iceberg's clients, as one transaction: all of them are committed, or none."""

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
    """The change of one table in a transaction: of rows, or of columns and properties, or only requirements."""

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
        table_change = common_pb2.Change(table_id=self.table.table_id)
        if self.alteration is not None:
            table_change.alteration.CopyFrom(self.alteration)
        since = self.since
        if self.hidden:
            table_change.reads.add()
            head = self.table.meta.head_version
            since = head if since is None else min(since, head)
        if since is not None:
            table_change.unchanged_since = since
        return table_change

    def stage(self, txn_id: str) -> tuple[Sequence[common_pb2.DataFile], Sequence[common_pb2.DeleteSet]]:
        """Put its files into the folder of the transaction."""
        files: Sequence[common_pb2.DataFile] = ()
        if self.rows is not None and self.rows.added:
            ids: dict[PartitionKey, BitMap64] = defaultdict(BitMap64)
            for file, row_ids in self.hidden:
                ids[partition_key(file.partition)] |= row_ids
            paths = [added.path for added in self.rows.added]
            targets = paths_below(txn_id, paths)
            files = DataFiles(self.table.meta, self.schemas, self.rows.places, ids).entries(self.rows.added, targets)
            self.rows.places.put(paths, targets)
        sets = delete_sets(self.table.folder, txn_id, self.hidden) if self.hidden else ()
        return files, list(sets)


def own_ids(rows: Iterable[Append]) -> list[str]:
    """Return the ids to try for the transaction of these snapshots, in order.

    They are derived from the snapshots, so a repeated request finds them.
    """
    listed = sorted((append.table_id, append.snapshot.snapshot_id, append.snapshot.time_ms) for append in rows)
    if not listed:
        return [uuid7()]  # columns and properties: a repeat finds the tables so already
    digest = hashlib.sha256(repr(listed).encode()).hexdigest()
    time_ms = max(key[2] for key in listed)
    return [derived_id(digest, number, time_ms) for number in range(TRIES_MAX)]


def unused_id(client: MetaClient, ids: Sequence[str]) -> str | None:
    """Return the id to commit under; None if the transaction was committed before. Raises UnfinishedError."""
    for txn_id in ids:
        try:
            transaction = client.get_transaction(txn_id)
        except NotFoundError:
            return txn_id
        if transaction.state == wire.TRANSACTION_STATE_COMMITTED:
            return None
        if transaction.state == wire.TRANSACTION_STATE_OPEN:
            raise UnfinishedError(txn_id)
    raise UnfinishedError(ids[-1])


class UnfinishedError(Exception):
    """The same commit was sent before, and its outcome is not decided yet."""

    def __init__(self, txn_id: str) -> None:
        super().__init__(f"the transaction {txn_id} of the same commit has not ended; send it again in a minute")


def commit_all(client: MetaClient, txn_id: str, parts: Sequence[TablePart]) -> None:
    """Commit the changes of all tables. Raises ConflictError with the table in its text."""
    names = {part.table.table_id: part.table.name for part in parts}
    try:
        with client.begin([part.intent for part in parts], txn_id=txn_id) as txn:
            for part in parts:
                files, sets = part.stage(txn_id)
                if files or sets:
                    txn.register(part.table.table_id, files, sets)
            txn.commit([part.change for part in parts])
    except ConflictError as lost:
        raise explained(lost, names.get(lost.conflict.table_id, "")) from lost


def took_place(client: MetaClient, txn_id: str) -> bool:
    """Return whether a transaction is committed, after an error of one of its calls."""
    try:
        return bool(client.get_transaction(txn_id).state == wire.TRANSACTION_STATE_COMMITTED)
    except UnavailableError:
        raise
    except MetaServiceError:
        return False
