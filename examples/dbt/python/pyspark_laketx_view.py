"""The data source `laketx_view` of Spark: its one row is what became of a materialized view that it builds.

    CREATE TEMPORARY VIEW done USING laketx_view
    OPTIONS (uri 'laketx://127.0.0.1:7070', warehouse '/lake', name 'shop.daily', query 'SELECT …');
    SELECT * FROM done

Spark finds it by its file's name, if the file is on the path of the Python that Spark's workers run. That Python has
`laketx[views]`; the one that runs dbt needs no part of LakeTX.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from laketx import Lake, MaterializedView

COLUMNS = "kind string, version bigint, reason string"
NEW = "_new"  # at the end of the name of a view that is about to take the place of another one


class DefaultSource(DataSource):
    """A view to build; its options are named in `built`."""

    @classmethod
    def name(cls) -> str:
        return "laketx_view"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - as Spark calls it
        return Builder(dict(self.options))


class Builder(DataSourceReader):
    """Builds the view in one task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002 - as Spark calls it
        from laketx import connect  # noqa: PLC0415 - Spark's workers alone have it

        with connect(self._options["uri"], warehouse=self._options["warehouse"], user="dbt") as lake:
            yield built(lake, self._options)


def built(lake: Lake, options: Mapping[str, str]) -> tuple[str, int, str]:
    """Create a view, or refresh the one that is there; say how, and at which version it is.

    `name` and `query`; `comment`, `schedule`, `target_lag`, and `strict`, if it is "true"; `full`: "true" computes the
    whole query. A view of another query is replaced: by one that has its rows, so that a query that fails changes
    nothing. So is a view of which a source was dropped and made again.
    """
    name, query = options["name"], options["query"].strip()
    if name not in lake.materialized_views(name.partition(".")[0]):
        return "created", created(lake, name, query, options).status().version, ""
    view = lake.materialized_view(name)
    if view.query != query or not has_its_sources(lake, view):
        if name + NEW in lake.materialized_views(name.partition(".")[0]):  # of a build that was killed
            lake.materialized_view(name + NEW).drop()
        new = created(lake, name + NEW, query, options)
        view.drop()
        lake.rename_table(name + NEW, name)
        return "replaced", new.status().version, ""
    schedule, target_lag = options.get("schedule", ""), options.get("target_lag", "")
    view.alter(schedule=schedule or ("" if target_lag else "MANUAL"), target_lag=target_lag)
    done = view.refresh(full=options.get("full") == "true")
    return done.kind, done.version, done.reason


def created(lake: Lake, name: str, query: str, options: Mapping[str, str]) -> MaterializedView:
    return lake.create_materialized_view(
        name,
        query,
        strict=options.get("strict") == "true",
        comment=options.get("comment", ""),
        schedule=options.get("schedule", ""),
        target_lag=options.get("target_lag", ""),
    )


def has_its_sources(lake: Lake, view: MaterializedView) -> bool:
    """Whether the tables of the query are the ones that it had when the view was made."""
    sources = json.loads(view.table.meta.properties["view.sources"])
    return all(lake.table(name).table_id == source["id"] for name, source in sources.items())
