"""A table's metadata file: schemas, partitions, snapshots and refs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.iceberg.metadata.facts import MadeSnapshot, TableFacts
from worker.iceberg.metadata.partitions import FIRST_PARTITION_ID, partition_columns, partition_spec
from worker.iceberg.metadata.schemas import iceberg_schema, last_column_id
from worker.iceberg.metadata.sort_orders import UNSORTED, sort_orders

MAIN: Final = "main"
SNAPSHOT: Final = "iceberg.snapshot-id"  # the property of a commit that says which snapshot it was to its client
OPERATIONS: Final = {  # which rows a commit changed; all others may have done anything
    common_pb2.OPERATION_INSERT: "append",
    common_pb2.OPERATION_CREATE: "append",
    common_pb2.OPERATION_DELETE: "delete",
    common_pb2.OPERATION_TRUNCATE: "delete",
    common_pb2.OPERATION_MINOR_COMPACT: "replace",
    common_pb2.OPERATION_MAJOR_COMPACT: "replace",
    common_pb2.OPERATION_CLUSTER: "replace",
    common_pb2.OPERATION_ALTER: "replace",
}


def table_metadata(
    table: TableFacts,
    schemas: Sequence[catalog_pb2.SchemaVersion],
    snapshots: Sequence[MadeSnapshot],
    tags: Iterable[read_pb2.Tag],
    mapping: Sequence[Mapping[str, Any]] = (),
    properties: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the metadata with these snapshots by ascending version; the last one is the current one.

    A snapshot has a parent if its manifests list the files that were removed since: clients retry a commit only across
    such snapshots. A restore has none, because it shows rows again whose deletion clients relied on.
    """
    head = snapshots[-1]
    used = {snapshot.schema.schema_version: snapshot.schema for snapshot in snapshots}
    if (number := table.meta.schema_version) in used:  # the comments of its columns may have changed since
        used[number] = catalog_pb2.SchemaVersion(schema_version=number, columns=table.meta.columns)
    partitions = partition_columns(table.meta, head.schema.columns)
    listed: list[dict[str, Any]] = []
    next_row_id = 0
    for snapshot in snapshots:
        end = max(next_row_id, snapshot.totals.row_ids)
        listed.append(_snapshot(table, snapshot, next_row_id, end))
        next_row_id = end
    whole = {
        "format-version": table.format,
        "table-uuid": table.meta.table_id,
        "location": table.location,
        "last-sequence-number": head.snapshot_id,
        "last-updated-ms": _milliseconds(head),
        "last-column-id": max(last_column_id(schemas), table.meta.last_column_id),
        "schemas": [iceberg_schema(used[number]) for number in sorted(used)],
        "current-schema-id": head.schema.schema_version,
        "partition-specs": [{"spec-id": 0, "fields": partition_spec(partitions)}],
        "default-spec-id": 0,
        "last-partition-id": FIRST_PARTITION_ID - 1 + len(partitions),
        "sort-orders": sort_orders(chain.from_iterable(snapshot.orders for snapshot in snapshots), head.schema.columns),
        "default-sort-order-id": 0,  # writers need not sort: table services do
        "properties": dict(properties)
        | ({"schema.name-mapping.default": json.dumps(mapping)} if mapping else {})
        | ({"comment": table.meta.comment} if table.meta.comment else {}),
        "current-snapshot-id": head.snapshot_id,
        "snapshots": listed,
        "snapshot-log": [
            {"snapshot-id": snapshot.snapshot_id, "timestamp-ms": _milliseconds(snapshot)} for snapshot in snapshots
        ],
        "metadata-log": [],
        "refs": _refs(head, snapshots, tags),
    }
    return whole | ({"next-row-id": next_row_id} if table.format >= 3 else {})


def empty_metadata(table: TableFacts, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of a table that doesn't exist yet. Its schema has the id 0, which some clients require."""
    schema = catalog_pb2.SchemaVersion(schema_version=0, columns=table.meta.columns)
    partitions = partition_columns(table.meta, table.meta.columns)
    whole = {
        "format-version": table.format,
        "table-uuid": table.meta.table_id,
        "location": table.location,
        "last-sequence-number": 0,
        "last-updated-ms": 0,
        "last-column-id": last_column_id([schema]),
        "schemas": [iceberg_schema(schema)],
        "current-schema-id": schema.schema_version,
        "partition-specs": [{"spec-id": 0, "fields": partition_spec(partitions)}],
        "default-spec-id": 0,
        "last-partition-id": FIRST_PARTITION_ID - 1 + len(partitions),
        "sort-orders": [UNSORTED],
        "default-sort-order-id": 0,
        "properties": dict(properties),
        "snapshots": [],
        "snapshot-log": [],
        "metadata-log": [],
        "refs": {},
    }
    return whole | ({"next-row-id": 0} if table.format >= 3 else {})


def _snapshot(table: TableFacts, made: MadeSnapshot, first: int, end: int) -> dict[str, Any]:
    commit, totals = made.commit, made.totals
    summary = {
        "operation": _operation(made),
        "laketx.version": str(made.version),
        "laketx.operation": common_pb2.Operation.Name(commit.operation).removeprefix("OPERATION_").lower(),
        "total-data-files": str(totals.files),
        "total-records": str(totals.rows),
        "total-delete-files": str(totals.delete_files),
        "total-position-deletes": str(totals.hidden),
        "total-equality-deletes": "0",
    }
    if commit.HasField("time_version_us"):
        summary["laketx.time-version-us"] = str(commit.time_version_us)
    if client_snapshot := commit.properties.get(SNAPSHOT):
        summary["laketx.iceberg-snapshot-id"] = client_snapshot
    snapshot = {
        "snapshot-id": made.snapshot_id,
        "sequence-number": made.snapshot_id,
        "timestamp-ms": _milliseconds(made),
        "manifest-list": f"{table.location}/{made.manifest_list}",
        "schema-id": made.schema.schema_version,
        "summary": summary,
    }
    if made.follows and commit.operation != common_pb2.OPERATION_RESTORE:
        snapshot["parent-snapshot-id"] = made.snapshot_id - 1
    return snapshot | ({"first-row-id": first, "added-rows": end - first} if table.format >= 3 else {})


def _operation(made: MadeSnapshot) -> str:
    """Return the operation of a commit. Clients don't look for removals in an `append`, or additions in a `delete`."""
    operation = OPERATIONS.get(made.commit.operation, "overwrite")
    is_more = {"append": made.removes_files, "delete": made.adds_files}.get(operation, False)
    return "overwrite" if is_more else operation


def _refs(head: MadeSnapshot, snapshots: Sequence[MadeSnapshot], tags: Iterable[read_pb2.Tag]) -> dict[str, Any]:
    """Return the head as `main`, and the tags of its snapshots. A tag called `main` is left out."""
    snapshot_ids = {snapshot.version: snapshot.snapshot_id for snapshot in snapshots}
    refs = {
        tag.name: {"snapshot-id": snapshot_ids[tag.version], "type": "tag"}
        for tag in tags
        if tag.version in snapshot_ids
    }
    return refs | {MAIN: {"snapshot-id": head.snapshot_id, "type": "branch"}}


def _milliseconds(made: MadeSnapshot) -> int:
    return int(made.commit.commit_time_us // 1000)
