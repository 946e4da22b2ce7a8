"""Commits and failures as events of OpenLineage: which table, at which version, was made from which others.

A transaction is a run, and each table that it changed an output of it; its inputs are what it read: the vector of a
refresh, the sources of a periodic task, the tables that the transaction named. Versions are datasets' versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from metaservice.cli.cloud_events import LINEAGE, Event
from metaservice.cli.values import word
from metaservice.client import MetaClient, MetaServiceError
from protos.laketx.v1 import catalog_pb2, common_pb2, maintenance_pb2, read_pb2

SPECIFICATION: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
FACETS: Final = {
    "version": "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
    "schema": "https://openlineage.io/spec/facets/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "outputStatistics": "https://openlineage.io/spec/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json"
    "#/$defs/OutputStatisticsOutputDatasetFacet",
    "errorMessage": "https://openlineage.io/spec/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "sql": "https://openlineage.io/spec/facets/1-1-0/SQLJobFacet.json#/$defs/SQLJobFacet",
    "jobType": "https://openlineage.io/spec/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
}
PRODUCER: Final = "urn:laketx:events"
VECTOR, TASK, TASK_SOURCES, TASK_STATEMENT = "view.vector", "task.name", "task.sources", "task.statement"
QUERY, SOURCES = "view.query", "view.sources"  # properties of the tables that are materialized views


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
        inputs = [self._dataset(name, number) for name, number in sorted(self._inputs(table, version)) if name]
        lineage = {
            "eventType": "COMPLETE",
            "eventTime": _time(version.commit_time_us),
            "producer": PRODUCER,
            "schemaURL": SPECIFICATION,
            "run": {"runId": version.txn_id or table.table_id},
            "job": self._job(table, version),
            "inputs": inputs,
            "outputs": [self._output(table, version)],
        }
        return {"source": self._source, "id": f"{table.table_id}/{version.version}", LINEAGE: lineage}

    def refresh_failure(self, view: catalog_pb2.Table, version: read_pb2.Version, error: str) -> Event:
        """A refresh that failed, in place of the commit that notes it."""
        sources = [self._name(each["id"]) for each in json.loads(view.properties.get(SOURCES, "{}")).values()]
        number, sql = f"{view.table_id}/{version.version}", view.properties.get(QUERY, "")
        job = self._named_job(f"refresh {view.name}", "REFRESH", sql)
        return self._failure(number, version.commit_time_us, job, sources, view.name, error)

    def run_failure(self, task: maintenance_pb2.PeriodicTask, run: maintenance_pb2.PeriodicRun) -> Event:
        """A run of a periodic task that failed."""
        number = f"periodic/{task.task_id}/{run.due_time_us}-{run.end_time_us}"
        job = self._named_job(task.name, "PERIODIC_TASK", task.statement)
        sources, target = map(self._name, task.source_ids), self._name(task.table_id)
        return self._failure(number, run.end_time_us, job, sources, target, run.error)

    def _failure(
        self, number: str, time_us: int, job: dict[str, Any], sources: Iterable[str], target: str, error: str
    ) -> Event:
        facets = {"errorMessage": _facet("errorMessage", message=error, programmingLanguage="Python")}
        lineage = {
            "eventType": "FAIL",
            "eventTime": _time(time_us),
            "producer": PRODUCER,
            "schemaURL": SPECIFICATION,
            "run": {"runId": str(uuid5(NAMESPACE_URL, f"{self._source}/{number}")), "facets": facets},
            "job": job,
            "inputs": [{"namespace": self._namespace, "name": name} for name in sorted(filter(None, sources))],
            "outputs": [{"namespace": self._namespace, "name": target}] if target else [],
        }
        return {"source": self._source, "id": number, LINEAGE: lineage}

    def _job(self, table: catalog_pb2.Table, version: read_pb2.Version) -> dict[str, Any]:
        """A view's refresh, a periodic task, or an operation on a table."""
        operation = word(common_pb2.Operation.Name, version.operation).removeprefix("OPERATION_").lower()
        properties = version.properties
        name, kind, sql = f"{operation} {table.name}", operation.upper(), ""
        if VECTOR in properties:
            name, kind, sql = f"refresh {table.name}", "REFRESH", table.properties.get(QUERY, "")
        elif TASK in properties:
            name, kind, sql = properties[TASK], "PERIODIC_TASK", properties.get(TASK_STATEMENT, "")
        return self._named_job(name, kind, sql)

    def _named_job(self, name: str, kind: str, sql: str) -> dict[str, Any]:
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


def _time(time_us: int) -> str:
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _facet(kind: str, **fields: object) -> Mapping[str, object]:
    return {"_producer": PRODUCER, "_schemaURL": FACETS[kind], **fields}
