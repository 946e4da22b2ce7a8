"""Changes by Iceberg's clients: namespaces, tables, and commits. MetaService decides all of them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from metaservice.client import (
    CommitOutcomeUnknownError,
    ExhaustedError,
    GoneError,
    LakeTXError,
    MetaServiceError,
    NotFoundError,
    UnavailableError,
    uuid7,
)
from metaservice.shared.fork_files import FOLDER as FORKS
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.files.storage import make_folder, storage
from worker.iceberg.commits.appends import (
    Append,
    abandon,
    append,
    check_append,
    find_version,
    read_append,
    under_schema,
)
from worker.iceberg.commits.changes import alter, change
from worker.iceberg.commits.columns import added_columns, check_same
from worker.iceberg.commits.creates import check_table_id, create, create_with_rows, definition, give_up
from worker.iceberg.commits.properties import (
    COMMENT,
    PREFIX,
    check_format,
    kept_names,
    kept_properties,
    rebases_appends,
    repeats_appends,
    shown_properties,
)
from worker.iceberg.commits.replaces import new_definition, replace_table, schema_named, schema_of
from worker.iceberg.commits.requests import MAIN, CommitRequest, refused
from worker.iceberg.commits.requirements import TableState, UnmetError, check_base, check_requirements, is_moved
from worker.iceberg.locations import location_of, uri_of
from worker.iceberg.metadata.facts import METADATA, TableFacts, sequence_of, version_of
from worker.iceberg.metadata.partitions import FIRST_PARTITION_ID
from worker.iceberg.metadata.schemas import iceberg_schema, last_column_id
from worker.iceberg.metadata.table_metadata import empty_metadata
from worker.iceberg.rest.catalog import NO_NAMESPACE_NAME, Catalog, no_namespace
from worker.iceberg.rest.problems import NO_TABLE, RestError, cannot_rename, problem_of, taken
from worker.iceberg.rest.tables import Loaded, StagedTable, data_path
from worker.iceberg.rest.warehouses import AT
from worker.services.generated_files import FOLDER, REST, folder_of
from worker.services.staged_tables import StagedTables

COMMIT_FAILED: Final = "CommitFailedException"
UNKNOWN: Final = "CommitStateUnknownException"
NOT_A_NAMESPACE: Final = "the namespace default shows the tables that are in none, so it has no properties"
OWN_PLACE: Final = "a table lies in a folder of the warehouse that it gets: leave out the location"
Answer = TypeVar("Answer")
_log = logging.getLogger("laketx.iceberg")
ID: Final = "([0-9a-f-]{36})"
PLACE: Final = rf"/{ID}/(?:{FOLDER}|{FORKS}/{ID}/{REST})/{METADATA}/([0-9]+)-[0-9a-f]+\.metadata\.json"
ELSEWHERE: Final = (
    "a table is registered here by the metadata that this catalog showed last of it before it was dropped: "
    "`laketx import iceberg` takes in other tables with their files"
)


class Writes:
    """The changes of one caller, in one format."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lake = catalog.lake
        self._client = catalog.lake.client

    # -- namespaces

    def create_namespace(self, name: str, properties: Mapping[str, str]) -> dict[str, str]:
        kept = {f"{PREFIX}{key}": value for key, value in properties.items()}
        self._client.create_namespace(self._catalog.warehouse.named(name), properties=kept)
        return self._catalog.namespace(name)

    def alter_namespace(self, name: str, updates: Mapping[str, str], removals: Sequence[str]) -> dict[str, list[str]]:
        if both := sorted(set(updates) & set(removals)):
            raise RestError(422, "UnprocessableEntityException", f"{both[0]} is both set and removed: choose one")
        try:
            changed = self._client.alter_namespace(
                self._catalog.warehouse.named(name),
                set_properties={f"{PREFIX}{key}": value for key, value in updates.items()},
                remove_properties=[f"{PREFIX}{key}" for key in removals],
            )
        except NotFoundError as error:
            if name == NO_NAMESPACE_NAME:
                raise refused(NOT_A_NAMESPACE) from error
            raise no_namespace(error, name) from error
        removed = [key.removeprefix(PREFIX) for key in changed.removed]
        missing = [key for key in removals if key not in removed]
        return {"updated": list(updates), "removed": removed, "missing": missing}

    def drop_namespace(self, name: str) -> None:
        self._catalog.namespace(name)
        try:
            self._client.drop_namespace(self._catalog.warehouse.named(name))
        except MetaServiceError as error:
            if error.reason == "NAMESPACE_NOT_EMPTY":
                message = f"Namespace {name} is not empty: {error}"
                raise RestError(409, "NamespaceNotEmptyException", message) from error
            raise

    # -- tables

    def create_table(self, namespace: str, name: str, request: CommitRequest) -> tuple[TableView, Loaded]:
        check_format(request.properties, self._catalog.form)
        if request.location:
            raise refused(OWN_PLACE)
        table = definition(self.free_name(namespace, name), request)
        self._lake.mark_warehouse()
        self._client.create_table(table)
        return self._catalog.load(namespace, name)

    def stage_table(self, namespace: str, name: str, request: CommitRequest) -> StagedTable:
        """Return a table that a later commit creates. Its id and its folder are fixed now."""
        check_format(request.properties, self._catalog.form)
        if request.location:
            raise refused(OWN_PLACE)
        table_id = uuid7()
        would_be = self._client.create_table(
            definition(self.free_name(namespace, name), request), request_id=table_id, validate_only=True
        )
        self._lake.mark_warehouse()
        StagedTables(self._client, self._lake.warehouse).add(table_id, would_be.name)
        folder = f"{self._lake.warehouse}/{table_id}"
        files, path = storage(f"{folder}/{FOLDER}/{METADATA}")
        make_folder(files, path)  # as in a table that is there
        facts = TableFacts(would_be, location_of(f"{folder}/{FOLDER}").rstrip("/"), self._catalog.form)
        metadata = empty_metadata(facts, shown_properties(would_be.properties) | data_path(location_of(folder)))
        return StagedTable(table_id, would_be.name, json.dumps(metadata).encode())

    def drop_table(self, namespace: str, name: str) -> None:
        self._client.drop_table(self._catalog.view(namespace, name).table_id)

    def rename_table(self, source: tuple[str, str], target: tuple[str, str]) -> None:
        table = self._catalog.view(*source)
        try:
            self._client.rename_table(table.table_id, self.free_name(*target))
        except MetaServiceError as error:
            raise cannot_rename(error, ".".join(source), ".".join(target), NO_TABLE) from error

    def free_name(self, namespace: str, name: str) -> str:
        """Return the name of a new table. A table in `default` is in no namespace, unless `default` exists."""
        if "." in name:
            raise InputError("ICEBERG_WRITE", f"the name {name} has a dot, which separates a table from its namespace")
        if AT in name:
            raise InputError("ICEBERG_WRITE", f"the name {name} names a branch: use the warehouse of that branch")
        self._catalog.namespace(namespace)
        named = self._catalog.warehouse.named
        if namespace != NO_NAMESPACE_NAME:
            return named(f"{namespace}.{name}")
        try:
            return named(f"{self._client.get_namespace(named(namespace)).name}.{name}")
        except NotFoundError:
            return named(name)

    # -- commits

    def commit(self, namespace: str, name: str, request: CommitRequest) -> tuple[TableView, Loaded]:
        """Make all changes of a request, or none, and return the changed table."""
        self._check_format(request)
        if request.is_new:
            known_outcome(lambda: self._create(namespace, name, request))
            self._forget_staged(request.table_id)
        else:
            known_outcome(lambda: self._change(self._catalog.view(namespace, name), request))
        try:
            return self._catalog.load(namespace, name)
        except Exception as error:  # it is committed: no answer may say that it isn't
            _log.exception("%s.%s was committed, and can't be shown", namespace, name)
            raise RestError(500, UNKNOWN, f"the commit took place, and the table can't be shown: {error}") from error

    def _forget_staged(self, table_id: str) -> None:
        try:
            StagedTables(self._client, self._lake.warehouse).remove(table_id)
        except (LakeTXError, OSError):  # the purge finds that the table was made
            _log.warning("the note of the new table %s could not be removed", table_id, exc_info=True)

    def _check_format(self, request: CommitRequest) -> None:
        check_format(request.properties, self._catalog.form)
        if request.format > self._catalog.form:
            raise refused(
                f"the table is shown in format {self._catalog.form}: the warehouse v{request.format} shows all tables "
                f"in format {request.format}"
            )

    def _create(self, namespace: str, name: str, request: CommitRequest) -> None:
        table_id = check_table_id(request.table_id)
        folder = f"{self._lake.warehouse}/{table_id}"
        table = definition(self.free_name(namespace, name), request)
        if request.location and uri_of(request.location) != location_of(f"{folder}/{FOLDER}").rstrip("/"):
            raise refused(OWN_PLACE)
        if not request.snapshots:
            create(self._client, table, table_id)
            return
        try:
            if request.refusal is not None:
                raise request.refusal
            rows = read_append(folder, table_id, request.snapshots)
            if not rows.changes.is_append:  # Spark's CREATE OR REPLACE TABLE says that it overwrites
                raise refused("the first snapshot of a table adds files, and does nothing else")
        except InputError:
            if give_up(self._client, table, table_id, request.snapshots[-1]):
                return
            raise
        create_with_rows(self._client, table, rows)

    def _change(self, table: TableView, request: CommitRequest) -> None:
        rows = None
        try:
            if request.refusal is not None:
                raise request.refusal
            if table.meta.primary_key and request.snapshots:
                raise refused(keyed(table.name))
            if request.snapshots:
                rows = read_append(table.folder, table.table_id, request.snapshots)
            if request.replaces:
                self._replace(table, request, rows)
            else:
                self._apply(table, request, rows)
        except (UnmetError, InputError, MetaServiceError) as error:
            if isinstance(error, UnavailableError):
                raise
            if rows is not None and find_version(self._client, rows) is not None:
                return
            if is_moved(error):
                raise UnmetError(f"{table.name} changed: {error}", moved=True) from error
            comes_again = isinstance(error, ExhaustedError) or (isinstance(error, UnmetError) and error.moved)
            if request.snapshots and not comes_again:  # a client that tries again needs its files
                abandon(self._client, table.folder, table.table_id, request.snapshots)
            raise

    def _replace(self, table: TableView, request: CommitRequest, rows: Append | None) -> None:
        """Replace a table, whatever its rows: if two clients replace it at the same time, the last one wins."""
        if table.meta.primary_key:
            raise refused(keyed(table.name))
        if rows is not None:
            if not rows.changes.is_append:
                raise refused("the first snapshot of a replaced table adds files, and does nothing else")
            if find_version(self._client, rows) is not None:
                return
        schemas = self._catalog.schemas(table)
        now = iceberg_schema(schema_named(table.meta, schemas, request.schema_id))
        since = self._check(table.meta, schemas, request, is_there=False)
        replace_table(self._client, new_definition(self._client, table.meta, request, now), schemas, rows, since)

    def _apply(self, table: TableView, request: CommitRequest, rows: Append | None) -> None:
        meta, schemas = table.meta, self._catalog.schemas(table)
        alteration, since = self.judged(table, schemas, request, rows)
        if alteration.ByteSize() and not request.appends:
            raise refused("a commit that deletes rows changes neither the schema nor properties: make two commits")
        if alteration.ByteSize():
            meta = self._client.alter_table(meta.table_id, alteration, validate_only=True).table
            then = schema_of(meta)
            if request.schema is not None:
                check_same(iceberg_schema(then), request.schema)
            if rows is not None:
                check_append(meta, [*schemas, then], rows)
            alter(self._client, table.meta, alteration, since)
            meta = table.refreshed().meta
            schemas = list(self._client.list_schemas(table.table_id))
            if rows is not None and schema_of(meta).columns != then.columns:
                raise UnmetError(f"Requirement failed: current schema changed; load {meta.name} again")
        if rows is not None:
            rows = replace(rows, since=since)
            if request.schema is not None:
                rows = under_schema(rows, meta.schema_version)
            if request.appends:
                append(self._client, meta, schemas, rows)
            else:
                change(table, schemas, rows, self._catalog.shown_files(table))
                if rows.changes.hides:  # delete sets have taken their place
                    abandon(self._client, table.folder, table.table_id, request.snapshots)

    def judged(
        self, table: TableView, schemas: list[catalog_pb2.SchemaVersion], request: CommitRequest, rows: Append | None
    ) -> tuple[common_pb2.Alteration, int | None]:
        """Return the changes of columns and properties, and the version whose rows the table must still have.

        Raises UnmetError if the table doesn't meet the commit's requirements.
        """
        meta = table.meta
        now = iceberg_schema(schema_of(meta))
        try:
            alteration = self._alteration(meta, now, request)
        except InputError:
            self._check(
                meta, schemas, request, is_there=False
            )  # a table that changed is told first: to be loaded again
            raise
        is_there = request.schema is not None and not alteration.schema_changes
        since = self._check(meta, schemas, request, is_there=is_there)
        loaded = rows.loaded if rows is not None and request.appends_unchecked else None
        if since is not None and loaded is not None and not repeats_appends(meta.properties):
            since = min(since, loaded)
        return alteration, since

    def _alteration(
        self, meta: catalog_pb2.Table, now: Mapping[str, Any], request: CommitRequest
    ) -> common_pb2.Alteration:
        """Return the changes of columns and properties. They are empty if the table has them already."""
        alteration = common_pb2.Alteration()
        if request.schema is not None:
            alteration.schema_changes.extend(added_columns(now, request.schema))
            if not alteration.schema_changes:
                check_same(now, request.schema)
        kept = kept_properties(request.properties)
        alteration.set_properties.update({at: value for at, value in kept.items() if meta.properties.get(at) != value})
        alteration.remove_properties.extend(name for name in kept_names(request.removed) if name in meta.properties)
        comment = request.properties.get(COMMENT, "" if COMMENT in request.removed else meta.comment)
        if comment != meta.comment:
            alteration.comment = comment
        return alteration

    def _check(
        self,
        meta: catalog_pb2.Table,
        schemas: list[catalog_pb2.SchemaVersion],
        request: CommitRequest,
        *,
        is_there: bool,
    ) -> int | None:
        """Check the requirements. Return the version whose rows the table must still have.

        `is_there`: the table has the requested schema, as after the first half of a repeated commit.
        """
        state = TableState(
            meta.name,
            meta.table_id,
            sequence_of(meta.head_version),
            {tag.name: sequence_of(tag.version) for tag in self._client.list_tags(meta.table_id)}
            if any(requirement.get("ref", MAIN) != MAIN for requirement in request.requirements)
            else {},
            meta.schema_version,
            max(last_column_id(schemas), meta.last_column_id),
            FIRST_PARTITION_ID - 1 + len(meta.partition_columns),
        )
        about_schema = ("assert-current-schema-id", "assert-last-assigned-field-id")
        requirements = [
            requirement
            for requirement in request.requirements
            if not (is_there and requirement.get("type") in about_schema)
        ]
        rebases = bool(request.snapshots) and request.appends and rebases_appends(meta.properties)
        snapshot_id = check_requirements(state, requirements, rebases=rebases)
        if not request.appends and not request.replaces:
            check_base(state, request.snapshots[0].parent_id)
        if request.schema_id not in (None, meta.schema_version) and not request.replaces:
            raise refused(
                f"the schema {request.schema_id} can't become the current one: a commit adds the one that it sets"
            )
        if (request.specs or request.orders) and not request.replaces:
            raise refused("the partition spec and the sort order of a table can't be changed")
        place = location_of(f"{self._lake.warehouse}/{meta.folder_id or meta.table_id}/{folder_of(meta)}").rstrip("/")
        is_elsewhere = bool(request.location) and uri_of(request.location) != place
        if request.table_id not in ("", meta.table_id) or is_elsewhere:
            raise refused("the id and the place of a table can't be changed")
        return None if snapshot_id is None else version_of(snapshot_id)


def keyed(name: str) -> str:
    return f"{name} has a primary key: upsert its rows with LakeTX (SQL on Spark, or the Python API)"


def known_outcome(work: Callable[[], Answer]) -> Answer:
    """Run a commit. An error that clients read as a failure means that nothing was committed; doubts get their own.

    If the service doesn't answer, the outcome is unknown: the same commit may have been sent before, and committed.
    """
    try:
        return work()
    except (CommitOutcomeUnknownError, UnavailableError) as error:
        raise RestError(500, UNKNOWN, str(error)) from error
    except UnmetError as error:
        raise RestError(409, COMMIT_FAILED, str(error)) from error
    except (MetaServiceError, InputError, RestError) as error:
        raise problem_of(error) from error
    except LakeTXError as error:
        raise problem_of(error) from error
    except Exception as error:
        _log.exception("a commit ended with an error that was not foreseen")
        raise RestError(500, UNKNOWN, f"{type(error).__name__}: the server's log says more") from error


def register(catalog: Catalog, namespace: str, name: str, place: str) -> None:
    """Restore the dropped table that the metadata describes, under its old name."""
    catalog.warehouse.check_main("to register a table")
    client, whole = catalog.lake.client, Writes(catalog).free_name(namespace, name)
    for thing, look_up in (("Table", client.get_table), ("View", client.get_view)):
        try:
            look_up(whole)
        except NotFoundError:
            continue
        raise taken(thing, f"{namespace}.{name}", NO_TABLE)
    matched = re.fullmatch(re.escape(location_of(catalog.lake.warehouse)) + PLACE, uri_of(place))
    if matched is None:
        raise refused(ELSEWHERE)
    table_id, sequence = matched[2] or matched[1], int(matched[3])  # a clone's lies in the folder of another table
    dropped = next((table for table in client.find_dropped_tables(whole) if table.table_id == table_id), None)
    if dropped is None:
        raise refused(f"no table that was dropped as {whole} has that metadata; a table comes back under its own name")
    if sequence != sequence_of(dropped.head_version):
        raise refused(
            f"{whole} was changed after the snapshot {sequence}: register its last metadata, or bring it back with "
            "`laketx table undrop` and restore that version"
        )
    try:
        client.undrop_table(table_id)
    except (GoneError, NotFoundError) as error:
        raise RestError(400, "BadRequestException", f"{whole} can't come back: {error}") from error
