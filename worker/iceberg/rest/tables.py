"""Tables as loadTable answers them, and the cache of what was generated for answers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cachetools import LRUCache

from metaservice.client import GoneError, MetaClient, NotFoundError, uuid7
from protos.laketx.v1 import catalog_pb2, read_pb2
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.iceberg.commits.properties import shown_properties
from worker.iceberg.commits.txn_ids import folder_id
from worker.iceberg.generated_files import GeneratedFiles
from worker.iceberg.locations import location_of
from worker.iceberg.metadata.facts import METADATA, MadeFile, MadeSnapshot, ShownFile, TableFacts
from worker.iceberg.metadata.table_metadata import table_metadata
from worker.iceberg.snapshots import Snapshots
from worker.services.generated_files import RENEW_S, folder_of

TABLES_MAX: Final = 200
VERDICTS_MAX: Final = 100_000
TAGS_MAX: Final = 100  # that are shown: the newest
PINNED_AT_ONCE: Final = 64
REPINNED_BELOW: Final = 0.75  # of the time that versions are held
WRITES_GO: Final = "00000000-0000-7000-8000-000000000000"  # stands for a new id in each answer


@dataclass(frozen=True, slots=True)
class Showing:
    """The number of earlier snapshots in an answer, and the time for which they stay readable."""

    snapshots: int = 10
    hold_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table's metadata as JSON, and its location."""

    etag: str
    location: str
    metadata: bytes
    snapshots: Sequence[MadeSnapshot]


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A table that a later commit creates: its id and name until then, and its metadata as JSON."""

    table_id: str
    name: str
    metadata: bytes


@dataclass(slots=True)
class _Memory:
    """The cache of a table."""

    made_s: float
    files: GeneratedFiles
    location: str
    snapshots: dict[int, Snapshots] = field(default_factory=dict)  # by format
    lock: threading.Lock = field(default_factory=threading.Lock)
    made: dict[tuple[int, int], MadeSnapshot] = field(default_factory=dict)  # by format and version
    loaded: dict[int, tuple[object, Loaded]] = field(default_factory=dict)  # by format: what it was made of
    pinned: frozenset[int] = frozenset()
    pinned_until_s: float = 0.0
    schemas: tuple[int, list[catalog_pb2.SchemaVersion]] = (0, [])  # by the newest one's version


class Tables:
    """The cache of all tables that were loaded lately."""

    def __init__(self, showing: Showing, now_s: Callable[[], float]) -> None:
        """`now_s`: a clock that only goes forward."""
        self._showing = showing
        self._now_s = now_s
        self._memories: OrderedDict[str, _Memory] = OrderedDict()
        self._verdicts: LRUCache[str, tuple[int, bool]] = LRUCache(VERDICTS_MAX)  # by table: version, can be shown
        self._lock = threading.Lock()

    def load(self, table: TableView, form: int) -> Loaded:
        """Return the table at its newest version, with earlier snapshots and tags."""
        memory = self._memory(table)
        waited = memory.lock.locked()
        with memory.lock:
            cached = memory.loaded.get(form)
            if cached is not None and cached[1].snapshots[-1].version > table.meta.head_version:
                return cached[1]  # of several that waited, the first has made it for all
            table = table.refreshed() if waited else table
            try:
                loaded = self._load(memory, table, form)
            except InputError:
                self._judge(table, can_show=False)
                raise
            self._judge(table, can_show=True)
            return loaded

    def shown_files(self, table: TableView, form: int) -> Sequence[ShownFile]:
        """Return the files of the table's newest version, as its snapshot has them."""
        memory, schemas = self._memory(table), self.schemas(table)
        with memory.lock:
            return _snapshots(memory, form).shown(table, schemas, table.meta.head_version)

    def schemas(self, table: TableView) -> list[catalog_pb2.SchemaVersion]:
        """Return the table's schemas. They are listed again when there is a newer one."""
        memory = self._memory(table)
        version, schemas = memory.schemas
        if version != table.meta.schema_version:
            schemas = list(table.client.list_schemas(table.table_id))
            memory.schemas = max(schema.schema_version for schema in schemas), schemas
        return schemas

    def verdict(self, table_id: str) -> tuple[int, bool]:
        """Return the version that was loaded last, or -1, and whether it could be shown."""
        with self._lock:
            return self._verdicts.get(table_id, (-1, True))

    def _judge(self, table: TableView, *, can_show: bool) -> None:
        with self._lock:
            self._verdicts[table.table_id] = table.meta.head_version, can_show

    def _memory(self, table: TableView) -> _Memory:
        """Return the cache of a table. It is renewed before the purge may delete the generated files."""
        now = self._now_s()
        with self._lock:
            memory = self._memories.pop(table.table_id, None)
            if memory is None or now - memory.made_s > RENEW_S:
                folder = f"{table.folder}/{folder_of(table.meta)}"
                files = GeneratedFiles(folder)
                location = location_of(folder).rstrip("/")
                memory = _Memory(now, files, location)
            self._memories[table.table_id] = memory
            if len(self._memories) > TABLES_MAX:
                self._memories.popitem(last=False)
        return memory

    def _load(self, memory: _Memory, table: TableView, form: int) -> Loaded:
        client, head = table.client, table.meta.head_version
        tags = sorted(client.list_tags(table.table_id), key=lambda tag: tag.version)[-TAGS_MAX:]
        key = (table.meta.SerializeToString(deterministic=True), tuple((tag.name, tag.version) for tag in tags))
        cached = memory.loaded.get(form)
        is_cached = cached is not None and cached[0] == key
        first = max(0, head - self._showing.snapshots)
        versions_to_show = sorted({*range(first, head + 1), *(tag.version for tag in tags if tag.version <= head)})
        versions = self._pin(memory, table, versions_to_show, is_cached=is_cached)
        if cached is not None and is_cached:
            return cached[1]
        schemas = self.schemas(table)
        made = self._all_made(memory, table, schemas, versions, form)
        mapping = _snapshots(memory, form).mapping(table, schemas, [snapshot.version for snapshot in made])
        facts = TableFacts(table.meta, memory.location, form)
        properties = shown_properties(table.meta.properties) | data_path(location_of(table.folder))
        document = table_metadata(facts, schemas, made, tags, mapping, properties)
        content = json.dumps(document).encode()
        digest = hashlib.sha256(content).hexdigest()[:32]
        name = f"{METADATA}/{head + 1:05d}-{digest}.metadata.json"
        memory.files.settle()  # before a file that names the others
        memory.files.put(MadeFile(name, content))
        loaded = Loaded(digest, f"{memory.location}/{name}", content, made)
        memory.loaded[form] = key, loaded
        kept = set(versions)
        memory.made = {at: snapshot for at, snapshot in memory.made.items() if at[1] in kept or at[0] != form}
        return loaded

    def _all_made(
        self,
        memory: _Memory,
        table: TableView,
        schemas: Sequence[catalog_pb2.SchemaVersion],
        versions: Sequence[int],
        form: int,
    ) -> list[MadeSnapshot]:
        """Return the snapshots of the versions. One that can't be shown is left out, unless it is the newest."""
        snapshots = []
        for version in versions:
            try:
                snapshots.append(self._made(memory, table, schemas, version, form))
            except InputError:
                if version == versions[-1]:
                    raise
        return snapshots

    def _made(
        self, memory: _Memory, table: TableView, schemas: Sequence[catalog_pb2.SchemaVersion], version: int, form: int
    ) -> MadeSnapshot:
        if (form, version) not in memory.made:
            memory.made[form, version] = _snapshots(memory, form).make(table, schemas, version)
        return memory.made[form, version]

    # -- what was given out stays readable

    def _pin(self, memory: _Memory, table: TableView, versions: Sequence[int], *, is_cached: bool) -> list[int]:
        """Pin the versions that are still kept, and return them."""
        now = self._now_s()
        left_s = memory.pinned_until_s - now
        if left_s > REPINNED_BELOW * self._showing.hold_s and (is_cached or set(versions) == memory.pinned):
            return sorted(memory.pinned & set(versions))
        held = [*self._pinned(table, versions)]
        memory.pinned, memory.pinned_until_s = frozenset(held), now + self._showing.hold_s
        return held

    def _pinned(self, table: TableView, versions: Sequence[int]) -> Sequence[int]:
        for at in range(0, len(versions), PINNED_AT_ONCE):
            try:
                pin(table.client, table.table_id, versions[at : at + PINNED_AT_ONCE], self._showing.hold_s)
            except (GoneError, NotFoundError):
                if versions[at:] == versions[-1:]:
                    raise
                return self._one_by_one(table, versions)
        return versions

    def _one_by_one(self, table: TableView, versions: Sequence[int]) -> Sequence[int]:
        """Pin the versions one by one: the retention has removed some."""
        held = []
        for version in reversed(versions):
            try:
                pin(table.client, table.table_id, [version], self._showing.hold_s)
            except (GoneError, NotFoundError):
                if version == versions[-1]:
                    raise
                continue
            held.append(version)
        return held[::-1]


def _snapshots(memory: _Memory, form: int) -> Snapshots:
    """Return the snapshots of a format. They are made in the order of versions, to list what was removed in between."""
    if form not in memory.snapshots:
        memory.snapshots[form] = Snapshots(memory.location, form, memory.files.put_once)
    return memory.snapshots[form]


def pin(client: MetaClient, table_id: str, versions: Sequence[int], hold_s: float) -> None:
    """Pin versions for a time. The pin is not renewed."""
    table_versions = [read_pb2.TableVersion(table_id=table_id, version=version) for version in versions]
    client.pin(table_versions, pin_id=uuid7(), lease_ms=int(hold_s * 1000))


def data_path(location: str) -> dict[str, str]:
    """Return the properties for writers: a new folder for files each time, and no merges of generated manifests."""
    return {"write.data.path": f"{location}/{WRITES_GO}", "commit.manifest-merge.enabled": "false"}


def answer_of(loaded: Loaded, config: dict[str, str], credentials: Sequence[dict[str, Any]]) -> bytes:
    """Return the answer of loadTable. Each names a new folder for files: the id of the transaction that adds them."""
    head: dict[str, Any] = {"metadata-location": loaded.location, "config": config}
    if credentials:
        head["storage-credentials"] = credentials
    return json.dumps(head).encode()[:-1] + b', "metadata": ' + with_own_folder(loaded) + b"}"


def staged_body(metadata: bytes, config: dict[str, str], credentials: Sequence[dict[str, Any]]) -> bytes:
    """Return the answer of createTable for a table that a later commit creates."""
    head: dict[str, Any] = {"config": config}
    if credentials:
        head["storage-credentials"] = credentials
    return json.dumps(head).encode()[:-1] + b', "metadata": ' + _in_folder(metadata, uuid7()) + b"}"


def commit_answer(loaded: Loaded) -> bytes:
    """Return the answer to a commit."""
    head = json.dumps({"metadata-location": loaded.location}).encode()
    return head[:-1] + b', "metadata": ' + with_own_folder(loaded) + b"}"


def with_own_folder(loaded: Loaded) -> bytes:
    """Return the metadata with a new folder for files, whose name contains the version."""
    return _in_folder(loaded.metadata, folder_id(loaded.snapshots[-1].version))


def _in_folder(metadata: bytes, folder: str) -> bytes:
    return metadata.replace(WRITES_GO.encode(), folder.encode())
