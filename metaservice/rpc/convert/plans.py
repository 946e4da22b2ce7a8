"""Plans on the wire. Requests become what the service plans by; stored bytes become answers without being parsed.

An entry's stored payload is the wire's DataFile or DeleteSet, so a plan puts it into a LiveEntry by writing a tag and a
length before it. `PlanScan` and `ListFiles` answer such bytes; their handlers have no serialiser (`edge.RAW_ANSWERS`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, Protocol

from metaservice.core import limits
from metaservice.core.errors import invalid
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.partitions import wire_kind
from metaservice.core.table.predicates import TRUE, Predicate, SqlValue, partition_part
from metaservice.core.table.pruning import UNKNOWN, Row, bounds, new_pruning, show
from metaservice.core.table.rows import ColumnType
from metaservice.core.varint import varint
from metaservice.rpc.convert import answers, wire, wire_rows
from metaservice.rpc.convert.client_features import ANY, Reader
from metaservice.rpc.convert.joined_rows import joined_entries
from metaservice.rpc.convert.paging import Room
from metaservice.service.decider.views import TableView
from metaservice.service.read.increments import Increment
from metaservice.service.read.key_files import KeyFiles
from metaservice.service.read.planning import Planning
from metaservice.service.read.reads import Reads
from metaservice.service.read.scan import Scan
from metaservice.service.read.scan_request import Explanation, ScanRequest
from protos.laketx.v1 import common_pb2, read_pb2

CONTENT: Final = b"\x8a\x01"  # the tag of DataFile.content
MODES: Final = (
    read_pb2.CHANGES_MODE_UNSPECIFIED,
    read_pb2.CHANGES_MODE_LOG,
    read_pb2.CHANGES_MODE_DIFFERENCE,
)


class PlannedEntry(Protocol):
    """A stored entry, with the facts that the wire shows."""

    @property
    def payload(self) -> bytes: ...

    @property
    def is_delete_set(self) -> bool: ...

    @property
    def first_row_id(self) -> int: ...

    @property
    def data_version(self) -> int: ...

    @property
    def added(self) -> int: ...

    @property
    def inlined(self) -> bool: ...


class ScannedEntry(PlannedEntry, Protocol):
    """An entry of a plan."""

    @property
    def path(self) -> str: ...


# -- requests ----------------------------------------------------------------------------------------------------------


def scan(planning: Planning, reads: Reads, request: read_pb2.PlanScanRequest, reader: Reader = ANY) -> Iterator[bytes]:
    table = reads.get_table(table_id=wire.table_id(request.table_id))
    version = reads.check_version(table, request.version if request.HasField("version") else None)
    has_names = request.HasField("predicate") and reader.names_versions
    meta = reads.meta_at(table, version) if has_names else table.meta
    key_files = key_files_of(request, meta)
    planned = planning.scan(table, scan_request(request, meta, version, explain=request.explain, key_files=key_files))
    return scan_answers(planned, reader, without_stats=request.without_stats, explain=request.explain)


def scan_request(
    request: read_pb2.PlanScanRequest | read_pb2.TableScan,
    meta: TableMeta,
    version: int,
    *,
    explain: bool = False,
    key_files: KeyFiles | None = None,
) -> ScanRequest:
    names = meta.partitioning.names
    predicate = wire.predicate(request.predicate, meta) if request.HasField("predicate") else TRUE
    if len(request.partitions) > limits.PLAN_PARTITIONS_MAX:
        raise invalid("TOO_MANY_PARTITIONS", count=len(request.partitions), most=limits.PLAN_PARTITIONS_MAX)
    named = frozenset(wire.partition(partition, meta.partitioning) for partition in request.partitions) or None
    types = {column.name: column.type for column in meta.columns}
    pruning = new_pruning(predicate, types, names, meta.primary_key)
    if meta.is_partial:
        pruning = pruning.of_keys()
    reader = BoundsReader(column_types(meta, pruning.columns)) if pruning.columns else None
    return ScanRequest(version, partition_part(predicate, names), named, pruning, reader, explain, key_files)


def key_files_of(request: read_pb2.PlanScanRequest, meta: TableMeta) -> KeyFiles | None:
    """Return what a reader of some keys already has; None for a table without keys."""
    key_files = request.key_files
    if not request.HasField("key_files") or not meta.keyed or request.more:
        return None
    if len(key_files.files) > common_pb2.LIMIT_KEY_FILES:
        raise invalid("TOO_MANY_PATHS", count=len(key_files.files), most=common_pb2.LIMIT_KEY_FILES)
    partitioning = meta.partitioning
    files = tuple(
        (wire.partition(file.partition, partitioning), wire.bucket(file.bucket, meta), wire_rows.named_path(file.path))
        for file in key_files.files
    )
    version = wire.version(key_files.version, "key_files.version")
    return KeyFiles(key_files.history_epoch, version, frozenset(key_files.buckets), files)


def column_types(meta: TableMeta, names: Iterable[str]) -> list[ColumnType]:
    by_name = {column.name: (column.column_id, column.type) for column in meta.columns}
    return [by_name[name] for name in names]


class BoundsReader:
    """Reads the bounds of some columns from the bytes of a DataFile."""

    def __init__(self, columns: Iterable[ColumnType]) -> None:
        self._places = {number: (place, wire_kind(kind)) for place, (number, kind) in enumerate(columns)}

    @property
    def key(self) -> tuple[tuple[int, tuple[int, str | None]], ...]:
        return tuple(self._places.items())

    def read(self, payload: bytes) -> Row:
        file, places = common_pb2.DataFile.FromString(payload), self._places
        row = [UNKNOWN] * len(places)
        for stats in file.stats:
            place_and_kind = places.get(stats.column_id)
            if place_and_kind is not None:
                place, kind = place_and_kind
                if kind == "real" and file.external:  # another program's, which may know another order of NaN
                    stats.ClearField("min")
                    stats.ClearField("max")
                nulls = stats.nulls if stats.HasField("nulls") else None
                row[place] = bounds(_bound(stats.min, kind), _bound(stats.max, kind), nulls, file.rows)
        return tuple(row)


def _bound(value: common_pb2.Value, kind: str | None) -> SqlValue:
    """Return a bound; None if it is missing or has another type."""
    given = value.WhichOneof("kind")
    if given is None or given != kind:
        return None
    bound: SqlValue = getattr(value, given)
    if kind != "decimal":
        return bound
    try:
        number = Decimal(str(bound))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def inlined(reads: Reads, request: read_pb2.ReadInlinedRequest) -> Iterator[read_pb2.ReadInlinedResponse]:
    """The rows of inlined files, in parts."""
    if len(request.paths) > limits.PATHS_PER_CHECK_MAX:
        raise invalid("TOO_MANY_PATHS", count=len(request.paths), most=limits.PATHS_PER_CHECK_MAX)
    table = reads.get_table(table_id=wire.table_id(request.table_id))
    part, size = read_pb2.ReadInlinedResponse(), 0
    for path, content in reads.inlined(table, request.paths):
        if size and size + len(content) > limits.PART_BYTES:
            yield part
            part, size = read_pb2.ReadInlinedResponse(), 0
        part.files.add(path=path, content=content)
        size += len(content) + len(path)
    yield part


# -- answers -----------------------------------------------------------------------------------------------------------


def scan_answers(
    planned: Scan,
    reader: Reader,
    *,
    without_stats: bool,
    explain: bool,
    with_rows: bool = False,
    join_rows: bool = False,
    first: bytes = b"",
    each: bytes = b"",
) -> Iterator[bytes]:
    """Yield PlanScanResponses as bytes. `first` and `each` are further fields of the first part and of each part."""
    shown = _without_stats if without_stats else _payload

    def frame(entry: ScannedEntry) -> bytes:
        payload = shown(entry)
        if with_rows and entry.inlined:
            content = planned.content(entry.path)
            payload += CONTENT + varint(len(content)) + content
        return _framed(entry, payload)

    if with_rows and reader.knows_inlined and reader.folds(planned.meta):
        entries = planned.answered(frame, without_stats, joined_entries if join_rows else None)
    else:
        entries = map(frame, reader.shown(planned.entries(), planned.meta))
    yield from entry_answers(
        planned.version, entries, lambda: _explained(planned) if explain else b"", first=first, each=each
    )


def _explained(planned: Scan) -> bytes:
    return read_pb2.PlanScanResponse(explanation=explanation(planned.explanation)).SerializeToString()


def entry_answers(
    version: int,
    entries: Iterable[bytes],
    last: Callable[[], bytes] = bytes,
    *,
    first: bytes = b"",
    each: bytes = b"",
) -> Iterator[bytes]:
    """PlanScanResponse or ListFilesResponse, which share their fields, as bytes of about PART_BYTES each.

    `entries` are fields of it, one or several at once; `last` ends the last part.
    """
    head = b"\x08" + varint(version) + each
    parts, left = [head + first], limits.PART_BYTES - len(first)
    for entry in entries:
        length = len(entry)
        if length > left and (len(parts) > 1 or first):
            yield b"".join(parts)
            parts, left, first = [head], limits.PART_BYTES, b""
        parts.append(entry)
        left -= length
    parts.append(last())
    yield b"".join(parts)


def live_entry(entry: PlannedEntry) -> bytes:
    """A LiveEntry around the stored payload."""
    return _live_entry(entry, _payload(entry))


def listed(entry: PlannedEntry) -> bytes:
    """The same as a field of an answer."""
    return _framed(entry, _payload(entry))


def _payload(entry: PlannedEntry) -> bytes:
    first_row_id = entry.first_row_id
    return entry.payload + b"\x70" + varint(first_row_id) if first_row_id else entry.payload


def _without_stats(entry: PlannedEntry) -> bytes:
    payload = _payload(entry)
    if entry.is_delete_set:
        return payload
    file = common_pb2.DataFile.FromString(payload)
    file.ClearField("stats")
    return file.SerializeToString()


def _framed(entry: PlannedEntry, payload: bytes) -> bytes:
    """Return a LiveEntry as field 2 of an answer, its number in all answers."""
    entry_bytes = _live_entry(entry, payload)
    return b"\x12" + varint(len(entry_bytes)) + entry_bytes


def _live_entry(entry: PlannedEntry, payload: bytes) -> bytes:
    tag = b"\x12" if entry.is_delete_set else b"\x0a"
    return tag + varint(len(payload)) + payload + _versions(entry.data_version, entry.added)


@lru_cache(4_096)
def _versions(data_version: int, added: int) -> bytes:
    return b"\x18" + varint(data_version) + b"\x20" + varint(added)


def explanation(counts: Explanation) -> read_pb2.PlanExplanation:
    """Convert an explanation; the more parts a condition has, the shorter each is shown."""
    chars = min(limits.TEXT_CHARS_MAX, limits.EXPLANATION_CHARS_MAX // max(len(counts.conjuncts), 1))
    return read_pb2.PlanExplanation(
        partitions=counts.partitions,
        partitions_pruned=counts.partitions_pruned,
        files=counts.files,
        files_pruned_by_partition=counts.files_pruned_by_partition,
        files_pruned_by_statistics=counts.files_pruned_by_statistics,
        files_kept=counts.files_kept,
        delete_sets=counts.delete_sets,
        delete_sets_kept=counts.delete_sets_kept,
        conjuncts=[
            read_pb2.ConjunctExplanation(conjunct=show(part)[:chars], by_partition=by_partition, files_pruned=files)
            for (part, by_partition), files in counts.conjuncts.items()
        ],
    )


# -- increments --------------------------------------------------------------------------------------------------------


def changes(
    planning: Planning, reads: Reads, request: read_pb2.PlanChangesRequest, reader: Reader = ANY
) -> Iterator[read_pb2.PlanChangesResponse]:
    table = reads.get_table(table_id=wire.table_id(request.table_id))
    after = reads.check_version(table, wire.version(request.from_version, "from_version"))
    to = reads.check_version(table, request.to_version if request.HasField("to_version") else None)
    if request.mode not in MODES:
        raise invalid("CHANGES_MODE_INVALID", mode=request.mode)
    if after > to:
        raise invalid("RANGE_INVALID", "the range ends before it begins: swap its ends", after=after, to=to)
    on_partitions = _on_partitions(request, reads, table, to if reader.names_versions else table.head)
    if request.mode == read_pb2.CHANGES_MODE_DIFFERENCE:
        increments: Iterable[Increment] = [planning.difference(table, after, to, on_partitions)]
    else:
        increments = planning.log(table, after, to, on_partitions)
    return _changes(increments, to, reader, table.meta)


def _on_partitions(request: read_pb2.PlanChangesRequest, reads: Reads, table: TableView, to: int) -> Predicate:
    if not request.HasField("predicate"):
        return TRUE
    meta = reads.meta_at(table, to)
    return partition_part(wire.predicate(request.predicate, meta), meta.partitioning.names)


def _changes(
    increments: Iterable[Increment], to: int, reader: Reader, meta: TableMeta
) -> Iterator[read_pb2.PlanChangesResponse]:
    nothing = True
    for increment in increments:
        nothing = False
        yield from _increment(increment, to, reader, meta)
    if nothing:
        yield read_pb2.PlanChangesResponse(to_version=to)


def _increment(
    increment: Increment, to: int, reader: Reader, meta: TableMeta
) -> Iterator[read_pb2.PlanChangesResponse]:
    version = answers.version(increment.commit) if increment.commit is not None else None
    part, room = read_pb2.PlanChangesResponse(version=version, to_version=to), Room(limits.PART_BYTES)
    for name, entries in (("added", increment.added), ("removed", increment.removed)):
        for entry in reader.shown(entries, meta):
            framed = live_entry(entry)
            if not room.takes(len(framed)):
                part.more = True
                yield part
                part, room = read_pb2.PlanChangesResponse(version=version, to_version=to), Room(limits.PART_BYTES)
                room.takes(len(framed))
            getattr(part, name).add().ParseFromString(framed)
    yield part
