"""Commits of several tables in one request: one transaction of MetaService, which commits all of them or none."""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.client import LakeTXError
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.iceberg.commits.appends import abandon, check_append, read_append
from worker.iceberg.commits.changes import hidden_rows
from worker.iceberg.commits.requests import CommitRequest, refused
from worker.iceberg.commits.requirements import UnmetError, is_moved
from worker.iceberg.commits.transactions import TablePart, UnfinishedError, commit_all, own_ids, took_place, unused_id
from worker.iceberg.rest.catalog import Catalog
from worker.iceberg.rest.problems import RestError
from worker.iceberg.rest.writes import UNKNOWN, Writes, keyed, known_outcome

Named = tuple[str, str, CommitRequest]  # a namespace, a table in it, and its commit


class Transactions:
    """Commits one caller's changes of several tables."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._client = catalog.lake.client
        self._writes = Writes(catalog)

    def commit(self, changes: Sequence[Named]) -> None:
        if len(changes) == 1:
            self._writes.commit(*changes[0])
        elif changes:
            known_outcome(lambda: self._commit(changes))

    def _commit(self, changes: Sequence[Named]) -> None:
        for _, name, request in changes:
            check(name, request)
        tables = [self._catalog.view(namespace, name) for namespace, name, _ in changes]
        if len({table.table_id for table in tables}) < len(tables):
            raise InputError("ICEBERG_REQUEST", "a transaction has one commit for each table: put its updates together")
        pairs = list(zip(tables, [request for _, _, request in changes], strict=True))
        rows = [
            read_append(table.folder, table.table_id, request.snapshots)
            for table, request in pairs
            if request.snapshots
        ]
        try:
            txn_id = unused_id(self._client, own_ids(rows))
        except UnfinishedError as error:
            raise RestError(500, UNKNOWN, str(error)) from error
        if txn_id is None:
            return
        try:
            self._decide(pairs, txn_id)
        except (LakeTXError, InputError, UnmetError) as error:
            if took_place(self._client, txn_id):
                return
            if is_moved(error):
                raise UnmetError(f"a table of the transaction changed: {error}", moved=True) from error
            if not isinstance(error, UnmetError):
                self._abandon(pairs)
            raise
        self._abandon(pairs)  # the files have places in the folder of the transaction

    def _decide(self, pairs: Sequence[tuple[TableView, CommitRequest]], txn_id: str) -> None:
        parts = [part for table, request in pairs if not (part := self._part(table, request)).does_nothing]
        if parts:
            commit_all(self._client, txn_id, parts)

    def _part(self, table: TableView, request: CommitRequest) -> TablePart:
        if table.meta.primary_key and request.snapshots:
            raise refused(keyed(table.name))
        schemas = self._catalog.schemas(table)
        rows = read_append(table.folder, table.table_id, request.snapshots) if request.snapshots else None
        alteration, since = self._writes.judged(table, schemas, request, rows)
        if rows is None:
            return TablePart(table, schemas, since, alteration=alteration if alteration.ByteSize() else None)
        if alteration.ByteSize():
            raise refused(
                f"the commit of {table.name} changes rows, and columns or properties: in a transaction over several "
                "tables it does one of them"
            )
        if request.appends:
            check_append(table.meta, schemas, rows)
            return TablePart(table, schemas, since, rows)
        hidden = hidden_rows(table, rows.places, rows.changes, self._catalog.shown_files(table))
        return TablePart(table, schemas, since, rows, hidden)

    def _abandon(self, pairs: Sequence[tuple[TableView, CommitRequest]]) -> None:
        for table, request in pairs:
            if request.snapshots:
                abandon(self._client, table.folder, table.table_id, request.snapshots)


def check(name: str, request: CommitRequest) -> None:
    """Refuse what a transaction over several tables can't do."""
    if request.is_new:
        raise refused(f"{name} can't be made in a transaction over several tables: create it first")
    if request.replaces:
        raise refused(f"{name} can't be replaced in a transaction over several tables: replace it by itself")
    if request.refusal is not None:
        raise request.refusal
