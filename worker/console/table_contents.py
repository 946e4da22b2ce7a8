"""What the files of a table hold, by partition: counted once, then carried from version to version by what changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from metaservice.cli.values import partition_text, types_of
from metaservice.client import ExhaustedError, GoneError, InvalidError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.console.visits import commit_time_us

ENTRIES_MAX: Final = 100_000
KEPT_MAX: Final = 20  # tables
KEPT_PARTITIONS_MAX: Final = 5_000  # of a table: more would need too much memory
CARRIED_MAX: Final = 1_000  # versions
FILE_BYTES_TARGET: Final = 128 << 20  # where the table's property says nothing
SMALL_SHARE: Final = 0.5  # of the target: smaller files are small
FEW_FILES: Final = 4  # so few small files are no reason to compact


@dataclass(slots=True)
class Part:
    """The live entries of a table, or of one of its partitions."""

    name: str
    files: int = 0
    rows: int = 0
    size: int = 0
    small: int = 0
    hidden: int = 0  # rows that delete sets hide

    def add(self, entry: common_pb2.LiveEntry, small_below: float, times: int = 1) -> None:
        """`times` is -1 for an entry that is no longer live."""
        if entry.HasField("delete_set"):
            self.hidden += times * entry.delete_set.rows
            return
        file = entry.file
        self.files += times
        self.rows += times * file.rows
        self.size += times * file.bytes
        self.small += times * (file.bytes < small_below and not file.inlined)

    @property
    def hidden_share(self) -> float:
        return self.hidden / self.rows if self.rows else 0.0

    @property
    def small_share(self) -> float:
        return self.small / self.files if self.files else 0.0

    @property
    def untidy(self) -> float:
        """The larger share: of hidden rows, or of small files if there are more than a few."""
        return max(self.hidden_share, self.small_share if self.files > FEW_FILES else 0.0)

    def take(self, other: Part) -> None:
        """Adds the sums of another one."""
        self.files, self.rows, self.size = self.files + other.files, self.rows + other.rows, self.size + other.size
        self.small, self.hidden = self.small + other.small, self.hidden + other.hidden


class Contents:
    """The files of a version, by partition: all of them, or as many as are looked at."""

    def __init__(self, table: catalog_pb2.Table) -> None:
        self.version, self.time_us = table.head_version, table.head_commit_time_us
        self.small_below = SMALL_SHARE * file_bytes_target(table)
        self.is_cut = False
        self._types = types_of(table)
        self._by_name: dict[str, Part] = {}
        self._by_bytes: dict[bytes, Part] = {}  # a name is made once for each partition, not for each of its files

    @property
    def partitions(self) -> list[Part]:
        """The largest first."""
        return sorted(self._by_name.values(), key=lambda part: (-part.size, part.name))

    @property
    def whole(self) -> Part:
        whole = Part("")
        for part in self._by_name.values():
            whole.take(part)
        return whole

    def add(self, entries: Iterable[common_pb2.LiveEntry], times: int = 1) -> None:
        for entry in entries:
            partition = entry.delete_set.partition if entry.HasField("delete_set") else entry.file.partition
            raw = partition.SerializeToString()
            part = self._by_bytes.get(raw)
            if part is None:
                name = partition_text(partition, self._types)
                part = self._by_bytes[raw] = self._by_name.setdefault(name, Part(name))
            part.add(entry, self.small_below, times)

    def carried(self, table: catalog_pb2.Table, changes: Iterable[read_pb2.PlanChangesResponse]) -> Contents:
        """Those of a newer version, by the entries that came and went."""
        newer = Contents(table)
        newer._by_name = {name: replace(part) for name, part in self._by_name.items()}
        newer._by_bytes = {raw: newer._by_name[part.name] for raw, part in self._by_bytes.items()}
        for part in changes:
            newer.add(part.added)
            newer.add(part.removed, -1)
        gone = {part.name for part in newer._by_name.values() if not part.files and not part.hidden}
        newer._by_name = {name: part for name, part in newer._by_name.items() if name not in gone}
        newer._by_bytes = {raw: part for raw, part in newer._by_bytes.items() if part.name not in gone}
        return newer


def file_bytes_target(table: catalog_pb2.Table) -> int:
    text = table.properties.get("write.file_bytes_target", "")
    return int(text) if text.isdecimal() else FILE_BYTES_TARGET


def contents_of(table: catalog_pb2.Table, entries: Iterable[common_pb2.LiveEntry]) -> Contents:
    """Those of a version whose entries these are."""
    contents, reader = Contents(table), iter(entries)
    contents.add(islice(reader, ENTRIES_MAX))
    contents.is_cut = next(reader, None) is not None
    return contents


class TableContents:
    """The contents of the tables that were looked at lately."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Contents] = OrderedDict()
        self._mutex = threading.Lock()

    def of(self, client: MetaClient, table: catalog_pb2.Table) -> Contents:
        """Those of a table's newest version, by the caller's own right to read it."""
        with self._mutex:
            before = self._kept.get(table.table_id)
        made = None if before is None else carry(client, table, before)
        if made is None:
            made = contents_of(table, client.list_files(table.table_id, version=table.head_version))
        with self._mutex:
            self._kept.pop(table.table_id, None)
            if len(made.partitions) <= KEPT_PARTITIONS_MAX:
                self._kept[table.table_id] = made
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return made


def carry(client: MetaClient, table: catalog_pb2.Table, before: Contents) -> Contents | None:
    """The contents carried on to the newest version; None if they are of another history, or too much has changed."""
    is_near = 0 < table.head_version - before.version <= CARRIED_MAX
    if before.is_cut or not is_near or before.small_below != Contents(table).small_below:
        return None
    if commit_time_us(client, table.table_id, before.version) != before.time_us:  # the store was restored
        return None
    mode = read_pb2.CHANGES_MODE_DIFFERENCE
    try:
        return before.carried(table, client.plan_changes(table.table_id, before.version, table.head_version, mode=mode))
    except (GoneError, InvalidError, ExhaustedError):
        return None
