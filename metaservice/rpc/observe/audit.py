"""The audit: who asked for what, from where, on what, and what the answer was. One JSON object per line, in order.

A call costs its own thread an append to a queue; a thread of the audit writes. The queue is bounded: what finds no room
is lost and counted, or, where the audit is required, changes are refused until it can be written again.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.metrics import AUDIT_FAILING, AUDIT_LOST, AUDIT_RECORDS, AUDIT_WAITING, Metrics
from metaservice.rpc.observe.call_records import Record, answer_of
from metaservice.shared.log import AUDIT_FAILED, AUDIT_WORKS, Logging, RotatingLines, event

# Every call of the wire is in one of these. A renewal keeps what there is; it is no change.
CHANGES: Final = frozenset(
    f"/laketx.v1.{each}"
    for each in (
        "AccessService/CreateToken",
        "AccessService/GetStorageCredentials",
        "AccessService/Grant",
        "AccessService/Revoke",
        "AccessService/RevokeToken",
        "AdminService/Backup",
        "AdminService/ConfirmClock",
        "AdminService/ReleasePurge",
        "AdminService/StepDown",
        "CatalogService/AlterNamespace",
        "CatalogService/AlterTable",
        "CatalogService/CloneTable",
        "CatalogService/CreateBranch",
        "CatalogService/CreateBranches",
        "CatalogService/CreateNamespace",
        "CatalogService/CreateTable",
        "CatalogService/DropBranch",
        "CatalogService/DropBranches",
        "CatalogService/DropNamespace",
        "CatalogService/DropTable",
        "CatalogService/DropView",
        "CatalogService/ExtendBranch",
        "CatalogService/MergeBranch",
        "CatalogService/PutView",
        "CatalogService/RefreshBranch",
        "CatalogService/RenameView",
        "CatalogService/UndropTable",
        "MaintenanceService/AdvanceKeyCheck",
        "MaintenanceService/AlterPeriodicTask",
        "MaintenanceService/BeginPeriodicRun",
        "MaintenanceService/CancelTask",
        "MaintenanceService/ClaimTask",
        "MaintenanceService/ConfirmPurged",
        "MaintenanceService/ConfirmSwept",
        "MaintenanceService/DropPeriodicTask",
        "MaintenanceService/EndPeriodicRun",
        "MaintenanceService/FinishTask",
        "MaintenanceService/PutPeriodicTask",
        "MaintenanceService/RequestTask",
        "MaintenanceService/SetWarehouse",
        "ReadService/AdvanceCursor",
        "ReadService/CreateCursor",
        "ReadService/CreateTag",
        "ReadService/DropCursor",
        "ReadService/DropTag",
        "ReadService/PinVersions",
        "ReadService/Unpin",
        "TransactionService/AbortTransaction",
        "TransactionService/Append",
        "TransactionService/BeginTransaction",
        "TransactionService/CommitBatch",
        "TransactionService/CommitTransaction",
        "TransactionService/RegisterFiles",
    )
)
READS: Final = frozenset(
    f"/laketx.v1.{each}"
    for each in (
        "AccessService/Can",
        "AccessService/ListGrants",
        "AccessService/ListTokens",
        "AccessService/WhoAmI",
        "AdminService/Check",
        "AdminService/GetStatus",
        "AdminService/ListPins",
        "CatalogService/GetBranch",
        "CatalogService/GetNamespace",
        "CatalogService/GetTable",
        "CatalogService/GetView",
        "CatalogService/ListBranchEvents",
        "CatalogService/ListBranches",
        "CatalogService/ListNamespaces",
        "CatalogService/ListSchemas",
        "CatalogService/ListTables",
        "CatalogService/ListViews",
        "MaintenanceService/CheckPaths",
        "MaintenanceService/GetPeriodicTask",
        "MaintenanceService/GetTask",
        "MaintenanceService/GetWarehouse",
        "MaintenanceService/ListPeriodicRuns",
        "MaintenanceService/ListPeriodicTasks",
        "MaintenanceService/ListPurgeable",
        "MaintenanceService/ListSweepable",
        "MaintenanceService/ListTasks",
        "MaintenanceService/PlanMaintenance",
        "MaintenanceService/RenewTask",
        "ReadService/ListCursors",
        "ReadService/ListFiles",
        "ReadService/ListTags",
        "ReadService/ListVersions",
        "ReadService/PlanChanges",
        "ReadService/PlanScan",
        "ReadService/ReadInlined",
        "ReadService/RenewPin",
        "ReadService/ResolveVersion",
        "ReadService/Watch",
        "TransactionService/ExplainTransaction",
        "TransactionService/GetTransaction",
        "TransactionService/ListTransactions",
        "TransactionService/RenewTransaction",
        "TransactionService/Session",
    )
)
RIGHTS: Final = frozenset({"DENIED", "UNAUTHENTICATED"})  # kinds of refusals for identity or rights
WAITING_MAX: Final = 65_536
LINES_AT_ONCE: Final = 1_024
GATHER_S: Final = 0.05  # a wake-up for each record would cost calls more than the record
RETRY_S: Final = 1.0
STOP_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Where the audit goes and what it contains. Without a file there is none."""

    to: Logging
    reads: bool = False
    required: bool = False


class Audit:
    """Records are put by any thread and written by one."""

    def __init__(
        self,
        settings: AuditSettings,
        table_name: Callable[[str], str],
        publish: Callable[[Record, dict[str, Any]], object] | None = None,
    ) -> None:
        """`table_name` is the name of a table id, or empty; `publish` gets every record too."""
        self._settings = settings
        self._table_name = table_name
        self._publish = publish
        self._lines = RotatingLines(settings.to) if settings.to.file else None
        self._records: deque[Record] = deque()
        self._waiting: deque[bytes] = deque()  # lines, of the writing thread
        self._bell = threading.Event()
        self._counting = threading.Lock()
        self._stopped = threading.Event()
        self.written = 0
        self.lost = 0
        self.failing = False
        if self._lines is not None:
            self._probe()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, if that can be written."""
        self._stopped.set()
        self._bell.set()
        self._thread.join(STOP_S)

    def measure(self, metrics: Metrics) -> None:
        metrics.readings[AUDIT_RECORDS] = lambda: self.written
        metrics.readings[AUDIT_LOST] = lambda: self.lost
        metrics.readings[AUDIT_WAITING] = lambda: len(self._records) + len(self._waiting)
        metrics.readings[AUDIT_FAILING] = lambda: int(self.failing)

    def check(self, method: str) -> None:
        """Refuses a change that could not be recorded, where the audit is required."""
        if self._settings.required and method in CHANGES and (self.failing or len(self._records) >= WAITING_MAX):
            raise MetaError(ErrorKind.UNAVAILABLE, "AUDIT_FAILED")

    def put(self, record: Record) -> None:
        if not self._wants(record):
            return
        records = self._records
        if len(records) >= WAITING_MAX:
            with self._counting:
                self.lost += 1
            return
        records.append(record)
        if not self._bell.is_set():
            self._bell.set()

    def _wants(self, record: Record) -> bool:
        if self._settings.reads or record.method in CHANGES:
            return True
        refusal = record.result
        return isinstance(refusal, MetaError) and refusal.kind.name in RIGHTS

    def _probe(self) -> None:
        """Opens the file, so that a wrong path is told at the start."""
        try:
            assert self._lines is not None
            self._lines.write(deque([b""]), sync=False)
        except OSError as error:
            self._fail(error)

    def _run(self) -> None:
        while True:
            self._bell.wait()
            self._stopped.wait(GATHER_S)
            self._bell.clear()
            while self._records or self._waiting:
                self._take()
                if not self._write():
                    break
            if self._stopped.is_set():
                if self._lines is not None:
                    self._lines.close()
                return
            if self.failing:
                self._stopped.wait(RETRY_S)
                self._bell.set()

    def _take(self) -> None:
        """Turns records into lines; those that wait already come first, and while they do, no more are taken."""
        while self._records and len(self._waiting) < LINES_AT_ONCE:
            record = self._records.popleft()
            document = document_of(record, self._table_name)
            if self._publish is not None:
                self._publish(record, document)
            if self._lines is not None:
                self._waiting.append(json.dumps(document, ensure_ascii=False).encode() + b"\n")
            time.sleep(0)  # calls that wait for the interpreter come first

    def _write(self) -> bool:
        if self._lines is None:
            return True
        before = len(self._waiting)
        try:
            self._lines.write(self._waiting, sync=self._settings.required)
        except OSError as error:
            self._fail(error)
            return False
        finally:
            self.written += before - len(self._waiting)
        if self.failing:
            self.failing = False
            event(AUDIT_WORKS, file=self._settings.to.file, lost=self.lost)
        return True

    def _fail(self, error: OSError) -> None:
        if not self.failing:
            self.failing = True
            event(AUDIT_FAILED, file=self._settings.to.file, error=repr(error))


def document_of(record: Record, table_name: Callable[[str], str]) -> dict[str, Any]:
    """Return the document of a record, without empty fields."""
    tables = [_table(table_id, table_name) for table_id in record.subject.tables]
    fields: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.time_ns // 1_000 / 1e6, UTC).isoformat(timespec="microseconds"),
        "principal": record.caller.principal,
        "declared": record.caller.declared or record.subject.principal,
        "peer": record.caller.peer,
        "method": record.method.removeprefix("/laketx.v1."),
        "tables": tables,
        "name": record.subject.name,
        "transaction": record.subject.txn_id,
        "answer": answer_of(record.result),
        "request": record.request_id,
        "ms": round((record.ended_ns - record.begun_ns) / 1e6, 3),
    }
    return {name: value for name, value in fields.items() if value not in ("", [])}


def _table(table_id: str, table_name: Callable[[str], str]) -> dict[str, str]:
    name = table_name(table_id)
    return {"id": table_id, "name": name} if name else {"id": table_id}
