"""PlanScan: a plan alone, or all that a read needs: a pin, metadata, and the rows of inlined files, of some tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from metaservice.core import limits
from metaservice.core.errors import MetaError, invalid
from metaservice.rpc.convert import answers, plans, wire
from metaservice.rpc.convert.client_features import Reader
from metaservice.rpc.handlers import Context
from metaservice.rpc.services.calls import Servicer
from metaservice.rpc.services.pins import pin_request
from metaservice.service.read.scan import Scan
from protos.laketx.v1 import catalog_pb2, read_pb2


@dataclass(frozen=True, slots=True)
class Instant:
    """Versions of tables at one instant."""

    versions: tuple[int, ...]
    lease_ms: int = 0  # of the pin that keeps them
    pin_id: str = ""  # if this call made it


class ScanMethods(Servicer):
    """Plans, for readers."""

    def _plan_scan(self, request: read_pb2.PlanScanRequest, context: Context) -> Iterator[bytes]:
        reader = Reader.of(context)
        if not (request.pin_id or request.with_tables or request.with_rows or request.more):
            return plans.scan(self._calls.planning, self._calls.reads, request, reader)
        instant = self._instant(request)
        try:
            scans = list(self._scans(request, instant))
        except MetaError:
            if instant.pin_id:
                self._ask(lambda: self._calls.pins.unpin(instant.pin_id))
            raise
        return _answers(request, reader, instant, scans)

    def _instant(self, request: read_pb2.PlanScanRequest) -> Instant:
        tables = [_version_of(table_scan) for table_scan in _table_scans(request)]
        if request.pin_id:
            requested = pin_request(
                read_pb2.PinVersionsRequest(
                    pin_id=request.pin_id, tables=tables, principal=request.principal, lease_ms=request.lease_ms
                )
            )

            def pinned() -> Instant:
                is_new = not self._calls.pins.knows(requested.pin_id)
                pin, lease_ms = self._calls.pins.pin(requested)
                versions = tuple(version for _, version in pin.versions)
                return Instant(versions, lease_ms, pin.pin_id if is_new else "")

            return self._ask(pinned)
        if len(tables) == 1:
            reads = self._calls.reads
            table = reads.get_table(table_id=wire.table_id(request.table_id))
            return Instant((request.version if request.HasField("version") else table.head,))
        if len(tables) > limits.TABLES_PER_TRANSACTION_MAX:
            raise invalid("TABLES_INVALID", "a plan has too many tables: plan some of them", count=len(tables))
        heads = [
            (wire.table_id(table.table_id), table.version if table.HasField("version") else None) for table in tables
        ]
        state = self._calls.decider.state
        return self._ask(
            lambda: Instant(
                tuple(state.get_table(table).head if version is None else version for table, version in heads)
            )
        )

    def _scans(self, request: read_pb2.PlanScanRequest, instant: Instant) -> Iterator[tuple[Scan, catalog_pb2.Table]]:
        """Begin the plans; yield each with its table's metadata."""
        reads = self._calls.reads
        for table_scan, version in zip(_table_scans(request), instant.versions, strict=True):
            table = reads.get_table(table_id=wire.table_id(table_scan.table_id))
            meta = reads.meta_at(table, reads.check_version(table, version))
            scan = plans.scan_request(
                table_scan, meta, version, explain=request.explain, key_files=plans.key_files_of(request, meta)
            )
            yield self._calls.planning.scan(table, scan), answers.table(table, meta)


def _table_scans(request: read_pb2.PlanScanRequest) -> list[read_pb2.PlanScanRequest | read_pb2.TableScan]:
    return [request, *request.more]


def _version_of(table_scan: read_pb2.PlanScanRequest | read_pb2.TableScan) -> read_pb2.TableVersion:
    return read_pb2.TableVersion(
        table_id=table_scan.table_id, version=table_scan.version if table_scan.HasField("version") else None
    )


def _answers(
    request: read_pb2.PlanScanRequest,
    reader: Reader,
    instant: Instant,
    scans: Iterable[tuple[Scan, catalog_pb2.Table]],
) -> Iterator[bytes]:
    lease_ms = instant.lease_ms
    for scan, table in scans:
        first = read_pb2.PlanScanResponse(lease_ms=lease_ms, table=table if request.with_tables else None)
        each = read_pb2.PlanScanResponse(table_id=table.table_id if request.more else "")
        yield from plans.scan_answers(
            scan,
            reader,
            without_stats=request.without_stats,
            explain=request.explain,
            with_rows=request.with_rows,
            join_rows=request.join_rows and not table.primary_key,
            first=first.SerializeToString(),
            each=each.SerializeToString(),
        )
        lease_ms = 0
