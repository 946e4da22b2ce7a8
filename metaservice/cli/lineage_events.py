"""Commits as events of OpenLineage: which table, at which version, was made from which others.

A transaction is a run, and each table that it changed an output of it; its inputs are what it read: the vector of a
refresh, the sources of a periodic task, the tables that the transaction named. Versions are datasets' versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from metaservice.cli.cloud_events import LINEAGE, Event
from metaservice.cli.values import word
from metaservice.client import MetaClient, MetaServiceError
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2

SPECIFICATION: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS: Final = {
    "version": "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    "schema": "https://openlineage.io/spec/facets/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "outputStatistics": "https://openlineage.io/spec/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json"
    "#/$defs/OutputStatisticsOutputDatasetFacet",
    "sql": "https://openlineage.io/spec/facets/1-1-0/SQLJobFacet.json#/$defs/SQLJobFacet",
    "jobType": "https://openlineage.io/spec/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
}
PRODUCER: Final = "urn:laketx:events"
VECTOR, TASK, TASK_SOURCES, TASK_STATEMENT = "view.vector", "task.name", "task.sources", "task.statement"
QUERY: Final = "view.query"  # a property of the tables that are materialized views


class LineageEvents:
    """Makes an event of each commit; looks up names and transactions."""

    def __init__(self, client: MetaClient, namespace: str, source: str) -> None:
        self._client = client
        self._namespace = namespace
        self._source = source
        self._names: dict[str, str] = {}

    def event(self, table: catalog_pb2.Table, version: read_pb2.Version) -> Event:
        """The event, with the id that the same commit has among CloudEvents."""
        self._names[table.table_id] = table.name
        time = datetime.fromtimestamp(version.commit_time_us / 1e6, UTC).isoformat(timespec="microseconds")
        inputs = [self._dataset(name, number) for name, number in sorted(self._inputs(table, version)) if name]
        lineage = {
            "eventType": "COMPLETE",
            "eventTime": time.replace("+00:00", "Z"),
            "producer": PRODUCER,
            "schemaURL": SPECIFICATION,
            "run": {"runId": version.txn_id or table.table_id},
            "job": self._job(table, version),
            "inputs": inputs,
            "outputs": [self._output(table, version)],
        }
        return {"source": self._source, "id": f"{table.table_id}/{version.version}", LINEAGE: lineage}

    def _job(self, table: catalog_pb2.Table, version: read_pb2.Version) -> dict[str, Any]:
        """A view's refresh, a periodic task, or an operation on a table."""
        operation = word(common_pb2.Operation.Name, version.operation).removeprefix("OPERATION_").lower()
        properties = version.properties
        name, kind, sql = f"{operation} {table.name}", operation.upper(), ""
        if VECTOR in properties:
            name, kind, sql = f"refresh {table.name}", "REFRESH", table.properties.get(QUERY, "")
        elif TASK in properties:
            name, kind, sql = properties[TASK], "PERIODIC_TASK", properties.get(TASK_STATEMENT, "")
        facets = {"jobType": _facet("jobType", processingType="BATCH", integration="LAKETX", jobType=kind)}
        if sql:
            facets["sql"] = _facet("sql", query=sql)
        return {"namespace": self._namespace, "name": name, "facets": facets}

    def _inputs(self, table: catalog_pb2.Table, version: read_pb2.Version) -> Iterator[tuple[str, int]]:
        """Names and versions of what the commit was made from."""
        for key in (VECTOR, TASK_SOURCES):
            for table_id, number in json.loads(version.properties.get(key, "{}")).items():
                yield self._name(table_id), number
        if VECTOR in version.properties or TASK in version.properties:
            return
        blind = (common_pb2.OPERATION_INSERT, common_pb2.OPERATION_CREATE)
        for intent in self._intents(version):
            if intent.table_id != table.table_id and intent.operation not in blind:
                yield self._name(intent.table_id), intent.read_version
        if version.operation not in blind and version.version > 0:
            yield table.name, version.read_version

    def _intents(self, version: read_pb2.Version) -> list[Any]:
        try:
            return list(self._client.get_transaction(version.txn_id).tables) if version.txn_id else []
        except MetaServiceError as error:
            if error.reason != "TRANSACTION_UNKNOWN":
                raise
            return []  # its outcome is kept for a week

    def _output(self, table: catalog_pb2.Table, version: read_pb2.Version) -> dict[str, Any]:
        output = self._dataset(table.name, version.version)
        fields = [{"name": column.name, "type": column.type} for column in table.columns]
        output["facets"]["schema"] = _facet("schema", fields=fields)
        statistics = _facet("outputStatistics", rowCount=version.rows_added, size=version.bytes_added)
        return {**output, "outputFacets": {"outputStatistics": statistics}}

    def _dataset(self, name: str, version: int) -> dict[str, Any]:
        facets = {"version": _facet("version", datasetVersion=str(version))}
        return {"namespace": self._namespace, "name": name, "facets": facets}

    def _name(self, table_id: str) -> str:
        """Empty: nobody knows the table any more."""
        if table_id not in self._names:
            try:
                self._names[table_id] = self._client.get_table(table_id=table_id).name
            except MetaServiceError:
                return ""
        return self._names[table_id]


def _facet(kind: str, **fields: object) -> Mapping[str, object]:
    return {"_producer": PRODUCER, "_schemaURL": FACETS[kind], **fields}
