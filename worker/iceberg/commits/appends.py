"""Appends of Iceberg's clients. One decision at the head commits them and checks the rows that they require."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from metaservice.client import (
    ConflictError,
    LakeTXError,
    MetaClient,
    MetaServiceError,
    NotFoundError,
)
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from worker.base.errors import NextSteps, conflict_text
from worker.iceberg.commits.data_files import DataFiles, RowIds, Schemas
from worker.iceberg.commits.manifests import AddedFile, Changes, read_changes, written_folders
from worker.iceberg.commits.places import Places
from worker.iceberg.commits.requests import NewSnapshot, refused
from worker.iceberg.commits.txn_ids import UUID7, derived_id, folder_of, loaded_version, paths_below
from worker.iceberg.metadata.table_metadata import SNAPSHOT

NEXT_STEP: Final[NextSteps] = {
    common_pb2.ADVICE_RELOAD: "the table's schema or settings changed: load the table and append the same rows again"
}
USED: Final = "TRANSACTION_ID_REUSED"
ABORTED: Final = "TRANSACTION_ABORTED"  # by a refusal before, or a service that did not answer
Commit = Callable[[str, Sequence[common_pb2.DataFile]], int]  # by a transaction's id and the files: the version


@dataclass(frozen=True, slots=True)
class Append:
    """The rows that a commit appends to a table, and its other changes."""

    table_id: str
    snapshot: NewSnapshot
    changes: Changes
    places: Places
    folder: str  # the id of the folder that the files lie in, if it can be the transaction's
    own: str  # the id made of the snapshot
    since: int | None = None  # the version whose rows the table must still have
    loaded: int | None = None  # the version that its client had loaded when it wrote the files

    @property
    def added(self) -> Sequence[AddedFile]:
        return list(self.changes.added.values())

    @property
    def properties(self) -> dict[str, str]:
        return {SNAPSHOT: str(self.snapshot.snapshot_id)}


def read_append(folder: str, table_id: str, snapshots: Sequence[NewSnapshot]) -> Append:
    """Return the append of a commit. Several snapshots are one append with the id of the last one."""
    places, last = Places(folder), snapshots[-1]
    changes = read_changes(places, snapshots)
    if not changes.is_append and all(snapshot.is_append for snapshot in snapshots):
        raise refused("the snapshot has the operation append, and takes rows away")
    own = derived_id(table_id, last.snapshot_id, last.time_ms)
    paths = [file.path for file in changes.added.values()]
    folder = folder_of(paths, last.time_ms)
    return Append(table_id, last, changes, places, folder, own, loaded=loaded_version(paths))


def append(client: MetaClient, meta: catalog_pb2.Table, schemas: Schemas, rows: Append) -> int:
    """Commit an append and return its version. A repeated commit gets the first answer."""
    return placed(client, meta, schemas, rows, lambda txn_id, files: _append(client, meta, rows, txn_id, files))


def placed(
    client: MetaClient,
    meta: catalog_pb2.Table,
    schemas: Schemas,
    rows: Append,
    commit: Commit,
    hidden: RowIds | None = None,
) -> int:
    """Commit under the id of the files' folder, or else link the files into the folder of another id."""
    files = DataFiles(meta, schemas, rows.places, hidden) if rows.added else None
    paths = [file.path for file in rows.added]
    if rows.folder and files is not None:
        try:
            return commit(rows.folder, files.entries(rows.added, paths))
        except MetaServiceError as error:
            if error.reason not in (USED, ABORTED):
                raise
    done = find_version(client, rows)
    if done is not None:
        return done
    if files is None:
        return commit(rows.own, [])
    targets = paths_below(rows.own, paths)
    entries = files.entries(rows.added, targets)
    rows.places.put(paths, targets)
    return commit(rows.own, entries)


def check_append(meta: catalog_pb2.Table, schemas: Schemas, rows: Append) -> None:
    """Refuse files that don't fit the table."""
    DataFiles(meta, schemas, rows.places).entries(rows.added, [file.path for file in rows.added])


def _append(
    client: MetaClient,
    meta: catalog_pb2.Table,
    rows: Append,
    txn_id: str,
    files: Sequence[common_pb2.DataFile],
) -> int:
    schema = rows.snapshot.schema_id
    try:
        committed = client.append(
            meta.table_id,
            files,
            txn_id=txn_id,
            schema_version=meta.schema_version if schema is None else schema,
            properties=rows.properties,
            unchanged_since=rows.since,
        )
    except ConflictError as lost:
        raise explained(lost, meta.name) from lost
    return committed.tables[0].version


def explained(lost: ConflictError, name: str, next_steps: NextSteps = NEXT_STEP) -> ConflictError:
    """Return a conflict with the winner, the rule and the next step in its text."""
    return ConflictError(lost.conflict, conflict_text(lost.conflict, name, 1, next_steps), table=name)


# -- repeats -----------------------------------------------------------------------------------------------------------


def find_version(client: MetaClient, rows: Append) -> int | None:
    """Return the version of a snapshot that was committed before, under either of its ids."""
    for txn_id in filter(None, (rows.own, rows.folder)):
        try:
            transaction = client.get_transaction(txn_id)
        except NotFoundError:
            continue
        if transaction.state != wire.TRANSACTION_STATE_COMMITTED:
            continue
        for table in transaction.committed.tables:
            if table.table_id == rows.table_id and snapshot_of(client, table.table_id, table.version) == str(
                rows.snapshot.snapshot_id
            ):
                return int(table.version)
    return None


def snapshot_of(client: MetaClient, table_id: str, version: int) -> str:
    """Return the client's snapshot that a version was committed from; empty if there is none."""
    listed = client.list_versions(table_id, matching=read_pb2.VersionFilter(from_version=version, to_version=version))
    return next((version_info.properties.get(SNAPSHOT, "") for version_info in listed), "")


# -- what is left over ---------------------------------------------------------------------------------------------


def abandon(client: MetaClient, folder: str, table_id: str, snapshots: Sequence[NewSnapshot]) -> None:
    """End the transactions whose folders contain files of a refused commit, so that the purge deletes the files."""
    intent = wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)
    for txn_id in written_folders(Places(folder), snapshots):
        if not UUID7.match(txn_id):
            continue
        try:
            with client.begin([intent], txn_id=txn_id):
                pass
        except LakeTXError:
            continue  # it has ended, or the caller may not write the table


def under_schema(rows: Append, schema_id: int) -> Append:
    """Return the append under a schema that its commit adds, by the schema's id in the table."""
    return replace(rows, snapshot=replace(rows.snapshot, schema_id=schema_id))
