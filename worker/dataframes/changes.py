"""Changes of a table's rows in (since, until] as a DataFrame: resolves the range; the catalog's reader reads it."""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql import DataFrame

from protos.laketx.v1 import read_pb2
from worker.arrow.changes.commits import check_mode, check_own_columns, check_range
from worker.connection.table_view import TableView
from worker.connection.versions import Point, version_at, zone_of
from worker.spark.session import changes_by_catalog, changes_by_jar, is_classic, require_jar

VERSIONS_PER_PAGE: Final = 500


def read_changes(table: TableView, *, since: Point, until: Point | None = None, mode: str = "latest") -> DataFrame:
    """The rows that changed in (since, until], each with its kind of change, version and time.

    A point is a version, or a time as text or datetime. The columns are those of the table at `until`. The versions
    stay pinned until the lake closes.
    """
    check_mode(mode)
    zone = partial(zone_of, table.lake)
    begin = version_at(table, since, zone)
    end = table.client.resolve_version(table.table_id).version if until is None else version_at(table, until, zone)
    check_range(begin, end)
    then = table.at(end)
    check_own_columns(then.meta)
    table.lake.pins.hold(table.table_id, {begin, end, *_logical_versions(table, begin, end)})
    is_chosen = until is not None
    if is_classic(table.spark):
        require_jar(table.spark)
        definition = then.meta.SerializeToString()
        return changes_by_jar(
            table.spark, table.lake.address, definition, begin=begin, end=end, mode=mode, is_chosen=is_chosen
        )
    name = table.lake.name_of(table.table_id)
    return changes_by_catalog(table.spark, name, begin=begin, end=end, mode=mode, is_chosen=is_chosen)


def _logical_versions(table: TableView, begin: int, end: int) -> list[int]:
    version_filter = read_pb2.VersionFilter(from_version=begin + 1, to_version=end, logical_only=True)
    listed = table.client.list_versions(table.table_id, matching=version_filter, page_size=VERSIONS_PER_PAGE)
    return [] if begin == end else [version_info.version for version_info in listed]
