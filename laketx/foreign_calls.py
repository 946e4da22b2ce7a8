"""Calls of other systems' libraries (delta-spark, deltalake, pyiceberg), and what to write here instead.

    table.optimize()  ->  AttributeError: Table has no optimize, a word of another system; here: `table.compact()` …
    Table.forPath(…)  ->  AttributeError: Table has no forPath, …; here: `lake.table("shop.orders")`

`hasattr` is false of them, and mypy refuses them, as if nothing were known of them.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final


@dataclass(frozen=True, slots=True)
class ForeignCall:
    """What to write instead of a call, and the call's names in Delta's libraries and in pyiceberg (spaces between)."""

    equivalent: str
    delta: str = ""
    iceberg: str = ""

    @property
    def names(self) -> list[str]:
        """All names, without duplicates."""
        return list(dict.fromkeys([*self.delta.split(), *self.iceberg.split()]))


Calls = tuple[ForeignCall, ...]

OF_TABLES: Final[Calls] = (
    ForeignCall(
        '`table.compact()`, or `table.compact("cluster", zorder_by=["day"])`',
        delta="optimize",
        iceberg="rewrite_data_files",
    ),
    ForeignCall(
        "`laketx purge run` in a terminal; the property `data.retain.hours` says how long files stay",
        delta="vacuum",
        iceberg="expire_snapshots maintenance",
    ),
    ForeignCall("`table.restore(version=12)`", delta="restoreToVersion", iceberg="rollback rollback_to_snapshot"),
    ForeignCall('`table.restore(timestamp="2026-11-01 08:00")`', delta="restoreToTimestamp"),
    ForeignCall("`table.read()`", delta="toDF"),
    ForeignCall("`table.to_arrow()`", delta="to_pyarrow_table"),
    ForeignCall('`table.scanner(where="id > 7")`', delta="to_pyarrow_dataset", iceberg="scan"),
    ForeignCall("`table.read(version=12)`", delta="load_as_version"),
    ForeignCall('`table.read(timestamp="2026-11-01 08:00")`', delta="load_with_datetime"),
    ForeignCall("`table.changes(since=12)`", delta="load_cdf"),
    ForeignCall("`table.history()`", iceberg="snapshots inspect current_snapshot snapshot_by_id"),
    ForeignCall("`table.resolve()`", delta="version"),
    ForeignCall("`table.meta`, `table.describe()` or `table.ddl()`", delta="detail metadata", iceberg="metadata"),
    ForeignCall("`table.meta.properties`", iceberg="properties"),
    ForeignCall("`table.folder`", iceberg="location"),
    ForeignCall("`laketx files` in a terminal", delta="files file_uris get_add_actions"),
    ForeignCall(
        "`table.add_columns(…)`, `table.rename_column(…)` and their like", delta="alter", iceberg="update_schema"
    ),
    ForeignCall(
        "`laketx table alter` in a terminal, with `--add-feature` or `--remove-feature`",
        delta="addFeatureSupport dropFeatureSupport",
    ),
    ForeignCall(
        '`table.tag("month-end", version=12)`, and `lake.branch("etl")` for a branch of all tables',
        iceberg="manage_snapshots refs",
    ),
    ForeignCall('`table.merge(df, on="id")`, whose sides are named `target` and `source`', delta="alias"),
    ForeignCall("`table.export(path)`, or the Iceberg catalog for other engines", delta="generate"),
    ForeignCall("`lake.import_parquet(path, name)`", iceberg="add_files"),
    ForeignCall(
        '`table.clone("test.orders", version=12)`, which copies nothing',
        delta="cloneAtVersion cloneAtTimestamp",
    ),
)
OF_LAKES: Final[Calls] = (
    ForeignCall('`lake.table("shop.orders")`', delta="forName forPath", iceberg="load_table get_table open_table"),
    ForeignCall('`lake.table("shop.orders").read()`', delta="read read_table"),
    ForeignCall('`lake.tables("shop")`', iceberg="list_tables"),
    ForeignCall('`"shop.orders" in lake.tables()`', delta="isDeltaTable is_deltatable", iceberg="table_exists"),
    ForeignCall(
        "`lake.create_table(name, schema, if_not_exists=True)`",
        delta="create createIfNotExists",
        iceberg="create_table_if_not_exists",
    ),
    ForeignCall("`CREATE OR REPLACE TABLE` in SQL", delta="createOrReplace replace"),
    ForeignCall('`lake.as_catalog()`, then `lake.spark.sql("…")`', delta="sql"),
    ForeignCall(
        "`lake.import_parquet(path, name)`, or `laketx import` in a terminal",
        delta="convertToDelta",
        iceberg="register_table",
    ),
    ForeignCall("`lake.create_table(…)`, which makes a missing namespace", iceberg="create_namespace"),
    ForeignCall("`laketx namespace list` in a terminal", iceberg="list_namespaces"),
    ForeignCall("`lake.drop_table(name)`, then `laketx purge run` in a terminal", iceberg="purge_table"),
)
OF_MERGES: Final[Calls] = (
    ForeignCall(
        "`when_matched_update(values)`, or without values all columns",
        delta="whenMatchedUpdate whenMatchedUpdateAll when_matched_update_all",
    ),
    ForeignCall("`when_matched_delete(condition=…)`", delta="whenMatchedDelete"),
    ForeignCall(
        "`when_not_matched_insert(values)`, or without values all columns",
        delta="whenNotMatchedInsert whenNotMatchedInsertAll when_not_matched_insert_all",
    ),
    ForeignCall("`when_not_matched_by_source_update(values)`", delta="whenNotMatchedBySourceUpdate"),
    ForeignCall("`when_not_matched_by_source_delete(condition=…)`", delta="whenNotMatchedBySourceDelete"),
)


def by_name(calls: Iterable[ForeignCall]) -> dict[str, str]:
    """Return what to write here, by the name in the other system."""
    return {name: call.equivalent for call in calls for name in call.names}


EVERYWHERE: Final = by_name((*OF_MERGES, *OF_TABLES, *OF_LAKES))  # of classes, where `DeltaTable.forPath` is called


def _refusal(owner: type, name: str, equivalent: str) -> AttributeError:
    return AttributeError(f"{owner.__name__} has no {name}, a word of another system; here: {equivalent}")


class ForeignWordsOfClass(ABCMeta):
    """Refuses other systems' calls of the class itself."""

    if not TYPE_CHECKING:  # otherwise mypy would take any name

        def __getattr__(cls, name: str) -> Any:
            if (equivalent := EVERYWHERE.get(name)) is not None:
                raise _refusal(cls, name, equivalent)
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")


class KnowsForeignCalls(metaclass=ForeignWordsOfClass):
    """Its AttributeError says of another system's call how it is written here."""

    _foreign: ClassVar[Mapping[str, str]]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuse a missing name. The second lookup raises the AttributeError of a property that failed."""
            equivalent = type(self)._foreign.get(name)  # noqa: SLF001 - a subclass's own
            if equivalent is None:
                return super().__getattribute__(name)
            raise _refusal(type(self), name, equivalent)
