"""A lake without its tables: the service, the warehouse, the Spark session, and what it holds until it closes."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from hashlib import sha256
from types import TracebackType
from typing import TYPE_CHECKING, Self

from metaservice.client import Credentials, MetaClient
from worker.base.lazy_modules import LazyModule
from worker.connection.pins import ReaderPins
from worker.files.storage import open_tables_by
from worker.files.storage_keys import StorageKeys
from worker.files.warehouse import mark_where_proven
from worker.spark.catalog_jar import (
    CATALOG,
    WITHOUT_JAR,
    address_settings,
    catalog_settings,
    credential_settings,
    find_jar,
    jar_setting,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from worker.spark import session
else:
    session = LazyModule("worker.spark.session")

BY_ID = "$id"  # the namespace in which the catalog finds tables by their ids


class Connection:
    """A lake's connection. Threads can share it, like its Spark session."""

    def __init__(
        self,
        client: MetaClient,
        warehouse: str,
        spark: SparkSession | None,
        *,
        uri: str = "",
        user: str = "",
        credentials: Credentials | None = None,
        storage_keys: bool = False,
    ) -> None:
        """`uri` is the folder, or the service's address. The catalog gets the credentials; None: the environment's.

        With `storage_keys` the service gives the keys for tables' files, and the warehouse is its own to mark.
        """
        self.client = client
        self.warehouse = warehouse.rstrip("/")
        self.pins = ReaderPins(client)
        self._spark = spark
        self._shown = {} if credentials is None else credential_settings(credentials)
        self.address = address_settings(uri, self.warehouse, user) | self._shown if uri else {}  # for the reader's jar
        self._uri = uri
        self._own_catalog: str | None = None
        self._user = user
        self._is_looked_at = False
        self._is_marked = storage_keys
        self._lock = threading.Lock()
        self._at_close: list[Callable[[], None]] = []
        if storage_keys:
            self.at_close(open_tables_by(self.warehouse, StorageKeys(client).files))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.warehouse!r})"

    @property
    def uses_spark(self) -> bool:
        """Whether there is a Spark session already, of this lake or of the program."""
        return self._spark is not None or (sys.modules.get("pyspark") is not None and session.has_active())

    @property
    def spark(self) -> SparkSession:
        """The given session, the active session, or a new session that is created when it is first needed."""
        with self._lock:
            if self._spark is None:
                settings = {**jar_setting(), **self._catalog(CATALOG)} if find_jar() else WITHOUT_JAR
                self._spark = session.active_or_new(settings)
            if not self._is_looked_at:
                self._is_looked_at = True
                if hint := session.python_hint(self._spark):
                    warnings.warn(hint, stacklevel=2)
            return self._spark

    def as_catalog(self, name: str = CATALOG) -> str:
        """Makes the tables available in the session's SQL under the name: `SELECT … FROM lake.shop.orders`.

        A session that `connect` started has them as `lake`. Your own session must have the catalog's jar: start it with
        the settings that `laketx spark-jar` prints.

        Raises InputError if the session lacks the jar.
        """
        session.add_catalog(self.spark, name, self._catalog(name))
        return name

    def separate_session(self, settings: Mapping[str, str]) -> SparkSession:
        """Returns a session with its own settings, in which the current catalog has these tables.

        Raises InputError if the lake's session can't have one, or knows another catalog by that name.
        """
        separate = session.separate_session(self.spark, settings)
        session.add_catalog(separate, CATALOG, self._catalog(CATALOG))
        separate.sql(f"SET CATALOG {CATALOG}")  # `separate.catalog` asks the thread's active session
        return separate

    def own_catalog(self) -> str:
        """Returns the name of a catalog of these tables for the worker's own statements."""
        if self._own_catalog is None:
            name = f"laketx_{sha256(repr(sorted(self.address.items())).encode()).hexdigest()[:12]}"
            session.add_own_catalog(self.spark, self._catalog(name))
            self._own_catalog = name
        return self._own_catalog

    def name_of(self, table_id: str) -> str:
        """Returns a table's name for the worker's own statements, which a rename doesn't change."""
        return f"{self.own_catalog()}.`{BY_ID}`.`{table_id}`"

    def _catalog(self, name: str) -> dict[str, str]:
        shown = {f"spark.sql.catalog.{name}.{key}": value for key, value in self._shown.items()}
        return catalog_settings(name, self._uri, self.warehouse, self._user) | shown

    def mark_warehouse(self) -> None:
        """Creates the warehouse's mark, which purge and fsck check. Called before the first write."""
        if not self._is_marked:
            mark_where_proven(self.client, self.warehouse)
            self._is_marked = True

    def at_close(self, work: Callable[[], None]) -> None:
        """Registers a function to call when the lake closes, before its connection closes."""
        self._at_close.append(work)

    def close(self) -> None:
        """Releases the pins and closes the connection. The Spark session stays open."""
        self.pins.close()
        while self._at_close:
            self._at_close.pop()()
        self.client.close()
