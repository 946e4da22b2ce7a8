"""Commits, conflicts, failures and what happens to branches, as CloudEvents 1.0 in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from metaservice.cli.values import as_json
from protos.laketx.v1 import catalog_pb2, maintenance_pb2, read_pb2, transaction_pb2

COMMIT: Final = "dev.laketx.commit"
CONFLICT: Final = "dev.laketx.conflict"
GAP: Final = "dev.laketx.gap"
BRANCH: Final = "dev.laketx.branch"
FAILURE: Final = "dev.laketx.failure"
LINEAGE: Final = "lineage"  # an event of OpenLineage, which is sent as it is
SINGLE: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
Event = dict[str, Any]


def commit_event(source: str, table: catalog_pb2.Table, version: read_pb2.Version) -> Event:
    """A version of a table, with the content of `laketx versions -o json`."""
    number = version.version
    event = _event(source, COMMIT, f"{table.table_id}/{number}", version.commit_time_us, table.name, table.table_id)
    return {**event, "sequence": f"{number:019d}", "data": as_json(version)}


def conflict_event(source: str, table: str, transaction: transaction_pb2.Transaction) -> Event:
    """A transaction that lost a race, with the content of `laketx why -o json`."""
    table_id = transaction.conflict.table_id
    event = _event(source, CONFLICT, transaction.txn_id, transaction.end_time_us, table, table_id)
    return {**event, "data": as_json(transaction)}


def gap_event(source: str, table: catalog_pb2.Table, first: int, last: int, reason: str, now_us: int) -> Event:
    """Commits that can't be delivered: the service no longer keeps them."""
    event = _event(source, GAP, f"{table.table_id}/{first}-{last}", now_us, table.name, table.table_id)
    return {**event, "data": {"from_version": first, "to_version": last, "reason": reason}}


def branch_event(source: str, event: catalog_pb2.BranchEvent) -> Event:
    """An event of a branch, with the content of `laketx branch events -o json`."""
    event_of_branch = _event(source, BRANCH, f"branches/{event.number}", event.time_us, event.branch)
    return {**event_of_branch, "sequence": f"{event.number:019d}", "data": as_json(event)}


def branch_gap_event(source: str, first: int, last: int, now_us: int) -> Event:
    """Events of branches that can't be delivered: the service no longer keeps them."""
    event_of_branch = _event(source, GAP, f"branches/{first}-{last}", now_us, "branches")
    return {**event_of_branch, "data": {"from_number": first, "to_number": last, "reason": "RETIRED"}}


def refresh_failure_event(source: str, view: catalog_pb2.Table, version: read_pb2.Version, error: str) -> Event:
    """A refresh of a view that failed, as the commit notes it."""
    number = version.version
    name = f"{view.table_id}/{number}/failure"
    event = _event(source, FAILURE, name, version.commit_time_us, view.name, view.table_id)
    return {**event, "sequence": f"{number:019d}", "data": {"kind": "REFRESH", "name": view.name, "error": error}}


def run_failure_event(source: str, task: maintenance_pb2.PeriodicTask, run: maintenance_pb2.PeriodicRun) -> Event:
    """A run of a periodic task that failed, as `laketx periodic history -o json` tells it."""
    name = f"periodic/{task.task_id}/{run.due_time_us}-{run.end_time_us}"
    event = _event(source, FAILURE, name, run.end_time_us, task.name, task.table_id)
    data = {"kind": "PERIODIC_TASK", "name": task.name, "error": run.error, "run": as_json(run)}
    return {**event, "sequence": f"{run.end_time_us:019d}", "data": data}


def body_of(events: Sequence[Event], *, batched: bool) -> tuple[bytes, str]:
    """The body of a request in structured mode, and its content type."""
    if LINEAGE in events[0]:
        return json.dumps(events[0][LINEAGE], ensure_ascii=False, separators=(",", ":")).encode(), "application/json"
    document = list(events) if batched else events[0]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(), BATCH if batched else SINGLE


def _event(source: str, kind: str, name: str, time_us: int, subject: str, table_id: str = "") -> Event:
    return {
        "specversion": "1.0",
        "id": name,
        "source": source,
        "type": kind,
        "subject": subject,
        "time": datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        **({"tableid": table_id} if table_id else {}),
    }
