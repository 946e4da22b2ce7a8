"""Commits of several tables in one request: one transaction of MetaService, which takes place whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.client import LakeTXError
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.iceberg.commits.appends import abandon, check_append, read_append
from worker.iceberg.commits.changes import hidden_rows
from worker.iceberg.commits.requests import Wanted, refused
from worker.iceberg.commits.requirements import UnmetError, is_moved
from worker.iceberg.commits.transactions import TablePart, UnfinishedError, commit_all, own_ids, took_place, unused_id
from worker.iceberg.rest.catalog import Catalog
from worker.iceberg.rest.problems import RestError
from worker.iceberg.rest.writes import UNKNOWN, Writes, keyed, known_outcome

Named = tuple[str, str, Wanted]  # a namespace, a table in it, and its commit


class Transactions:
    """What one caller changes in several tables."""

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
        for _, name, wanted in changes:
            check(name, wanted)
        tables = [self._catalog.view(namespace, name) for namespace, name, _ in changes]
        if len({one.table_id for one in tables}) < len(tables):
            raise InputError("ICEBERG_REQUEST", "a transaction has one commit for each table: put its updates together")
        pairs = list(zip(tables, [wanted for _, _, wanted in changes], strict=True))
        rows = [read_append(one.folder, one.table_id, wanted.snapshots) for one, wanted in pairs if wanted.snapshots]
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

    def _decide(self, pairs: Sequence[tuple[TableView, Wanted]], txn_id: str) -> None:
        parts = [found for table, wanted in pairs if not (found := self._part(table, wanted)).does_nothing]
        if parts:
            commit_all(self._client, txn_id, parts)

    def _part(self, table: TableView, wanted: Wanted) -> TablePart:
        if table.meta.primary_key and wanted.snapshots:
            raise refused(keyed(table.name))
        schemas = self._catalog.schemas(table)
        rows = read_append(table.folder, table.table_id, wanted.snapshots) if wanted.snapshots else None
        alteration, since = self._writes.judged(table, schemas, wanted, rows)
        if rows is None:
            return TablePart(table, schemas, since, alteration=alteration if alteration.ByteSize() else None)
        if alteration.ByteSize():
            raise refused(
                f"the commit of {table.name} changes rows, and columns or properties: in a transaction over several "
                "tables it does one of them"
            )
        if wanted.appends:
            check_append(table.meta, schemas, rows)
            return TablePart(table, schemas, since, rows)
        hidden = hidden_rows(table, rows.places, rows.changes, self._catalog.shown_files(table))
        return TablePart(table, schemas, since, rows, hidden)

    def _abandon(self, pairs: Sequence[tuple[TableView, Wanted]]) -> None:
        for table, wanted in pairs:
            if wanted.snapshots:
                abandon(self._client, table.folder, table.table_id, wanted.snapshots)


def check(name: str, wanted: Wanted) -> None:
    """Refuses what a transaction over several tables can't do."""
    if wanted.is_new:
        raise refused(f"{name} can't be made in a transaction over several tables: create it first")
    if wanted.replaces:
        raise refused(f"{name} can't be replaced in a transaction over several tables: replace it by itself")
    if wanted.refusal is not None:
        raise wanted.refusal
