"""A table as reads, writes and compactions see it: the service's answer about it, its rules of writes, and its lake."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2
from worker.base.lazy_modules import LazyModule
from worker.connection.lake_connection import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from worker.spark import column_types
else:
    column_types = LazyModule("worker.spark.column_types")

UNSAID: Final = catalog_pb2.WriteRules(counts_reads=True, counts_key_lookups=True, takes_custom=True)


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as of one answer of the service; a refresh returns another view."""

    lake: Connection
    meta: catalog_pb2.Table
    _empty: dict[int, DataFrame] = field(default_factory=dict, compare=False, repr=False)  # by version of the schema

    @property
    def client(self) -> MetaClient:
        return self.lake.client

    @property
    def spark(self) -> SparkSession:
        return self.lake.spark

    @property
    def name(self) -> str:
        return self.meta.name

    @property
    def table_id(self) -> str:
        return self.meta.table_id

    @property
    def folder(self) -> str:
        """The folder of its files; paths of files are relative to it."""
        return f"{self.lake.warehouse}/{self.meta.folder_id or self.table_id}"

    def refreshed(self) -> TableView:
        """The current view."""
        return replace(self, meta=self.client.get_table(table_id=self.table_id))

    def at(self, version: int) -> TableView:
        """The view under the schema of that version."""
        return replace(self, meta=self.client.get_table(table_id=self.table_id, version=version))

    def path(self, path: str) -> str:
        """The location of an entry's file; an external path is complete."""
        return path if "://" in path or path.startswith(("/", "file:")) else f"{self.folder}/{path}"

    def empty(self) -> DataFrame:
        """No rows, with these columns: to check expressions against the table."""
        version = self.meta.schema_version
        if version not in self._empty:
            self._empty[version] = self.spark.createDataFrame([], column_types.table_schema(self.meta, nullable=True))
        return self._empty[version]


def write_rules(meta: catalog_pb2.Table) -> catalog_pb2.WriteRules:
    """The table's rules. A service of the release before says none: then what is right under every profile."""
    return meta.rules if meta.HasField("rules") else UNSAID
