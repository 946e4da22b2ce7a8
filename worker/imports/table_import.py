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
    """Takes in what the source shows and the table lacks."""
    check_outside(lake.client, (one.path for one in source.files))
    said = message or f"import of {source.location} at {source.snapshot}"[:MESSAGE_CHARS_MAX]
    try:
        table = TableView(lake, lake.client.get_table(name))
    except NotFoundError:
        return _created(lake, source, name, said, dry_run=dry_run)
    check_table(table.meta, source)
    if not write_rules(table.meta).takes_custom:
        raise InputError(
            "IMPORT_CHANGED", f"{table.name} has the profile {table.meta.profile}: an import needs {PROFILE}"
        )
    return _Run(table, source, said).carry_on(dry_run=dry_run)


# -- a new table -------------------------------------------------------------------------------------------------------


def _created(lake: Connection, source: SourceTable, name: str, message: str, *, dry_run: bool) -> Imported:
    namespace, dot, _ = name.partition(".")
    first = source.schemas[0]
    wanted = catalog_pb2.Table(
        name=name,
        columns=[_wire(one) for one in first.columns],
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
    wanted.name = f"{namespace}{dot}_new_{hashlib.blake2b(name.lower().encode(), digest_size=16).hexdigest()}"
    _drop(lake, wanted.name)  # of a run that was cut off
    made = lake.client.create_table(wanted)
    run = _Run(TableView(lake, made), source, message)
    try:
        return run.bring_up(name, {first.schema_id: made.schema_version})
    except CommitOutcomeUnknownError:
        raise
    except BaseException:
        _drop(lake, wanted.name)
        raise


def _drop(lake: Connection, name: str) -> None:
    with suppress(NotFoundError):
        lake.client.drop_table(lake.client.get_table(name).table_id)


def _wire(one: Field) -> catalog_pb2.Column:
    return catalog_pb2.Column(name=one.name, type=type_text(one.kind), nullable=one.nullable, comment=one.comment)


# -- a run -------------------------------------------------------------------------------------------------------------


class _Run:
    """One run of an import into a table."""

    def __init__(self, table: TableView, source: SourceTable, message: str) -> None:
        self._table = table
        self._source = source
        self._message = message

    def bring_up(self, name: str, versions: Mapping[int, int]) -> Imported:
        """Fills a new table, and gives it its name."""
        versions = self._evolve(self._source.schemas[0].columns, dict(versions), 1)
        plan = plan_import({}, self._source.files)
        version = self._commit(plan, versions, name)
        return _answer(name, version, self._source, plan, created=True)

    def carry_on(self, *, dry_run: bool) -> Imported:
        """Takes in what came since."""
        meta, source = self._table.meta, self._source
        plan = self._plan()
        versions = schema_versions(meta.properties)
        before = columns_of(meta, source)
        if dry_run:
            return _answer(meta.name, meta.head_version, source, plan)
        known = [at for at, one in enumerate(source.schemas) if one.schema_id in versions]
        at = max(known, default=-1) + 1
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
        """Brings the columns to the source's, one of its schemas after the other."""
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
        wanted = {**properties_of(source), **ids_texts(source.columns)}
        wanted |= {SNAPSHOT: source.snapshot, SCHEMAS: schemas_text(versions)}
        known = meta.properties
        found = common_pb2.Alteration(
            set_properties={one: value for one, value in wanted.items() if known.get(one) != value},
            remove_properties=[one for one in known if one.startswith(_ours(source)) and one not in wanted],
        )
        if source.comment != meta.comment:
            found.comment = source.comment
        if name:
            found.name = name
        return found if found.ByteSize() or found.HasField("comment") else None

    # -- commits

    def _commit(self, plan: ImportPlan, versions: Mapping[int, int], name: str) -> int:
        """The settings come with the last commit. Answers with the version that has all."""
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
            known = known_files(table, at)
            hides = [Hide(known[one.path].file, one.hidden) for one in plan.add if one.hidden]
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
        refs = [common_pb2.FileRef(path=one.path, partition=one.partition) for one in removes]
        change = common_pb2.Change(
            table_id=table.table_id, reads=[ALL], removes=refs, alteration=alteration, changes_data=True
        )
        properties = {MARK: self._source.snapshot or "empty"}
        with table.client.begin([intent], commit_message=self._message, properties=properties) as txn:
            stage = Stage(table.meta, table.folder, txn.txn_id, read_version)
            try:
                hidden = [(one.file, row_ids(one.file, one.positions)) for one in hides]
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
            known = self._source.schemas_of(files, list(versions))
            schemas = [versions[one] for one in known]
        here = {one.name: one for one in self._table.meta.columns}
        columns = {key_of(one): here[one.name] for one in self._source.columns[:STATS_COLUMNS]}
        return [self._entry(one, schema, columns) for one, schema in zip(files, schemas, strict=True)]

    def _entry(
        self, one: SourceFile, schema: int, columns: Mapping[ColumnKey, catalog_pb2.Column]
    ) -> common_pb2.DataFile:
        meta = self._table.meta
        entry = common_pb2.DataFile(path=one.path, rows=one.rows, bytes=one.bytes, schema_version=schema, external=True)
        for name in meta.partition_columns:
            if name not in one.partition:
                raise InputError(
                    "IMPORT_SCHEMA",
                    f"{meta.name} is partitioned by {name}, and {one.path} has no value for it: the source's "
                    "partitioning changed; import it under another name",
                )
            entry.partition.values.add(column=name, value=one.partition[name])
        for key, bounds in one.bounds.items():
            if key in columns:
                entry.stats.append(_stats(columns[key], bounds))
        return entry


def _ours(source: SourceTable) -> tuple[str, str]:
    """What the names of properties begin with that an import keeps."""
    return PREFIX, f"user.{source.format}."


def _stats(column: catalog_pb2.Column, bounds: Bounds) -> common_pb2.ColumnStats:
    """Bounds of floats say nothing of NaN: they are left out."""
    found = common_pb2.ColumnStats(column_id=column.column_id, nulls=bounds.nulls, truncated=bounds.truncated)
    if bounds.low is not None and bounds.high is not None and column.type not in FLOATS:
        found.min.CopyFrom(bounds.low)
        found.max.CopyFrom(bounds.high)
    return found


def _answer(
    name: str, version: int, source: SourceTable, plan: ImportPlan, *, created: bool = False, changed: bool = False
) -> Imported:
    hidden = sum(len(one.hidden) for one in plan.add) + sum(len(one.positions) for one in plan.hide)
    return Imported(
        table=name,
        version=version,
        snapshot=source.snapshot,
        files_added=len(plan.add),
        files_removed=len(plan.remove),
        rows_added=sum(one.rows for one in plan.add),
        rows_hidden=hidden,
        created=created,
        changed=changed or created,
    )
