"""Calls of other systems' libraries (delta-spark, deltalake, pyiceberg), and what to write here instead.

    table.optimize()  ->  AttributeError: Table has no optimize, a word of another system; here: `table.compact()` …

`hasattr` is false of them, and mypy refuses them, as if nothing were known of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

Calls = Mapping[str, tuple[str, ...]]  # the names elsewhere, by what to write here

OF_TABLES: Final[Calls] = {
    '`table.compact()`, or `table.compact("cluster", zorder_by=["day"])`': ("optimize", "rewrite_data_files"),
    "`laketx purge run` in a terminal; the property `data.retain.hours` says how long files stay": (
        "vacuum",
        "expire_snapshots",
        "maintenance",
    ),
    "`table.restore(version=12)`": ("restoreToVersion", "rollback", "rollback_to_snapshot"),
    '`table.restore(timestamp="2026-11-01 08:00")`': ("restoreToTimestamp",),
    "`table.read()`": ("toDF",),
    "`table.to_arrow()`": ("to_pyarrow_table",),
    '`table.scanner(where="id > 7")`': ("scan", "to_pyarrow_dataset"),
    "`table.read(version=12)`": ("load_as_version",),
    '`table.read(timestamp="2026-11-01 08:00")`': ("load_with_datetime",),
    "`table.changes(since=12)`": ("load_cdf",),
    "`table.history()`": ("snapshots", "inspect", "current_snapshot", "snapshot_by_id"),
    "`table.resolve()`": ("version",),
    "`table.meta`, `table.describe()` or `table.ddl()`": ("detail", "metadata"),
    "`table.meta.properties`": ("properties",),
    "`table.folder`": ("location",),
    "`laketx files` in a terminal": ("files", "file_uris", "get_add_actions"),
    "`table.add_columns(…)`, `table.rename_column(…)` and their like": ("alter", "update_schema"),
    "`laketx table alter` in a terminal, with `--add-feature` or `--remove-feature`": (
        "addFeatureSupport",
        "dropFeatureSupport",
    ),
    '`table.tag("month-end", version=12)`; there are no branches': ("manage_snapshots", "refs"),
    '`table.merge(df, on="id")`, whose sides are named `target` and `source`': ("alias",),
    "`table.export(path)`, or the Iceberg catalog for other engines": ("generate",),
    "`lake.import_parquet(path, name)`": ("add_files",),
    "`lake.create_table(name, table.schema)`, then `insert(table.read())` there": (
        "clone",
        "cloneAtVersion",
        "cloneAtTimestamp",
    ),
}
OF_LAKES: Final[Calls] = {
    '`lake.table("shop.orders")`': ("forName", "forPath", "load_table", "get_table", "open_table"),
    '`lake.table("shop.orders").read()`': ("read", "read_table"),
    '`lake.tables("shop")`': ("list_tables",),
    '`"shop.orders" in lake.tables()`': ("table_exists", "isDeltaTable"),
    "`lake.create_table(name, schema, if_not_exists=True)`": (
        "create",
        "createIfNotExists",
        "create_table_if_not_exists",
    ),
    "`CREATE OR REPLACE TABLE` in SQL": ("createOrReplace", "replace"),
    '`lake.as_catalog()`, then `lake.spark.sql("…")`': ("sql",),
    "`lake.import_parquet(path, name)`, or `laketx import` in a terminal": ("convertToDelta", "register_table"),
    "`lake.create_table(…)`, which makes a missing namespace": ("create_namespace",),
    "`laketx namespace list` in a terminal": ("list_namespaces",),
    "`lake.drop_table(name)`, then `laketx purge run` in a terminal": ("purge_table",),
}

OF_MERGES: Final[Calls] = {
    "`when_matched_update(values)`, or without values all columns": (
        "whenMatchedUpdate",
        "whenMatchedUpdateAll",
        "when_matched_update_all",
    ),
    "`when_matched_delete(condition=…)`": ("whenMatchedDelete",),
    "`when_not_matched_insert(values)`, or without values all columns": (
        "whenNotMatchedInsert",
        "whenNotMatchedInsertAll",
        "when_not_matched_insert_all",
    ),
    "`when_not_matched_by_source_update(values)`": ("whenNotMatchedBySourceUpdate",),
    "`when_not_matched_by_source_delete(condition=…)`": ("whenNotMatchedBySourceDelete",),
}


def by_name(calls: Calls) -> dict[str, str]:
    """What to write here, by the name elsewhere."""
    return {name: here for here, names in calls.items() for name in names}


class KnowsForeignCalls:
    """Its AttributeError says of another system's call how it is written here."""

    _foreign: ClassVar[Mapping[str, str]]

    if not TYPE_CHECKING:  # otherwise mypy would take any name

        def __getattr__(self, name: str) -> Any:
            """Only for what wasn't found. The second look raises the error of a property that failed by one."""
            here = type(self)._foreign.get(name)  # noqa: SLF001 - a subclass's own
            if here is None:
                return super().__getattribute__(name)
            raise AttributeError(f"{type(self).__name__} has no {name}, a word of another system; here: {here}")
