"""The client by which dlt makes tables, loads files, and keeps its schemas and states in a lake."""

from __future__ import annotations

import atexit
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from dlt.common import logger
from dlt.common.destination import DestinationCapabilitiesContext
from dlt.common.destination.client import (
    FollowupJobRequest,
    JobClientBase,
    LoadJob,
    StateInfo,
    StorageSchemaInfo,
    WithStateSync,
)
from dlt.common.destination.exceptions import (
    DestinationTerminalException,
    DestinationTransientException,
    DestinationUndefinedEntity,
)
from dlt.common.destination.utils import resolve_merge_strategy
from dlt.common.libs.pyarrow import get_py_arrow_datatype
from dlt.common.schema import Schema, TColumnSchema
from dlt.common.schema.typing import TSchemaTables, TTableSchemaColumns
from dlt.common.schema.utils import (
    get_columns_names_with_prop,
    get_nested_tables,
    get_root_table,
    has_table_seen_data,
    is_nested_table,
)
from dlt.common.storages import FileStorage, ParsedLoadJobFileName
from dlt.common.storages.load_package import LoadJobInfo, load_package_state
from dlt.destinations.job_impl import ReferenceFollowupJobRequest
from dlt.destinations.utils import (
    verify_schema_merge_disposition,
    verify_schema_replace_disposition,
    verify_unsupported_merge_options,
)

import laketx as api
from laketx.dlt.chains import COMMITTED, Chain, TableHints, commit_chain, quoted
from laketx.dlt.configuration import LakeConfiguration
from laketx.dlt.jobs import ChainJob, FileJob
from laketx.lake import Lake
from laketx.table import Table
from metaservice.client import AlreadyExistsError, ConflictError, InvalidError, NotFoundError
from worker.base.errors import InputError

TRIES: Final = 20  # of a chain that loses races
KEY_TYPES: Final = ("text", "bigint", "date", "timestamp", "decimal", "bool", "wei")
REFUSED_OPTIONS: Final = ("destination_scope", "skip_unchanged_rows", "source_filter")  # of a merge

_lakes: dict[tuple[str, str | None, str], Lake] = {}
_opening: Final = threading.Lock()


def open_lake(config: LakeConfiguration) -> Lake:
    """Return the lake of the configuration, which stays open until the process ends.

    Raises DestinationTerminalException if no lake is named.
    """
    if not config.where:
        raise DestinationTerminalException(
            'the lake is missing: laketx("./warehouse"), or where = "./warehouse" under [destination.laketx]'
        )
    key = (config.where, config.warehouse, config.user)
    with _opening:
        if key not in _lakes:
            if not _lakes:
                atexit.register(close_lakes)
            _lakes[key] = api.connect(config.where, warehouse=config.warehouse, user=config.user)
        return _lakes[key]


def close_lakes() -> None:
    """Close the lakes that pipelines of this process opened."""
    with _opening:
        while _lakes:
            _lakes.popitem()[1].close()


class LakeClient(JobClientBase, WithStateSync):
    """Loads the tables of one dataset, which is a namespace of the lake."""

    def __init__(self, schema: Schema, config: LakeConfiguration, capabilities: DestinationCapabilitiesContext) -> None:
        super().__init__(schema, config, capabilities)
        self.config: LakeConfiguration = config
        self.dataset: str = config.normalize_dataset_name(schema)

    @property
    def lake(self) -> Lake:
        """The lake."""
        return open_lake(self.config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Lakes stay open: the next job needs them."""

    # --- tables

    def is_storage_initialized(self) -> bool:
        """Return whether the dataset is there."""
        return self._table(COMMITTED) is not None

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Make the dataset, and remove the rows of the named tables."""
        if not self.is_storage_initialized():
            self.lake.create_table(
                self._path(COMMITTED),
                "chain string, load_id string",
                primary_key=["chain"],
                buckets=1,
                profile="row_level",
                comment="parts of loads that are committed, until their load is complete",
                if_not_exists=True,
            )
        for name in truncate_tables or ():
            if (table := self._table(name)) is not None:
                table.truncate(on_conflict="rerun", message="dlt refresh")

    def drop_storage(self) -> None:
        """Drop all tables of the dataset. `laketx table undrop` brings them back."""
        with suppress(NotFoundError):
            for name in self.lake.tables(self.dataset):
                self._drop(name)

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Drop the tables, and with `delete_schema` forget the stored schema."""
        for name in tables:
            self._drop(self._path(name))
        if delete_schema and (stored := self._table(self.schema.version_table_name)) is not None:
            stored.delete(f"{self._column('schema_name')} = {quoted(self.schema.name)}", on_conflict="rerun")

    def get_storage_tables(self, table_names: Iterable[str]) -> Iterable[tuple[str, TTableSchemaColumns]]:
        """Yield the columns that the lake has of each table, none for a table that isn't there."""
        for name in table_names:
            table = self._table(name)
            columns = [] if table is None else [column.name for column in table.meta.columns]
            yield name, {column: {"name": column} for column in columns}

    def verify_schema(
        self, only_tables: Iterable[str] | Any = None, new_jobs: Iterable[ParsedLoadJobFileName] | Any = None
    ) -> list[TableHints]:
        """Refuse hints that a lake can't follow."""
        tables = super().verify_schema(only_tables, new_jobs)
        able, name = self.capabilities, self.config.destination_type
        replacing = self.config.replace_strategy or "insert-from-staging"
        errors = [
            *verify_schema_merge_disposition(self.schema, tables, able, warnings=True),
            *verify_schema_replace_disposition(self.schema, tables, able, replacing, warnings=True),
            *verify_unsupported_merge_options(self.schema, tables, able, name, REFUSED_OPTIONS),
        ]
        if errors:
            raise errors[0]
        return tables

    def update_stored_schema(
        self,
        only_tables: Iterable[str] | Any = None,
        expected_update: TSchemaTables | Any = None,
        force: bool = False,
    ) -> TSchemaTables | None:
        """Make missing tables and columns, and store the schema."""
        super().update_stored_schema(only_tables, expected_update, force)
        is_stored = self.get_stored_schema_by_hash(self.schema.stored_version_hash) is not None
        if is_stored and not force:
            return {}
        applied: dict[str, Any] = {}
        for name, columns in self.get_storage_tables(only_tables or self.schema.tables):
            if added := self.schema.get_new_table_columns(name, columns, case_sensitive=False):
                table: TableHints = self.prepare_load_table(name)
                self._add_columns(table, added) if columns else self._create(table)
                applied[name] = dict(table, columns={column["name"]: column for column in added})
        if not is_stored:
            self._store_schema()
        return applied

    def _create(self, table: TableHints) -> None:
        columns = list(table["columns"].values())
        schema = pa.schema([self._field(column) for column in columns])
        self._defined(
            lambda: self.lake.create_table(
                self._path(table["name"]),
                schema,
                primary_key=self._primary_key(table),
                profile=self.config.profile or "",
                comment=table.get("description") or "",
                if_not_exists=True,
            )
        )

    def _add_columns(self, table: TableHints, added: Sequence[TColumnSchema]) -> None:
        schema = pa.schema([self._field(column) for column in added])
        with suppress(AlreadyExistsError):  # another load was faster; the next look adds what is still missing
            self._defined(lambda: self.lake.table(self._path(table["name"])).add_columns(schema, message="dlt"))

    def _primary_key(self, table: TableHints) -> list[str]:
        """The key of a new table: the primary key by which it is merged, if that is all it is merged by."""
        if is_nested_table(table) or table["write_disposition"] != "merge" or self._strategy(table) == "scd2":
            return []
        keys = get_columns_names_with_prop(table, "primary_key")
        are_keys = all(table["columns"][key]["data_type"] in KEY_TYPES for key in keys)
        return keys if are_keys and not get_columns_names_with_prop(table, "merge_key") else []

    def _field(self, column: TColumnSchema) -> pa.Field:
        kind = get_py_arrow_datatype(column, self.capabilities, "UTC")
        if pa.types.is_time(kind):  # tables have no times of day
            kind = pa.string()
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", kind.tz)
        if pa.types.is_fixed_size_binary(kind):
            kind = pa.binary()
        return pa.field(column["name"], kind)

    # --- loads

    def should_truncate_table_before_load(self, table_name: str) -> bool:  # noqa: ARG002 - dlt's signature
        """Return False: what is replaced is replaced in the commit of the new rows."""
        return False

    def create_load_job(
        self,
        table: TableHints,  # noqa: ARG002 - dlt's signature
        file_path: str,
        load_id: str,  # noqa: ARG002 - dlt's signature
        restore: bool = False,  # noqa: ARG002 - dlt's signature
    ) -> LoadJob:
        """Return the job of a file, or of the chain whose files it lists."""
        return ChainJob(file_path) if ReferenceFollowupJobRequest.is_reference_job(file_path) else FileJob(file_path)

    def create_table_chain_completed_followup_jobs(
        self,
        table_chain: Sequence[TableHints],
        completed_table_chain_jobs: Sequence[LoadJobInfo] | None = None,
    ) -> list[FollowupJobRequest]:
        """Return the job that commits the chain, whose files are all there."""
        files = sorted((job.file_path for job in completed_table_chain_jobs or ()), key=_order_in(table_chain))
        return [ReferenceFollowupJobRequest(FileStorage.get_file_name_from_file_path(files[0]), files)]

    def commit_files(self, load_id: str, table_name: str, files: Sequence[str]) -> None:
        """Commit the files of a table and of the tables nested in it, once.

        Raises DestinationTransientException after many lost races, DestinationTerminalException for unfit rows.
        """
        by_table: dict[str, list[str]] = {}
        for file in files:
            by_table.setdefault(_table_of(file), []).append(file)
        root: TableHints = get_root_table(self.schema.tables, table_name)
        chain_tables: Sequence[TableHints] = get_nested_tables(self.schema.tables, root["name"])
        tables = [
            self.prepare_load_table(table["name"])
            for table in chain_tables
            if has_table_seen_data(table) and self._table(table["name"]) is not None
        ]
        strategy = self._strategy(tables[0])
        created_at = load_package_state()["state"]["created_at"] if strategy == "scd2" else None
        chain = Chain(load_id, self.schema.name, tables, by_table, strategy, created_at)
        for attempt in range(TRIES):
            try:
                self._defined(lambda: commit_chain(self.lake, self.dataset, chain))
            except ConflictError as error:
                logger.info(f"{self._path(root['name'])} lost a race and is committed again: {error}")
                if attempt + 1 == TRIES:
                    raise DestinationTransientException(str(error)) from error
            else:
                return

    def complete_load(self, load_id: str) -> None:
        """Note that the load is complete, once."""
        row = {
            "load_id": load_id,
            "schema_name": self.schema.name,
            "status": 0,
            "inserted_at": datetime.now(UTC),
            "schema_version_hash": self.schema.version_hash,
        }
        loads, name = self._path(self.schema.loads_table_name), self._column("load_id")
        for attempt in range(TRIES):
            try:
                with self.lake.transaction(f"dlt load {load_id} is complete") as txn:
                    if not txn.table(loads).count(where=f"{name} = {quoted(load_id)}"):
                        txn.table(loads).append([{self._column(key): value for key, value in row.items()}])
                    txn.table(self._path(COMMITTED)).delete(f"load_id = {quoted(load_id)}")
            except ConflictError:
                if attempt + 1 == TRIES:
                    raise
            else:
                return

    def _strategy(self, table: TableHints) -> str | None:
        if table["write_disposition"] != "merge":
            return None
        return resolve_merge_strategy(self.schema.tables, table, self.capabilities)

    # --- what dlt keeps in the lake

    def get_stored_schema(self, schema_name: str | None = None) -> StorageSchemaInfo | None:
        """Return the newest schema, of that name if it is given, or None."""
        name = self._column("schema_name")
        return self._stored_schema(None if schema_name is None else f"{name} = {quoted(schema_name)}")

    def get_stored_schema_by_hash(self, version_hash: str) -> StorageSchemaInfo | Any:
        """Return the schema with that hash, or None."""
        return self._stored_schema(f"{self._column('version_hash')} = {quoted(version_hash)}")

    def _stored_schema(self, where: str | None) -> StorageSchemaInfo | None:
        rows = self._rows(self.schema.version_table_name, where)
        if not rows:
            return None
        newest = max(rows, key=lambda row: row[self._column("inserted_at")])
        return StorageSchemaInfo.from_normalized_mapping(newest, self.schema.naming)

    def _store_schema(self) -> None:
        schema = self.schema
        row = {
            "version": schema.version,
            "engine_version": schema.ENGINE_VERSION,
            "inserted_at": datetime.now(UTC),
            "schema_name": schema.name,
            "version_hash": schema.stored_version_hash,
            "schema": json.dumps(schema.to_dict()),
        }
        named = {self._column(key): value for key, value in row.items()}
        self.lake.table(self._path(schema.version_table_name)).append([named], message="dlt schema")

    def get_stored_state(self, pipeline_name: str) -> StateInfo | None:
        """Return the newest state of the pipeline whose load is complete, or None.

        Raises DestinationUndefinedEntity if no pipeline has kept a state here.
        """
        for name in (self.schema.state_table_name, self.schema.loads_table_name):
            if self._table(name) is None:
                raise DestinationUndefinedEntity(f"{self._path(name)} isn't there")
        complete = self._rows(self.schema.loads_table_name, f"{self._column('status')} = 0")
        load_ids = {row[self._column("load_id")] for row in complete}
        loaded_by = self._column("_dlt_load_id")
        rows = self._rows(self.schema.state_table_name, f"{self._column('pipeline_name')} = {quoted(pipeline_name)}")
        states = [row for row in rows if row[loaded_by] in load_ids]
        if not states:
            return None
        newest = max(states, key=lambda row: (float(row[loaded_by]), row[self._column("version")]))
        return StateInfo.from_normalized_mapping(newest, self.schema.naming)

    def _rows(self, name: str, where: str | None) -> list[dict[str, Any]]:
        table = self._table(name)
        if table is None:
            return []
        rows = table.to_arrow() if where is None else table.to_arrow(where=where)
        return list(rows.to_pylist())

    # --- names and errors

    def _column(self, name: str) -> str:
        return self.schema.naming.normalize_identifier(name)

    def _path(self, name: str) -> str:
        return f"{self.dataset}.{name}"

    def _table(self, name: str) -> Table | None:
        try:
            return self.lake.table(self._path(name))
        except NotFoundError:
            return None

    def _drop(self, path: str) -> None:
        with suppress(NotFoundError):
            self.lake.drop_table(path)

    def _defined(self, work: Callable[[], object]) -> None:
        """Do the work.

        Raises DestinationTerminalException where trying again would not help.
        """
        try:
            work()
        except (InputError, InvalidError) as error:
            raise DestinationTerminalException(str(error)) from error


def _table_of(file: str) -> str:
    return ParsedLoadJobFileName.parse(FileStorage.get_file_name_from_file_path(file)).table_name


def _order_in(chain: Sequence[TableHints]) -> Callable[[str], tuple[int, str]]:
    """The root's files come first, and the order is always the same."""
    places = {table["name"]: place for place, table in enumerate(chain)}
    return lambda file: (places[_table_of(file)], file)
