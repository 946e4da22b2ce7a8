"""Plans of scans, page by page.

A page is asked for by a token that says all of its plan, so any server can answer it, also one that was started since.
Pages of a plan are parts of one list, which is planned once and kept for the next page.
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
class Asked:
    """A scan, and which page of its files."""

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
    """What the reader of an answer takes: a format, and NULL among partition values."""

    form: int
    takes_null: bool = True


@dataclass(slots=True)
class _Place:
    """What is remembered of a table."""

    made_s: float
    scans: Scans
    files: GeneratedFiles
    lock: threading.Lock = field(default_factory=threading.Lock)
    pinned_until_s: dict[int, float] = field(default_factory=dict)  # by version
    plans: OrderedDict[tuple[int, str], Sequence[PlannedFile]] = field(default_factory=OrderedDict)


class Plans:
    """All plans."""

    def __init__(self, hold_s: float, now_s: Callable[[], float]) -> None:
        """`hold_s`: how long the files of a plan stay readable; `now_s`: a clock that only goes forward."""
        self._hold_s = hold_s
        self._now_s = now_s
        self._places: OrderedDict[str, _Place] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, table: TableView, reader: Reader, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of planTableScan: the first page, and tokens of the others."""
        schemas = list(table.client.list_schemas(table.table_id))
        return self._answer(table, schemas, reader, asked_by(table, schemas, body))

    def answer(self, table: TableView, reader: Reader, asked: Asked) -> dict[str, Any]:
        """The answer of fetchPlanningResult."""
        return self._answer(table, list(table.client.list_schemas(table.table_id)), reader, asked)

    def _answer(self, table: TableView, schemas: Schemas, reader: Reader, asked: Asked) -> dict[str, Any]:
        files = self._files(table, schemas, reader, asked)
        pages = range(1, -(-len(files) // FILES_A_PAGE))
        found = _page(table, schemas, reader, asked, files)
        more = {"plan-tasks": [replace(asked, page=at).token for at in pages]} if pages else {}
        return {"status": "completed", "plan-id": asked.plan_id} | found | more

    def page(self, table: TableView, reader: Reader, asked: Asked) -> dict[str, Any]:
        """The answer of fetchScanTasks."""
        schemas = list(table.client.list_schemas(table.table_id))
        return _page(table, schemas, reader, asked, self._files(table, schemas, reader, asked))

    def forget(self, asked: Asked) -> None:
        with self._lock:
            place = self._places.get(asked.table_id)
        if place is not None:
            with place.lock:
                for key in [one for one in place.plans if one[1] == asked.plan_id]:
                    del place.plans[key]

    def _files(self, table: TableView, schemas: Schemas, reader: Reader, asked: Asked) -> Sequence[PlannedFile]:
        """All files of the plan."""
        place = self._place(table)
        key = reader.form, asked.plan_id
        with place.lock:
            self._pin(place, table, asked.version)
            found = place.plans.get(key)
            if found is None:
                condition = _filters(schemas, asked).condition(asked.filter)
                with_stats = bool(asked.with_stats)
                found = place.scans.plan(table, schemas, asked.version, reader.form, condition, with_stats=with_stats)
                place.files.settle()
            if len(found) > FILES_A_PAGE:
                place.plans[key] = found
                place.plans.move_to_end(key)
                if len(place.plans) > PLANS_KEPT:
                    place.plans.popitem(last=False)
        return found

    def _place(self, table: TableView) -> _Place:
        """A table is forgotten before the purge may delete what was generated for it."""
        now = self._now_s()
        with self._lock:
            found = self._places.pop(table.table_id, None)
            if found is None or now - found.made_s > RENEW_S:
                folder = f"{table.folder}/{folder_of(table.meta)}"
                files = GeneratedFiles(folder)
                found = _Place(now, Scans(location_of(folder).rstrip("/"), files.put_once), files)
            self._places[table.table_id] = found
            if len(self._places) > TABLES_MAX:
                self._places.popitem(last=False)
        return found

    def _pin(self, place: _Place, table: TableView, version: int) -> None:
        """Holds the version, so that the files of the plan stay."""
        now = self._now_s()
        if place.pinned_until_s.get(version, 0.0) - now > REPINNED_BELOW * self._hold_s:
            return
        pin(table.client, table.table_id, [version], self._hold_s)
        place.pinned_until_s = {at: until for at, until in place.pinned_until_s.items() if until > now}
        place.pinned_until_s[version] = now + self._hold_s


# -- requests and tokens -----------------------------------------------------------------------------------------------


def asked_by(table: TableView, schemas: Schemas, body: Mapping[str, Any]) -> Asked:
    """The scan that a request of planTableScan asks for."""
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
    asked = Asked(table.table_id, snapshot - 1, named_at, True if condition is None else condition, case_sensitive)
    filters = _filters(schemas, asked)
    numbers = {filters.column_id(str(one)) for one in listed}
    return replace(asked, with_stats=tuple(sorted(number for number in numbers if number is not None)))


def _typed(body: Mapping[str, Any], name: str, kind: type[T], default: T) -> T:
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise RestError(400, "BadRequestException", f"{name} is {found!r}; expected {kind.__name__}")
    return found


def asked_again(token: str, table_id: str, missing: str) -> Asked:
    """What a token of this table asks for; `missing` is the word for one that nobody gave out."""
    try:
        packed = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        unpacker = zlib.decompressobj()
        found = json.loads(unpacker.decompress(packed, TOKEN_BYTES_MAX))
        asked = Asked(**found | {"with_stats": tuple(map(int, found["with_stats"]))})
        is_whole = unpacker.eof and min(asked.version, asked.named_at, asked.page) >= 0
    except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
        raise RestError(404, missing, "no plan gave this out; plan the scan again") from error
    if not is_whole or asked.table_id != table_id:
        raise RestError(404, missing, "no plan of this table gave this out; plan the scan again")
    return asked


def _filters(schemas: Schemas, asked: Asked) -> Filters:
    named = schema_at(schemas, asked.named_at)
    return Filters(named.columns, schema_at(schemas, asked.version).columns, case_sensitive=asked.case_sensitive)


def _page(
    table: TableView, schemas: Schemas, reader: Reader, asked: Asked, files: Sequence[PlannedFile]
) -> dict[str, Any]:
    planned = schema_at(schemas, asked.version)
    partitions = partition_columns(table.meta, planned.columns)
    tasks = ScanTasks(partitions, planned.columns, reader.form, asked.with_stats, takes_null=reader.takes_null)
    begin = asked.page * FILES_A_PAGE
    return tasks.answer(files[begin : begin + FILES_A_PAGE], asked.filter)
