"""Changes of a table's columns and properties."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from laketx.column_definitions import added_columns, type_of_words
from metaservice.client import add_column, default_column, drop_column, rename_column, widen_column
from metaservice.shared.column_types import quoted as quoted_if_odd
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.arrow.write.input_rows import is_constant
from worker.base.errors import InputError
from worker.base.lazy_modules import LazyModule
from worker.base.schema import check_name, path_of
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from worker.connection import defaults
    from worker.spark import column_types
else:
    defaults = LazyModule("worker.connection.defaults")
    column_types = LazyModule("worker.spark.column_types")


class ColumnChanges(ABC):
    """The changes of the columns and properties of a table. Each returns the table, as it is then."""

    lake: Connection
    view: TableView

    @property
    @abstractmethod
    def meta(self) -> catalog_pb2.Table:
        """The service's description of the table at the last refresh."""

    @property
    @abstractmethod
    def table_id(self) -> str:
        """The table's id, which a rename doesn't change."""

    @abstractmethod
    def refresh(self) -> Self:
        """Loads the table's current state from the service."""

    def add_columns(self, columns: str | StructType | pa.Schema, *, message: str = "") -> Self:
        """Adds columns in one commit; existing rows have NULL in them.

            orders.add_columns("note string, address.zip string")

        A path adds a field to a struct. Quote a column with backticks if its name contains a dot.

        Raises InputError for a type that tables don't have, NOT NULL or a default; AlreadyExistsError for an existing
        name.
        """
        if isinstance(columns, str | pa.Schema):
            added = added_columns(columns)
        else:
            added = column_types.wire_columns(columns, [])
            for column in added:
                column.name = quoted_if_odd(column.name)
        for column in added:
            if not column.nullable:
                raise InputError(
                    "COLUMN_NOT_NULLABLE",
                    f"existing rows have no {column.name}: add it without NOT NULL, and fill it with update(); "
                    "only create_table makes NOT NULL columns",
                )
            if column.default_sql:
                raise InputError("COLUMNS_INVALID", f"add {column.name} without a default, then call set_default")
        return self._alter(message, *(add_column(column.name, column.type, comment=column.comment) for column in added))

    def rename_column(self, old: str, new: str, *, message: str = "") -> Self:
        """Renames a column. It keeps its id, so no file is rewritten.

            orders.rename_column("address.zip", "postcode")

        A field of a struct is named by its path.

        Raises InvalidError for an unknown column, AlreadyExistsError if the new name exists.
        """
        path = path_of(self.meta, old)
        if path != old or "." not in old:
            check_name(new)
        return self._alter(message, rename_column(path, new))

    def set_default(self, name: str, default: str | None, *, message: str = "") -> Self:
        """Sets the value that inserts without the column write, as SQL; None restores NULL. Existing rows don't change.

            orders.set_default("status", "'new'")

        Without Spark the default must be a constant.

        Raises InvalidError for an unknown column, InputError if its type can't hold the default.
        """
        path = path_of(self.meta, name)
        for column in self.meta.columns:
            if default is not None and quoted_if_odd(column.name).lower() == path.lower():
                changed = catalog_pb2.Column(name=column.name, type=column.type, default_sql=default)
                if not is_constant(changed):
                    defaults.check_defaults(self.lake.spark, [changed])
        return self._alter(message, default_column(path, default or ""))

    def drop_column(self, name: str, *, message: str = "") -> Self:
        """Drops a column. Older versions still contain its values.

        Raises InvalidError for an unknown column, BlockedError for a column of the key or the partitions.
        """
        return self._alter(message, drop_column(path_of(self.meta, name)))

    def widen_column(self, name: str, new_type: str | DataType, *, message: str = "") -> Self:
        """Widens a column to a type that holds every existing value.

            orders.widen_column("quantity", "bigint")  # was int

        Raises InvalidError if the new type is not wider.
        """
        wider = type_of_words(new_type) if isinstance(new_type, str) else column_types.type_text(new_type)
        return self._alter(message, widen_column(path_of(self.meta, name), wider))

    def set_properties(self, **values: str) -> Self:
        """Sets properties of the table.

            orders.set_properties(**{"write.on_conflict": "rerun"})

        Raises InvalidError for an unknown property or value.
        """
        self.lake.client.alter_table(self.table_id, common_pb2.Alteration(set_properties=values))
        return self.refresh()

    def _alter(self, message: str, *steps: common_pb2.SchemaChange) -> Self:
        meta = self.lake.client.alter_columns(self.table_id, *steps, commit_message=message)
        self.view = replace(self.view, meta=meta)
        return self
