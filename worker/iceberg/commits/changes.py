"""Deletes, overwrites and alterations of Iceberg's clients: rows that go are hidden by delete sets, files added.

A client read the snapshot that it began at, which has to be the newest one, and whose rows the table must have when the
commit is decided. Otherwise the transaction is judged as any DELETE or MERGE that read the whole table.
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


def change(table: TableView, schemas: Schemas, wanted: Append, shown: Sequence[ShownFile]) -> int:
    """Commits; returns the version. `shown`: the files of the view's version."""
    hidden = hidden_rows(table, wanted.places, wanted.changes, shown)
    if not hidden and not wanted.added:
        return int(table.meta.head_version)

    def commit(txn_id: str, files: Sequence[common_pb2.DataFile]) -> int:
        return _commit(table, wanted, hidden, txn_id, files)

    ids: dict[PartitionKey, BitMap64] = defaultdict(BitMap64)
    for file, found in hidden:
        ids[partition_key(file.partition)] |= found
    return placed(table.client, table.meta, schemas, wanted, commit, ids)


def _commit(table: TableView, wanted: Append, hidden: Hidden, txn_id: str, files: Sequence[common_pb2.DataFile]) -> int:
    operation = common_pb2.OPERATION_MERGE if files else common_pb2.OPERATION_DELETE
    read = table.meta.head_version
    since = read if wanted.since is None else min(read, wanted.since)
    intent = wire.TableIntent(table_id=table.table_id, operation=operation, read_version=read)
    try:
        with table.client.begin([intent], txn_id=txn_id, properties=wanted.properties) as txn:
            txn.register(table.table_id, files, delete_sets(table.folder, txn_id, hidden))
            change = common_pb2.Change(table_id=table.table_id, reads=[common_pb2.Read()], unchanged_since=since)
            committed = txn.commit([change])
    except ConflictError as lost:
        raise explained(lost, table.name, NEXT_STEP) from lost
    return committed.tables[0].version


# -- rows --------------------------------------------------------------------------------------------------------------


def hidden_rows(table: TableView, places: Places, changes: Changes, shown: Sequence[ShownFile]) -> Hidden:
    """What the commit hides of the files that are shown. Refuses what does not follow from them."""
    known = {one.path: one for one in shown}
    removed = [_known(known, uri) for uri in changes.removed]
    _check_totals(table, changes, shown, removed)
    found = _positions(places, changes) | {one.path: _all(one.file.rows) for one in removed}
    hidden = []
    for uri, positions in found.items():
        one = _known(known, uri)
        if positions.max() >= one.file.rows:
            raise InputError(
                "ICEBERG_FILE", f"{uri} has {one.file.rows} rows, and its row {positions.max()} is deleted"
            )
        if more := positions - one.hidden:
            hidden.append((_touched(table, places, one), row_ids_at(_path(table, places, one), one.file, more)))
    for uri in changes.unhides - changes.removed:
        if uri in known and known[uri].hidden - found.get(uri, BitMap64()):
            raise InputError("ICEBERG_FILE", f"the snapshot shows rows of {uri} again that were deleted")
    return hidden


def _all(rows: int) -> BitMap64:
    found = BitMap64()
    found.add_range(0, rows)
    return found


def _check_totals(table: TableView, changes: Changes, shown: Sequence[ShownFile], removed: Sequence[ShownFile]) -> None:
    """A snapshot has all the files of the one before but those that it says it removed."""
    files = len(shown) - len(removed) + len(changes.added)
    rows = sum(one.file.rows for one in shown) - sum(one.file.rows for one in removed)
    rows += sum(one.rows for one in changes.added.values())
    if changes.totals is not None and changes.totals != (files, rows):
        raise InputError(
            "ICEBERG_FILE",
            "the snapshot has {} files with {} rows; ".format(*changes.totals)
            + f"by what it adds to {table.name} and removes from it, there should be {files} files with {rows} rows",
        )


def _known(known: Mapping[str, ShownFile], uri: str) -> ShownFile:
    found = known.get(uri)
    if found is None:
        raise InputError("ICEBERG_FILE", f"{uri} is no file of the newest snapshot: load the table again")
    return found


def _positions(places: Places, changes: Changes) -> dict[str, BitMap64]:
    """By data file."""
    found: dict[str, BitMap64] = defaultdict(BitMap64)
    for each in in_threads(lambda one: list(_read(places, one)), list(changes.hides)):
        for uri, positions in each:
            found[uri_of(uri)] |= positions
    return {uri: positions for uri, positions in found.items() if positions}


def _read(places: Places, one: DeleteFile) -> Any:
    try:
        with places.open(places.inside(one.uri)) as file:
            if one.vector is None:
                yield from read_positions(file)
                return
            offset, size = one.vector
            file.seek(offset)
            yield one.data_file, _vector(file.read(size), one.uri)
    except FileNotFoundError as error:
        raise InputError("ICEBERG_FILE", f"{one.uri} is not there") from error
    except InputError:
        raise
    except (OSError, ValueError, KeyError) as error:
        raise InputError("ICEBERG_FILE", f"{one.uri} has no positions of rows: {error}") from error


def _vector(blob: bytes, uri: str) -> BitMap64:
    try:
        return read_vector(blob, uri)
    except InputError as error:
        raise InputError("ICEBERG_FILE", f"{uri} has no whole deletion vector where its manifest says") from error


def _path(table: TableView, places: Places, one: ShownFile) -> str:
    return table.path(one.file.path) if one.file.external else f"{table.folder}/{places.inside(one.path)}"


def _touched(table: TableView, places: Places, one: ShownFile) -> common_pb2.DataFile:
    """The file; of one that was written for inlined rows, which no commit has, the partition alone."""
    if one.file.external or not places.inside(one.path).startswith(f"{folder_of(table.meta)}/"):
        return one.file
    return common_pb2.DataFile(partition=one.file.partition)


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
