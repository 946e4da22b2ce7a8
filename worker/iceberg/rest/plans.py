"""Plans of scans, page by page.

The token of a page contains its whole plan, so any server can answer it, also one that was started later. Pages of a
plan are parts of one list, which is planned once and kept for the next page.
"""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeVar

from worker.connection.table_view import TableView
from worker.iceberg.generated_files import GeneratedFiles
from worker.iceberg.locations import location_of
from worker.iceberg.metadata.conditions import Filters
from worker.iceberg.metadata.partitions import partition_columns
from worker.iceberg.metadata.scan_tasks import PlannedFile, ScanTasks
from worker.iceberg.rest.problems import RestError
from worker.iceberg.rest.tables import REPINNED_BELOW, pin
from worker.iceberg.scans import Scans
from worker.iceberg.snapshots import Schemas, schema_at
from worker.services.generated_files import RENEW_S, folder_of

FILES_A_PAGE: Final = 2_000
PLANS_KEPT: Final = 2  # of a table, that have more than one page
TABLES_MAX: Final = 100
TOKEN_BYTES_MAX: Final = 64 << 20  # unpacked
T = TypeVar("T")
INCREMENTAL: Final = ("start-snapshot-id", "end-snapshot-id")


@dataclass(frozen=True, slots=True)
class ScanPage:
    """A scan, and the number of a page of its files."""

    table_id: str
    version: int
    named_at: int  # the version by whose columns the filter goes
    filter: Any = True
    case_sensitive: bool = True
    with_stats: tuple[int, ...] = ()
    page: int = 0

    @property
    def token(self) -> str:
        packed = zlib.compress(json.dumps(asdict(self), separators=(",", ":")).encode())
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")

    @property
    def plan_id(self) -> str:
        return replace(self, page=0).token


@dataclass(frozen=True, slots=True)
class Reader:
    """What a reader supports: a format, and NULL among partition values."""

    form: int
    takes_null: bool = True


@dataclass(slots=True)
class _Place:
    """The cache of a table's plans."""

    made_s: float
    scans: Scans
    files: GeneratedFiles
    lock: threading.Lock = field(default_factory=threading.Lock)
    pinned_until_s: dict[int, float] = field(default_factory=dict)  # by version
    plans: OrderedDict[tuple[int, str], Sequence[PlannedFile]] = field(default_factory=OrderedDict)


class Plans:
    """The plans of all tables."""

    def __init__(self, hold_s: float, now_s: Callable[[], float]) -> None:
        """`hold_s`: how long the files of a plan stay readable; `now_s`: a clock that only goes forward."""
        self._hold_s = hold_s
        self._now_s = now_s
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, table: TableView, reader: Reader, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of planTableScan: the first page, and the tokens of the others."""
        schemas = list(table.client.list_schemas(table.table_id))
        return self._answer(table, schemas, reader, scan_of_request(table, schemas, body))

    def answer(self, table: TableView, reader: Reader, scan: ScanPage) -> dict[str, Any]:
        """Return the answer of fetchPlanningResult."""
        return self._answer(table, list(table.client.list_schemas(table.table_id)), reader, scan)

    def _answer(self, table: TableView, schemas: Schemas, reader: Reader, scan: ScanPage) -> dict[str, Any]:
        files = self._files(table, schemas, reader, scan)
        pages = range(1, -(-len(files) // FILES_A_PAGE))
        first_page = _page(table, schemas, reader, scan, files)
        more = {"plan-tasks": [replace(scan, page=at).token for at in pages]} if pages else {}
        return {"status": "completed", "plan-id": scan.plan_id} | first_page | more

    def page(self, table: TableView, reader: Reader, scan: ScanPage) -> dict[str, Any]:
        """Return the answer of fetchScanTasks."""
        schemas = list(table.client.list_schemas(table.table_id))
        return _page(table, schemas, reader, scan, self._files(table, schemas, reader, scan))

    def forget(self, scan: ScanPage) -> None:
        with self._lock:
            place = self._places.get(scan.table_id)
        if place is not None:
            with place.lock:
                for key in [plan_key for plan_key in place.plans if plan_key[1] == scan.plan_id]:
                    del place.plans[key]

    def _files(self, table: TableView, schemas: Schemas, reader: Reader, scan: ScanPage) -> Sequence[PlannedFile]:
        """Return all files of the plan."""
        place = self._place(table)
        key = reader.form, scan.plan_id
        with place.lock:
            self._pin(place, table, scan.version)
            planned = place.plans.get(key)
            if planned is None:
                condition = _filters(schemas, scan).condition(scan.filter)
                with_stats = bool(scan.with_stats)
                planned = place.scans.plan(table, schemas, scan.version, reader.form, condition, with_stats=with_stats)
                place.files.settle()
            if len(planned) > FILES_A_PAGE:
                place.plans[key] = planned
                place.plans.move_to_end(key)
                if len(place.plans) > PLANS_KEPT:
                    place.plans.popitem(last=False)
        return planned

    def _place(self, table: TableView) -> _Place:
        """Return the cache of a table. It is renewed before the purge may delete the generated files."""
        now = self._now_s()
        with self._lock:
            place = self._places.pop(table.table_id, None)
            if place is None or now - place.made_s > RENEW_S:
                folder = f"{table.folder}/{folder_of(table.meta)}"
                files = GeneratedFiles(folder)
                place = _Place(now, Scans(location_of(folder).rstrip("/"), files.put_once), files)
            self._places[table.table_id] = place
            if len(self._places) > TABLES_MAX:
                self._places.popitem(last=False)
        return place

    def _pin(self, place: _Place, table: TableView, version: int) -> None:
        """Pin the version, so that the files of the plan stay."""
        now = self._now_s()
        if place.pinned_until_s.get(version, 0.0) - now > REPINNED_BELOW * self._hold_s:
            return
        pin(table.client, table.table_id, [version], self._hold_s)
        place.pinned_until_s = {at: until for at, until in place.pinned_until_s.items() if until > now}
        place.pinned_until_s[version] = now + self._hold_s


# -- requests and tokens -----------------------------------------------------------------------------------------------


def scan_of_request(table: TableView, schemas: Schemas, body: Mapping[str, Any]) -> ScanPage:
    """Return the scan of a planTableScan request."""
    if any(body.get(name) is not None for name in INCREMENTAL):
        raise RestError(
            406,
            "UnsupportedOperationException",
            "scans between two snapshots aren't planned; plan a scan of each, or read the changes with LakeTX",
        )
    head = table.meta.head_version
    snapshot = _typed(body, "snapshot-id", int, head + 1)
    if not 1 <= snapshot <= head + 1:
        raise RestError(
            400, "BadRequestException", f"{table.name} has no snapshot {snapshot}; its newest is {head + 1}"
        )
    uses_own = _typed(body, "use-snapshot-schema", bool, False)
    named_at = snapshot - 1 if uses_own else head
    case_sensitive = _typed(body, "case-sensitive", bool, True)
    listed = _typed(body, "stats-fields", list, [])
    condition = body.get("filter")
    scan = ScanPage(table.table_id, snapshot - 1, named_at, True if condition is None else condition, case_sensitive)
    filters = _filters(schemas, scan)
    numbers = {filters.column_id(str(name)) for name in listed}
    return replace(scan, with_stats=tuple(sorted(number for number in numbers if number is not None)))


def _typed(body: Mapping[str, Any], name: str, kind: type[T], default: T) -> T:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RestError(400, "BadRequestException", f"{name} is {value!r}; expected {kind.__name__}")
    return value


def scan_of_token(token: str, table_id: str, missing: str) -> ScanPage:
    """Return the scan of a token. `missing` is the type of the error for an unknown token."""
    try:
        packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        unpacker = zlib.decompressobj()
        fields = json.loads(unpacker.decompress(packed, TOKEN_BYTES_MAX))
        scan = ScanPage(**fields | {"with_stats": tuple(map(int, fields["with_stats"]))})
        is_whole = unpacker.eof and min(scan.version, scan.named_at, scan.page) >= 0
    except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
        raise RestError(404, missing, "no plan gave this out; plan the scan again") from error
    if not is_whole or scan.table_id != table_id:
        raise RestError(404, missing, "no plan of this table gave this out; plan the scan again")
    return scan


def _filters(schemas: Schemas, scan: ScanPage) -> Filters:
    named = schema_at(schemas, scan.named_at)
    return Filters(named.columns, schema_at(schemas, scan.version).columns, case_sensitive=scan.case_sensitive)


def _page(
    table: TableView, schemas: Schemas, reader: Reader, scan: ScanPage, files: Sequence[PlannedFile]
) -> dict[str, Any]:
    planned = schema_at(schemas, scan.version)
    partitions = partition_columns(table.meta, planned.columns)
    tasks = ScanTasks(partitions, planned.columns, reader.form, scan.with_stats, takes_null=reader.takes_null)
    begin = scan.page * FILES_A_PAGE
    return tasks.answer(files[begin : begin + FILES_A_PAGE], scan.filter)
