"""Deletes, overwrites and alterations of Iceberg's clients: delete sets hide removed rows, files are added.

A client read the snapshot that it began at: it must be the newest one, and the table must still have its rows when the
commit is decided. Other rules are those of a DELETE or MERGE that read the whole table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyroaring import BitMap64

from metaservice.client import ConflictError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from worker.base.errors import InputError, NextSteps
from worker.base.values import PartitionKey, partition_key
from worker.connection.table_view import TableView
from worker.files.delete_sets import delete_sets
from worker.files.deletion_vectors import read_positions, read_vector
from worker.files.footers import in_threads
from worker.iceberg.commits.appends import Append, explained, placed
from worker.iceberg.commits.data_files import Schemas
from worker.iceberg.commits.manifests import Changes, DeleteFile
from worker.iceberg.commits.places import Places
from worker.iceberg.deleted_rows import row_ids_at
from worker.iceberg.locations import uri_of
from worker.iceberg.metadata.facts import ShownFile
from worker.services.generated_files import folder_of

Hidden = Sequence[tuple[common_pb2.DataFile, BitMap64]]  # files, and the ids of their rows that go
AGAIN: Final = "load the table and make the change again"
NEXT_STEP: Final[NextSteps] = dict.fromkeys(common_pb2.Advice.values(), AGAIN)


def change(table: TableView, schemas: Schemas, rows: Append, shown: Sequence[ShownFile]) -> int:
    """Commit a change and return its version. `shown` are the files of the version that the client read."""
    hidden = hidden_rows(table, rows.places, rows.changes, shown)
    if not hidden and not rows.added:
        return int(table.meta.head_version)

    def commit(txn_id: str, files: Sequence[common_pb2.DataFile]) -> int:
        return _commit(table, rows, hidden, txn_id, files)

    ids: dict[PartitionKey, BitMap64] = defaultdict(BitMap64)
    for file, row_ids in hidden:
        ids[partition_key(file.partition)] |= row_ids
    return placed(table.client, table.meta, schemas, rows, commit, ids)


def _commit(table: TableView, rows: Append, hidden: Hidden, txn_id: str, files: Sequence[common_pb2.DataFile]) -> int:
    operation = common_pb2.OPERATION_MERGE if files else common_pb2.OPERATION_DELETE
    read = table.meta.head_version
    since = read if rows.since is None else min(read, rows.since)
    intent = wire.TableIntent(table_id=table.table_id, operation=operation, read_version=read)
    try:
        with table.client.begin([intent], txn_id=txn_id, properties=rows.properties) as txn:
            txn.register(table.table_id, files, delete_sets(table.folder, txn_id, hidden))
            change = common_pb2.Change(table_id=table.table_id, reads=[common_pb2.Read()], unchanged_since=since)
            committed = txn.commit([change])
    except ConflictError as lost:
        raise explained(lost, table.name, NEXT_STEP) from lost
    return committed.tables[0].version


# -- rows --------------------------------------------------------------------------------------------------------------


def hidden_rows(table: TableView, places: Places, changes: Changes, shown: Sequence[ShownFile]) -> Hidden:
    """Return the rows that the commit hides. Refuse a commit that contradicts the shown files."""
    files_by_uri = {file.path: file for file in shown}
    removed = [_current_file(files_by_uri, uri) for uri in changes.removed]
    _check_totals(table, changes, shown, removed)
    positions_by_uri = _positions(places, changes) | {file.path: _all(file.file.rows) for file in removed}
    hidden = []
    for uri, positions in positions_by_uri.items():
        file = _current_file(files_by_uri, uri)
        if positions.max() >= file.file.rows:
            raise InputError(
                "ICEBERG_FILE", f"{uri} has {file.file.rows} rows, and its row {positions.max()} is deleted"
            )
        if more := positions - file.hidden:
            hidden.append((_touched(table, places, file), row_ids_at(_path(table, places, file), file.file, more)))
    for uri in changes.unhides - changes.removed:
        if uri in files_by_uri and files_by_uri[uri].hidden - positions_by_uri.get(uri, BitMap64()):
            raise InputError("ICEBERG_FILE", f"the snapshot shows rows of {uri} again that were deleted")
    return hidden


def _all(rows: int) -> BitMap64:
    positions = BitMap64()
    positions.add_range(0, rows)
    return positions


def _check_totals(table: TableView, changes: Changes, shown: Sequence[ShownFile], removed: Sequence[ShownFile]) -> None:
    """Check the snapshot's totals: it has the files of the previous one, without the removed, with the added ones."""
    files = len(shown) - len(removed) + len(changes.added)
    rows = sum(file.file.rows for file in shown) - sum(file.file.rows for file in removed)
    rows += sum(file.rows for file in changes.added.values())
    if changes.totals is not None and changes.totals != (files, rows):
        raise InputError(
            "ICEBERG_FILE",
            "the snapshot has {} files with {} rows; ".format(*changes.totals)
            + f"by what it adds to {table.name} and removes from it, there should be {files} files with {rows} rows",
        )


def _current_file(files_by_uri: Mapping[str, ShownFile], uri: str) -> ShownFile:
    file = files_by_uri.get(uri)
    if file is None:
        raise InputError("ICEBERG_FILE", f"{uri} is no file of the newest snapshot: load the table again")
    return file


def _positions(places: Places, changes: Changes) -> dict[str, BitMap64]:
    """Return the positions of hidden rows by the URI of their data file."""
    by_uri: dict[str, BitMap64] = defaultdict(BitMap64)
    for listed in in_threads(lambda delete_file: list(_read(places, delete_file)), list(changes.hides)):
        for uri, positions in listed:
            by_uri[uri_of(uri)] |= positions
    return {uri: positions for uri, positions in by_uri.items() if positions}


def _read(places: Places, delete_file: DeleteFile) -> Any:
    try:
        with places.open(places.inside(delete_file.uri)) as file:
            if delete_file.vector is None:
                yield from read_positions(file)
                return
            offset, size = delete_file.vector
            file.seek(offset)
            yield delete_file.data_file, _vector(file.read(size), delete_file.uri)
    except FileNotFoundError as error:
        raise InputError("ICEBERG_FILE", f"{delete_file.uri} is not there") from error
    except InputError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise InputError("ICEBERG_FILE", f"{delete_file.uri} has no positions of rows: {error}") from error


def _vector(blob: bytes, uri: str) -> BitMap64:
    try:
        return read_vector(blob, uri)
    except InputError as error:
        raise InputError("ICEBERG_FILE", f"{uri} has no whole deletion vector where its manifest says") from error


def _path(table: TableView, places: Places, file: ShownFile) -> str:
    return table.path(file.file.path) if file.file.external else f"{table.folder}/{places.inside(file.path)}"


def _touched(table: TableView, places: Places, file: ShownFile) -> common_pb2.DataFile:
    """Return the data file. A file generated for inlined rows is in no commit: return its partition alone."""
    if file.file.external or not places.inside(file.path).startswith(f"{folder_of(table.meta)}/"):
        return file.file
    return common_pb2.DataFile(partition=file.file.partition)


def alter(client: MetaClient, meta: catalog_pb2.Table, alteration: common_pb2.Alteration, since: int | None) -> None:
    """Change columns and properties, from the version at which the client's requirements were judged.

    Another change of the schema or settings since then is a conflict. `since`: the version whose rows the table must
    still have; None: any.
    """
    intent = wire.TableIntent(
        table_id=meta.table_id,
        operation=common_pb2.OPERATION_ALTER,
        schema_version=meta.schema_version,
        read_version=meta.head_version,
    )
    change = common_pb2.Change(table_id=meta.table_id, alteration=alteration)
    if since is not None:
        change.unchanged_since = since
    try:
        with client.begin([intent]) as txn:
            txn.commit([change])
    except ConflictError as lost:
        raise explained(lost, meta.name) from lost
