"""The columns that a table had when a file was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.connection.table_view import TableView

Columns = Sequence[catalog_pb2.Column]


class WrittenSchemas:
    """The schemas of one table; older ones are asked for when a file needs one."""

    def __init__(self, table: TableView) -> None:
        self._table = table
        self._schemas: Mapping[int, Columns] | None = None

    def columns_of(self, file: common_pb2.DataFile) -> Columns:
        if file.schema_version == self._table.meta.schema_version:
            return self._table.meta.columns
        if self._schemas is None:
            listed = self._table.client.list_schemas(self._table.table_id)
            self._schemas = {one.schema_version: list(one.columns) for one in listed}
        return self._schemas[file.schema_version or min(self._schemas)]

    def names_in(self, file: common_pb2.DataFile) -> dict[int, str]:
        """The names of the columns in the file, by their ids."""
        return {column.column_id: column.name for column in self.columns_of(file)}
