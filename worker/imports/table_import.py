"""An import: a table here is made, or brought to, what its source shows. Files stay where they are.

A run is one commit, and a second one where files come with hidden rows: a delete set hides rows of older files only.
A new table has a hidden name until its last commit, so nobody sees rows that are deleted at the source. A run that was
cut off is made good by the next one: what it does follows from what the table has, not from what was done before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from metaservice.client import CommitOutcomeUnknownError, ConflictError, NotFoundError, Transaction
from metaservice.shared.column_types import Field, type_text
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from worker.base.errors import InputError, lost_race
from worker.base.values import FLOATS
from worker.commit.stages import Stage
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView, write_rules
from worker.files.delete_sets import delete_sets
from worker.files.external_paths import check_outside
from worker.files.footers import STATS_COLUMNS
from worker.imports.facts import Bounds, ColumnKey, Columns, SourceFile, SourceSchema, SourceTable, key_of
from worker.imports.planning import Hide, ImportPlan, plan_import
from worker.imports.schema_evolution import columns_changes
from worker.imports.tables import (
    MARK,
    PREFIX,
    SCHEMAS,
    SNAPSHOT,
    check_table,
    check_unchanged,
    columns_of,
    ids_texts,
    known_files,
    properties_of,
    row_ids,
    schema_versions,
    schemas_text,
)

PROFILE: Final = "delta_write_serializable"  # its changes add and remove files in one commit
OWN: Final = {"compaction.enabled": "false"}  # a compaction here would write anew what the source keeps
ALL: Final = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))
MESSAGE_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Imported:
    """What a run did."""

    table: str
    version: int
    snapshot: str
    files_added: int = 0
    files_removed: int = 0
    rows_added: int = 0
    rows_hidden: int = 0
    created: bool = False
    changed: bool = False


def import_table(
    lake: Connection, source: SourceTable, name: str, *, message: str = "", dry_run: bool = False
) -> Imported:
    """Import the files and columns that the source has and the table lacks."""
    check_outside(lake.client, (file.path for file in source.files))
    commit_message = message or f"import of {source.location} at {source.snapshot}"[:MESSAGE_CHARS_MAX]
    try:
        table = TableView(lake, lake.client.get_table(name))
    except NotFoundError:
        return _created(lake, source, name, commit_message, dry_run=dry_run)
    check_table(table.meta, source)
    if not write_rules(table.meta).takes_custom:
        raise InputError(
            "IMPORT_CHANGED", f"{table.name} has the profile {table.meta.profile}: an import needs {PROFILE}"
        )
    return _Run(table, source, commit_message).carry_on(dry_run=dry_run)


# -- a new table -------------------------------------------------------------------------------------------------------


def _created(lake: Connection, source: SourceTable, name: str, message: str, *, dry_run: bool) -> Imported:
    namespace, dot, _ = name.partition(".")
    first = source.schemas[0]
    new_table = catalog_pb2.Table(
        name=name,
        columns=[_wire(column) for column in first.columns],
        partition_columns=source.partition_columns,
        properties={**OWN, **properties_of(source)},
        profile=PROFILE,
        comment=source.comment,
    )
    if dry_run:
        plan = plan_import({}, source.files)
        return _answer(name, -1, source, plan, created=True)
    if dot:
        lake.client.create_namespace(namespace, if_not_exists=True)
    lake.mark_warehouse()
    new_table.name = f"{namespace}{dot}_new_{hashlib.blake2b(name.lower().encode(), digest_size=16).hexdigest()}"
    _drop(lake, new_table.name)  # of a run that was cut off
    made = lake.client.create_table(new_table)
    run = _Run(TableView(lake, made), source, message)
    try:
        return run.bring_up(name, {first.schema_id: made.schema_version})
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        _drop(lake, new_table.name)
        raise


def _drop(lake: Connection, name: str) -> None:
    with suppress(NotFoundError):
        lake.client.drop_table(lake.client.get_table(name).table_id)


def _wire(column: Field) -> catalog_pb2.Column:
    return catalog_pb2.Column(
        name=column.name, type=type_text(column.kind), nullable=column.nullable, comment=column.comment
    )


# -- a run -------------------------------------------------------------------------------------------------------------


class _Run:
    """One run of an import into a table."""

    def __init__(self, table: TableView, source: SourceTable, message: str) -> None:
        self._table = table
        self._source = source
        self._message = message

    def bring_up(self, name: str, versions: Mapping[int, int]) -> Imported:
        """Fill a new table, and give it its name."""
        versions = self._evolve(self._source.schemas[0].columns, dict(versions), 1)
        plan = plan_import({}, self._source.files)
        version = self._commit(plan, versions, name)
        return _answer(name, version, self._source, plan, created=True)

    def carry_on(self, *, dry_run: bool) -> Imported:
        """Import what the source got since the last run."""
        meta, source = self._table.meta, self._source
        plan = self._plan()
        versions = schema_versions(meta.properties)
        before = columns_of(meta, source)
        if dry_run:
            return _answer(meta.name, meta.head_version, source, plan)
        imported = [at for at, schema in enumerate(source.schemas) if schema.schema_id in versions]
        at = max(imported, default=-1) + 1
        versions = self._evolve(before, versions, min(at, len(source.schemas) - 1))
        if self._table.meta is not meta:  # an ALTER lies between
            plan = self._plan()
        version = self._commit(plan, versions, "")
        return _answer(meta.name, version, source, plan, changed=version != meta.head_version)

    def _plan(self) -> ImportPlan:
        version = self._table.meta.head_version
        check_unchanged(self._table, version)
        return plan_import(known_files(self._table, version), self._source.files)

    def _evolve(self, before: Columns, versions: dict[int, int], at: int) -> dict[int, int]:
        """Change the columns to the source's, through each of its schemas in turn."""
        for schema in self._source.schemas[at:]:
            if changes := columns_changes(before, schema.columns):
                self._alter(changes, versions, schema)
            versions[schema.schema_id] = self._table.meta.schema_version
            before = schema.columns
        return versions

    def _alter(
        self, changes: Sequence[common_pb2.SchemaChange], versions: Mapping[int, int], schema: SourceSchema
    ) -> None:
        table = self._table
        text = schemas_text({**versions, schema.schema_id: table.meta.schema_version + 1})
        alteration = common_pb2.Alteration(
            schema_changes=changes, set_properties={SCHEMAS: text, **ids_texts(schema.columns)}
        )
        made = table.client.alter_table(table.table_id, alteration, commit_message=self._message).table
        self._table = TableView(table.lake, made)

    def _settings(self, versions: Mapping[int, int], name: str) -> common_pb2.Alteration | None:
        """The properties that this run changes, and the name of a new table; None: all is as it should be."""
        source, meta = self._source, self._table.meta
        new_properties = {**properties_of(source), **ids_texts(source.columns)}
        new_properties |= {SNAPSHOT: source.snapshot, SCHEMAS: schemas_text(versions)}
        properties = meta.properties
        alteration = common_pb2.Alteration(
            set_properties={key: value for key, value in new_properties.items() if properties.get(key) != value},
            remove_properties=[
                key for key in properties if key.startswith(_ours(source)) and key not in new_properties
            ],
        )
        if source.comment != meta.comment:
            alteration.comment = source.comment
        if name:
            alteration.name = name
        return alteration if alteration.ByteSize() or alteration.HasField("comment") else None

    # -- commits

    def _commit(self, plan: ImportPlan, versions: Mapping[int, int], name: str) -> int:
        """Commit the plan; the settings come with the last commit. Return that commit's version."""
        table, hides = self._table, plan.hide
        settings = self._settings(versions, name)
        files = self._files(plan.add, versions)
        if plan.is_empty:
            if settings is None:
                return table.meta.head_version
            return table.client.alter_table(table.table_id, settings, commit_message=self._message).version
        at = table.meta.head_version
        if plan.has_late:
            at = self._one_commit(at, files, plan.remove, hides, None)
            files_now = known_files(table, at)
            hides = [
                Hide(files_now[source_file.path].file, source_file.hidden)
                for source_file in plan.add
                if source_file.hidden
            ]
            return self._one_commit(at, [], [], hides, settings)
        return self._one_commit(at, files, plan.remove, hides, settings)

    def _one_commit(
        self,
        read_version: int,
        files: Sequence[common_pb2.DataFile],
        removes: Sequence[common_pb2.DataFile],
        hides: Sequence[Hide],
        alteration: common_pb2.Alteration | None,
    ) -> int:
        table = self._table
        intent = transaction_pb2.TableIntent(
            table_id=table.table_id,
            operation=common_pb2.OPERATION_CUSTOM,
            schema_version=table.meta.schema_version,
            read_version=read_version,
            reads=[ALL],
        )
        table.lake.mark_warehouse()
        refs = [common_pb2.FileRef(path=file.path, partition=file.partition) for file in removes]
        change = common_pb2.Change(
            table_id=table.table_id, reads=[ALL], removes=refs, alteration=alteration, changes_data=True
        )
        properties = {MARK: self._source.snapshot or "empty"}
        with table.client.begin([intent], commit_message=self._message, properties=properties) as txn:
            stage = Stage(table.meta, table.folder, txn.txn_id, read_version)
            try:
                hidden = [(hide.file, row_ids(hide.file, hide.positions)) for hide in hides]
                self._register(txn, files, delete_sets(stage.table_folder, stage.txn_id, hidden))
                committed = txn.commit([change])
            except CommitOutcomeUnknownError:
                raise
            except BaseException as error:
                with suppress(OSError):
                    stage.remove()
                if isinstance(error, ConflictError):
                    raise lost_race(error.conflict, table.name) from error
                raise
        return committed.tables[0].version

    def _register(
        self, txn: Transaction, files: Sequence[common_pb2.DataFile], sets: Sequence[common_pb2.DeleteSet]
    ) -> None:
        if files or sets:
            txn.register(self._table.table_id, files, sets)

    # -- entries

    def _files(self, files: Sequence[SourceFile], versions: Mapping[int, int]) -> list[common_pb2.DataFile]:
        schemas = [0] * len(files)
        if self._source.schemas_of is not None:
            schema_ids = self._source.schemas_of(files, list(versions))
            schemas = [versions[schema_id] for schema_id in schema_ids]
        table_columns = {column.name: column for column in self._table.meta.columns}
        columns = {key_of(column): table_columns[column.name] for column in self._source.columns[:STATS_COLUMNS]}
        return [self._entry(file, schema, columns) for file, schema in zip(files, schemas, strict=True)]

    def _entry(
        self, source_file: SourceFile, schema: int, columns: Mapping[ColumnKey, catalog_pb2.Column]
    ) -> common_pb2.DataFile:
        meta = self._table.meta
        entry = common_pb2.DataFile(
            path=source_file.path, rows=source_file.rows, bytes=source_file.bytes, schema_version=schema, external=True
        )
        for name in meta.partition_columns:
            if name not in source_file.partition:
                raise InputError(
                    "IMPORT_SCHEMA",
                    f"{meta.name} is partitioned by {name}, and {source_file.path} has no value for it: the source's "
                    "partitioning changed; import it under another name",
                )
            entry.partition.values.add(column=name, value=source_file.partition[name])
        for key, bounds in source_file.bounds.items():
            if key in columns:
                entry.stats.append(_stats(columns[key], bounds))
        return entry


def _ours(source: SourceTable) -> tuple[str, str]:
    """Return the prefixes of the properties that an import maintains."""
    return PREFIX, f"user.{source.format}."


def _stats(column: catalog_pb2.Column, bounds: Bounds) -> common_pb2.ColumnStats:
    """Return a column's statistics. Bounds of floats are left out: they don't cover NaN."""
    stats = common_pb2.ColumnStats(column_id=column.column_id, nulls=bounds.nulls, truncated=bounds.truncated)
    if bounds.low is not None and bounds.high is not None and column.type not in FLOATS:
        stats.min.CopyFrom(bounds.low)
        stats.max.CopyFrom(bounds.high)
    return stats


def _answer(
    name: str, version: int, source: SourceTable, plan: ImportPlan, *, created: bool = False, changed: bool = False
) -> Imported:
    hidden = sum(len(file.hidden) for file in plan.add) + sum(len(file.positions) for file in plan.hide)
    return Imported(
        table=name,
        version=version,
        snapshot=source.snapshot,
        files_added=len(plan.add),
        files_removed=len(plan.remove),
        rows_added=sum(file.rows for file in plan.add),
        rows_hidden=hidden,
        created=created,
        changed=changed or created,
    )
