"""Compares the metadata of a table's files with storage, in both directions.

    MISSING             a file in the metadata does not exist
    SIZE_WRONG          its size differs from the registered one
    FOOTER_UNREADABLE   it is not a complete Parquet file or delete set
    ROWS_WRONG          its number of rows differs from the registered one
    VECTORS_UNREADABLE  kept deletion vectors are damaged: readers find the hidden rows without them
    KEY_TWICE           a key that is unique across partitions has several rows
    KEY_INDEX_UNREADABLE a part of the key index is damaged: writers read the files instead
    KEY_INDEX_WRONG     it says other keys of a file than the file has
    ROWS_UNREADABLE, STATS_WRONG, PLACE_WRONG, COUNT_WRONG  in deep checks: see `row_check.py`
    STRAY               nothing needs the file: no kept snapshot, no open or recently ended transaction

It checks the newest version and tagged versions, or all kept versions. They are pinned meanwhile, so commits and the
purge can go on. On request, strays are moved below `_quarantine` in the table's folder; they are never deleted.
External files are checked where they are, and never moved. Files that begin with `.` or `_` (checksums, markers) are
not strays. Memory holds the paths and sizes of the files in storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyroaring import BitMap64

from metaservice.client import GoneError, MetaClient, key_spans_partitions
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2
from worker.files import kept_vectors, key_index
from worker.files.external_paths import check_no_link
from worker.files.storage import make_folder, pages, storage, walk
from worker.files.warehouse import check_warehouse
from worker.services.key_check import all_keys_twice, index_problems, promised_keys_twice
from worker.services.row_check import pages_of_problems

QUARANTINE: Final = "_quarantine"
NOT_OURS: Final = (  # what is not the table's data
    f"{QUARANTINE}/",
    "_iceberg/",
    f"{kept_vectors.FOLDER}/",
    f"{key_index.FOLDER}/",
)
THREADS: Final = 16
AT_ONCE: Final = 1_000
PATHS_AT_ONCE: Final = 10_000
LEASE_MS: Final = 3_600_000
KEYS_SHOWN: Final = 100  # of a version


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that was found."""

    word: str
    path: str
    facts: dict[str, str | int] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.word, self.path, *(f"{name}={fact}" for name, fact in self.facts.items())])


@dataclass(frozen=True, slots=True)
class Expected:
    """A file as the metadata has it."""

    path: str
    size: int
    rows: int
    is_delete_set: bool

    @property
    def is_inside(self) -> bool:
        return not (self.path.startswith(("/", "file:")) or "://" in self.path)


class Fsck:
    """One check of a table."""

    def __init__(
        self,
        client: MetaClient,
        warehouse: str,
        table: catalog_pb2.Table,
        *,
        footers: bool = True,
        all_versions: bool = False,
        quarantine: bool = False,
        deep: bool = False,
        progress: Callable[[Fsck], None] = lambda _: None,
    ) -> None:
        """`deep`: reads all rows. `progress` is called now and then."""
        self._client = client
        self._table = table
        self._warehouse = warehouse
        self._files, root = storage(warehouse.rstrip("/"))
        home = table.folder_id or table.table_id
        self._folder = f"{root}/{home}"
        self._folder_uri = f"{warehouse.rstrip('/')}/{home}"
        self._footers = footers
        self._all_versions = all_versions
        self._quarantine = quarantine
        self._deep = deep
        self._progress = progress
        self._pins: list[str] = []
        self.files = self.versions = self.rows_read = 0
        self.quarantined = 0

    def run(self) -> Iterator[Finding]:
        """Check the table. A folder without the service's mark is refused: there everything would be missing."""
        check_warehouse(self._client, self._warehouse)
        try:
            versions = self._hold_versions()
            present = self._list()
            named: set[str] = set()
            read: set[str] = set()
            with ThreadPoolExecutor(THREADS, thread_name_prefix="laketx-fsck") as pool:
                broken = False
                for version in versions:
                    for page in pages(self._expected(version, named), AT_ONCE):
                        for findings in pool.map(lambda expected: self._compare(expected, present), page):
                            broken = broken or bool(findings)
                            yield from findings
                        self._progress(self)
                    if not broken:  # else its rows can't be read
                        for finding in self._rows(version, read) if self._deep else ():
                            broken = broken or finding.word == "ROWS_UNREADABLE"
                            yield finding
                    if not broken:
                        yield from self._keys(version)
                        yield from self._key_index(version) if version == versions[0] else ()
                    self.versions += 1
                    self._renew()
            if not self._table.folder_id:  # the folder of a fork is another table's
                yield from self._strays(sorted(present.keys() - named), present)
            yield from self._vectors() if self._footers else ()
        finally:
            for pin_id in self._pins:
                self._client.unpin(pin_id)

    def _renew(self) -> None:
        for pin_id in self._pins:
            self._client.renew_pin(pin_id)

    def _hold_versions(self) -> list[int]:
        """Pins the versions to check, the newest first."""
        table_id = self._table.table_id
        held = {self._hold(None), *(self._hold(tag.version) for tag in self._client.list_tags(table_id))}
        for commit in self._client.list_versions(table_id) if self._all_versions else ():
            try:
                held.add(self._hold(commit.version))
            except GoneError:
                break
        return sorted(held, reverse=True)

    def _hold(self, version: int | None) -> int:
        requested = read_pb2.TableVersion(table_id=self._table.table_id, version=version)
        pin = self._client.pin([requested], lease_ms=LEASE_MS)
        self._pins.append(pin.pin_id)
        return pin.tables[0].version

    # -- metadata to storage -------------------------------------------------------------------------------------------

    def _expected(self, version: int, named: set[str]) -> Iterator[Expected]:
        """Yield the files that no version checked before had."""
        for entry in self._client.list_files(self._table.table_id, version=version):
            expected = _expected_of(entry)
            if expected is not None and expected.path not in named:
                named.add(expected.path)
                self.files += 1
                yield expected

    def _compare(self, expected: Expected, present: dict[str, int]) -> list[Finding]:
        files, path = (self._files, f"{self._folder}/{expected.path}") if expected.is_inside else storage(expected.path)
        size = present.get(expected.path) if expected.is_inside else None
        size = _size_of(files, path) if size is None else size  # outside, or behind a link, or hidden by its name
        if size is None:
            return [Finding("MISSING", expected.path)]
        if size != expected.size:
            return [Finding("SIZE_WRONG", expected.path, {"registered": expected.size, "found": size})]
        if not self._footers:
            return []
        try:
            rows = _rows_of(files, path, is_delete_set=expected.is_delete_set)
        except (OSError, ValueError, pa.ArrowException) as error:
            return [Finding("FOOTER_UNREADABLE", expected.path, {"error": str(error).splitlines()[0][:200]})]
        if rows != expected.rows:
            return [Finding("ROWS_WRONG", expected.path, {"registered": expected.rows, "found": rows})]
        return []

    def _rows(self, version: int, read: set[str]) -> Iterator[Finding]:
        """Of the files that no earlier version had, inlined ones too."""
        for page in pages_of_problems(self._client, self._warehouse, self._table, version, read):
            for file, problems in page:
                self.rows_read += file.rows
                yield from (Finding(word, file.path, facts) for word, facts in problems)
            self._renew()
            self._progress(self)

    def _keys(self, version: int) -> Iterator[Finding]:
        if self._deep:
            twice = all_keys_twice(self._client, self._warehouse, self._table, version)
        elif self._footers and key_spans_partitions(self._table):
            twice = promised_keys_twice(self._client, self._warehouse, self._table, version)
        else:
            return
        for key in islice(twice, KEYS_SHOWN):
            yield Finding("KEY_TWICE", key.key, {"version": version, "rows": len(key.partitions)})

    def _key_index(self, version: int) -> Iterator[Finding]:
        if self._footers and key_spans_partitions(self._table):
            for path, wrong in index_problems(self._client, self._warehouse, self._table, version):
                if wrong:
                    yield Finding("KEY_INDEX_WRONG", path, {"file": wrong})
                else:
                    yield Finding("KEY_INDEX_UNREADABLE", path)

    # -- storage to metadata -------------------------------------------------------------------------------------------

    def _list(self) -> dict[str, int]:
        """Return the sizes of the files in the table's folder by path."""
        start, sizes = len(self._folder) + 1, {}
        for whole, size in walk(self._files, self._folder):
            path = whole[start:]
            is_hidden = path.rpartition("/")[2][0] in "._" or path.startswith(NOT_OURS)
            if not is_hidden and "/_temporary/" not in path:
                sizes[path] = size
        return sizes

    def _strays(self, paths: Sequence[str], present: dict[str, int]) -> Iterator[Finding]:
        for page in pages(iter(paths), PATHS_AT_ONCE):
            checked = self._client.check_paths(self._table.table_id, page)
            accounted = {*checked.needed, *checked.purgeable}
            for path in page:
                if path not in accounted:
                    facts: dict[str, str | int] = {"bytes": present[path]}
                    if self._quarantine:
                        facts["moved_to"] = self._set_aside(path)
                    yield Finding("STRAY", path, facts)

    def _vectors(self) -> Iterator[Finding]:
        for whole, _ in walk(self._files, f"{self._folder}/{kept_vectors.FOLDER}"):
            path = whole[len(self._folder) + 1 :]
            name, suffix = PurePosixPath(path).stem, PurePosixPath(path).suffix
            if suffix == kept_vectors.SUFFIX and kept_vectors.read(self._folder_uri, name) is None:
                yield Finding("VECTORS_UNREADABLE", path)

    def _set_aside(self, path: str) -> str:
        target = f"{QUARANTINE}/{path}"
        check_no_link(self._files, self._folder, f"{self._folder}/{target}")
        make_folder(self._files, f"{self._folder}/{target}".rpartition("/")[0])
        self._files.move(f"{self._folder}/{path}", f"{self._folder}/{target}")
        self.quarantined += 1
        return target


def _expected_of(entry: common_pb2.LiveEntry) -> Expected | None:
    """Return the expected file; None for rows and bitmaps that are stored in the metadata."""
    if entry.HasField("file"):
        file = entry.file
        return None if file.inlined else Expected(file.path, file.bytes, file.rows, is_delete_set=False)
    kept = entry.delete_set
    return None if kept.bitmap else Expected(kept.path, kept.bytes, kept.rows, is_delete_set=True)


def _size_of(files: Any, path: str) -> int | None:
    info = files.get_file_info(path)
    return int(info.size) if info.type == fs.FileType.File else None


def _rows_of(files: Any, path: str, *, is_delete_set: bool) -> int:
    if is_delete_set:
        with files.open_input_stream(path) as stream:
            return len(BitMap64.deserialize(stream.read()))
    return int(pq.read_metadata(path, filesystem=files).num_rows)
