"""The catalog's answers, without HTTP: namespaces, tables, views and credentials of one caller in one warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from metaservice.client import GoneError, MetaServiceError, NotFoundError, UnavailableError
from protos.laketx.v1 import access_pb2, catalog_pb2
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.iceberg.commits.properties import PREFIX
from worker.iceberg.locations import location_of
from worker.iceberg.metadata.facts import ShownFile
from worker.iceberg.rest.listing import Listings
from worker.iceberg.rest.problems import NO_NAMESPACE, NO_TABLE, NO_WAREHOUSE, THINGS, RestError, problem_of
from worker.iceberg.rest.tables import Loaded, Tables
from worker.iceberg.rest.warehouses import AT, IcebergWarehouse, off_branch
from worker.services.generated_files import FOLDER, folder_of

NO_NAMESPACE_NAME: Final = "default"  # shows the tables that are in no namespace
SEPARATOR: Final = "\x1f"
PAGE_MAX: Final = 1_000
RETIRED_MAX: Final = 3  # tries
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    """Names in order, and the token of the next page; empty on the last page."""

    names: Sequence[str]
    next_token: str


class Catalog:
    """What one caller sees, in one warehouse."""

    def __init__(
        self,
        lake: Connection,
        tables: Tables,
        listings: Listings,
        warehouse: IcebergWarehouse,
        config: Mapping[str, str],
    ) -> None:
        self.lake = self._lake = lake
        self.warehouse = warehouse
        self.form = warehouse.form
        self._tables = tables
        self._listings = listings
        self._config = config

    def of(self, warehouse: IcebergWarehouse) -> Catalog:
        """Return the caller's catalog of another warehouse."""
        return Catalog(self._lake, self._tables, self._listings, warehouse, self._config)

    def check_branch(self) -> IcebergWarehouse:
        """Raise an error if the warehouse's branch doesn't exist. Return the warehouse with the branch's exact name."""
        if not self.warehouse.branch:
            return self.warehouse
        try:
            answer = self._lake.client.get_branch(self.warehouse.branch)
        except MetaServiceError as error:
            raise problem_of(error, NO_WAREHOUSE) from error
        return IcebergWarehouse(self.form, answer.branch.name)

    # -- namespaces

    def namespaces(self) -> list[str]:
        self.check_branch()
        names = {namespace.name for namespace in self._lake.client.list_namespaces(branch=self.warehouse.branch)}
        return sorted(names | {NO_NAMESPACE_NAME})

    def namespace(self, name: str) -> dict[str, str]:
        """Return the properties of a namespace."""
        try:
            properties = self._lake.client.get_namespace(self.warehouse.named(name)).properties
        except MetaServiceError as error:
            if name == NO_NAMESPACE_NAME and isinstance(error, NotFoundError):
                return {"comment": "tables in no namespace"}
            raise no_namespace(error, name) from error
        return {key.removeprefix(PREFIX): value for key, value in properties.items()}

    # -- tables

    def tables(self, namespace: str) -> list[str]:
        """Return the names of the tables that can be shown."""
        self.namespace(namespace)
        branch = self.warehouse.branch
        if namespace == NO_NAMESPACE_NAME:
            tables = self._lake.client.list_tables(branch=branch, with_imports=True)
            listed = [table for table in tables if is_in(table.name, namespace)]
        else:
            listed = list(self._lake.client.list_tables(namespace=namespace, branch=branch, with_imports=True))
        shown = self._listings.can_be_shown(self._lake, listed, self.form)
        return sorted({last_part(off_branch(table.name)) for table in shown})

    def view(self, namespace: str, name: str) -> TableView:
        """Return the current table."""
        client, named = self._lake.client, self.warehouse.named
        return TableView(self._lake, first_of(lambda whole: client.get_table(named(whole)), namespace, name, NO_TABLE))

    def load(self, namespace: str, name: str) -> tuple[TableView, Loaded]:
        for _ in range(RETIRED_MAX - 1):
            table = self.view(namespace, name)
            with suppress(GoneError):  # the newest version was retired before it was held
                return table, self._tables.load(table, self.form)
        table = self.view(namespace, name)
        return table, self._tables.load(table, self.form)

    def schemas(self, table: TableView) -> list[catalog_pb2.SchemaVersion]:
        """Return all schemas of the table up to the view's."""
        return self._tables.schemas(table)

    def shown_files(self, table: TableView) -> Sequence[ShownFile]:
        """Return the files of the snapshot of the view's version."""
        return self._tables.shown_files(table, self.form)

    # -- storage

    def config(self) -> dict[str, str]:
        """Return the settings that every reader of a table gets."""
        return dict(self._config)

    def credentials(self, table: TableView) -> list[dict[str, Any]]:
        """Return keys for the table's files; none if the service makes none, or the caller has no right to them.

        The keys allow writes if the caller may write the table.
        """
        key = self._key(table.table_id, write=True) or self._key(table.table_id, write=False)
        return _shown(key, folder_of(table.meta))

    def new_credentials(self, table_id: str, name: str) -> list[dict[str, Any]]:
        """Return keys for the files of a table that the caller will create."""
        return _shown(self._key(table_id, write=True, new_table=name), FOLDER)

    def _key(
        self, table_id: str, *, write: bool, new_table: str = ""
    ) -> access_pb2.GetStorageCredentialsResponse | None:
        try:
            return self._lake.client.storage_credentials(table_id, write=write, new_table=new_table)
        except MetaServiceError:
            return None


def _shown(key: access_pb2.GetStorageCredentialsResponse | None, made: str) -> list[dict[str, Any]]:
    """Return the key for the table's folder, and again for the folder `made` with the metadata.

    DuckDB uses a single key for the table's location, where the metadata is: then it has no key for the data.
    """
    if key is None:
        return []
    config = {
        "s3.access-key-id": key.access_key_id,
        "s3.secret-access-key": key.secret_access_key,
        "s3.session-token": key.session_token,
        "s3.session-token-expires-at-ms": str(key.expire_time_us // 1000),
        "s3.endpoint": key.endpoint,
        "client.region": key.region,
    }
    folder, given = location_of(key.location), {name: text for name, text in config.items() if text}
    return [{"prefix": prefix, "config": given} for prefix in (folder, f"{folder}/{made}")]


def namespace_of(text: str, missing: str = NO_NAMESPACE) -> str:
    """Return the namespace in a path. `missing` is the type of the error for a namespace of several parts."""
    parts = text.split(SEPARATOR)
    if len(parts) != 1 or not text:
        raise RestError(404, missing, f"{'.'.join(parts)} is not there: namespaces have one part here")
    return text


def first_of(look_up: Callable[[str], T], namespace: str, name: str, missing: str) -> T:
    """Look a name up. The namespace `default` also contains what is in no namespace."""
    message = f"{THINGS[missing]} does not exist: {namespace}.{name}"
    if "." in name or AT in name or AT in namespace:  # the warehouse says the branch, and nothing else does
        raise RestError(404, missing, message)
    if namespace == NO_NAMESPACE_NAME:
        with suppress(NotFoundError):
            return look_up(f"{namespace}.{name}")
    try:
        return look_up(name if namespace == NO_NAMESPACE_NAME else f"{namespace}.{name}")
    except UnavailableError:
        raise  # in a commit this says that its outcome is not known
    except MetaServiceError as error:
        raise absent(error, missing, message) from error


def absent(error: MetaServiceError, missing: str, message: str) -> RestError:
    """Return the answer to a failed look-up. An invalid name is an unknown name."""
    if error.reason == "BRANCH_UNKNOWN":
        return RestError(404, missing, str(error))
    if isinstance(error, NotFoundError) or error.reason == "NAME_INVALID":
        return RestError(404, missing, message)
    return problem_of(error, missing)


def no_namespace(error: MetaServiceError, name: str) -> RestError:
    return absent(error, NO_NAMESPACE, f"Namespace does not exist: {name}")


def page_of(names: Sequence[str], token: str | None, size: int) -> Page:
    """Return the names after the token, which is a name; without a token all."""
    if token is None and not size:
        return Page(names, "")
    rest = [name for name in names if name > (token or "")]
    size = min(size or PAGE_MAX, PAGE_MAX)
    return Page(rest[:size], rest[size - 1] if len(rest) > size else "")


def is_in(name: str, namespace: str) -> bool:
    """Return whether a table or view is shown in the namespace; those in no namespace are shown in `default`."""
    return name.startswith(f"{namespace}.") or (namespace == NO_NAMESPACE_NAME and "." not in name)


def last_part(name: str) -> str:
    """Return a name without its namespace."""
    return name.rpartition(".")[2]
