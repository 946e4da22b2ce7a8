"""Deletes the files from storage that the service declares dead, and nothing else.

    the purge list     paths that no kept snapshot holds: page by page, in parallel, each confirmed once it is gone
    ended folders      files of transactions that ended without a commit, after asking the service about each path
    dropped tables     files in their folders, when the service has no more records of them; also after asking
    generated files    of the Iceberg catalog, by their age; kept deletion vectors that the newest version doesn't use;
                       key indexes of tables that are gone;
                       all that was generated of a fork, when the service has no more records of it
    staged tables      that an Iceberg client gave up: the service drops them, so their folders go as those do

Nothing else is decided from a listing of storage or from the worker's clock. Files that any table names are kept, and
so are links and files behind them. The next run continues an interrupted one: a path leaves the purge list only when
its bytes are gone, and a missing file is no error. Memory holds one page.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from pyarrow import fs

from metaservice.client import BlockedError, LakeTXError, MetaClient, NotFoundError, key_spans_partitions
from metaservice.shared import fork_files
from protos.laketx.v1 import maintenance_pb2
from worker.files import kept_vectors, key_index
from worker.files.storage import crosses_link, is_local, pages, remove_empty_folders, storage, walk
from worker.files.warehouse import check_warehouse
from worker.services import generated_files
from worker.services.staged_tables import StagedTables

THREADS: Final = 16
PAGE_FILES: Final = 1_000
CHUNK_FILES: Final = 25  # deleted by one thread at a time
SWEPT_AT_ONCE: Final = 10_000
FAILURES_SHOWN: Final = 20

Say = Callable[[str, str], None]


@dataclass(slots=True)
class Report:
    """What was deleted, or would be."""

    files: int = 0
    missing: int = 0  # on the list, and gone already
    swept: int = 0  # files in folders of ended transactions, and old generated ones
    folders: int = 0  # of dropped tables
    staged: int = 0  # tables that Iceberg clients staged and gave up, dropped
    kept: int = 0  # files in folders of ended transactions that are still needed
    failed: int = 0
    failures: list[str] = field(default_factory=list)

    def fail(self, what: str, error: object) -> None:
        self.failed += 1
        if len(self.failures) < FAILURES_SHOWN:
            self.failures.append(f"{what}: {error}")


@dataclass(slots=True)
class _Done:
    """A chunk of paths after an attempt to delete them."""

    gone: list[str] = field(default_factory=list)
    missing: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)


class Purge:
    """One run over the tables of a warehouse. `say` is called for each file: with the action and its path."""

    def __init__(
        self,
        client: MetaClient,
        warehouse: str,
        *,
        dry_run: bool = False,
        say: Say = lambda _what, _path: None,
        threads: int = THREADS,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._warehouse = warehouse
        self._files, self._root = storage(warehouse.rstrip("/"))
        self._links: dict[str, str] = {}  # by folder: the link on the way to it
        self._dry_run = dry_run
        self._say = say
        self._threads = threads
        self._now_s = now_s
        self.report = Report()

    def run(self, table_id: str = "") -> Report:
        """Purges one table, or all of them with ended transactions and dropped tables. Refused without the mark."""
        check_warehouse(self._client, self._warehouse)
        if not table_id:
            self._end_staged()
        with ThreadPoolExecutor(self._threads, thread_name_prefix="laketx-purge") as pool:
            for each in [table_id] if table_id else self._client.list_purgeable_tables():
                self._purge_table(pool, each)
            self._sweep(pool, table_id)
            generated = [table_id] if table_id else self._folders()
            self._sweep_found(pool, generated, self._aged)
            self._sweep_found(pool, generated, self._unused_vectors)
            self._sweep_found(pool, generated, self._unused_key_index)
            self._sweep_forks(pool, generated)
        return self.report

    # -- the purge list ------------------------------------------------------------------------------------------------

    def _purge_table(self, pool: ThreadPoolExecutor, table_id: str) -> None:
        for page in pages(self._client.list_purgeable(table_id, page_size=PAGE_FILES), PAGE_FILES):
            sound = [path for path in page if self._is_inside(path)]
            if self._dry_run:
                for path in sound:
                    self._say("purge", f"{table_id}/{path}")
                self.report.files += len(sound)
                continue
            missing = self.report.missing
            gone = self._delete(pool, table_id, sound, "purge")
            if self.report.missing != missing:  # gone already, or the whole warehouse is by now
                check_warehouse(self._client, self._warehouse)
            self._remove_empty_folders(table_id, gone)
            if gone:
                self._client.confirm_purged(table_id, gone)

    def _is_inside(self, path: str) -> bool:
        """Whether the path stays inside its table's folder. The service lists no other, because none can be staged."""
        is_inside = not path.startswith("/") and "://" not in path and ".." not in path.split("/")
        if not is_inside:
            self.report.fail(path, "lies outside the table's folder")
        return is_inside

    def _delete(self, pool: ThreadPoolExecutor, table_id: str, paths: Sequence[str], why: str) -> list[str]:
        """Deletes the paths; returns those that are gone."""
        gone: list[str] = []
        chunks = [paths[at : at + CHUNK_FILES] for at in range(0, len(paths), CHUNK_FILES)]
        for done in pool.map(lambda chunk: self._delete_chunk(table_id, chunk), chunks):
            gone += done.gone
            self.report.missing += done.missing
            for path, error in done.failures:
                self.report.fail(f"{table_id}/{path}", error)
            for path in done.gone:
                self._say(why, f"{table_id}/{path}")
            if why == "purge":
                self.report.files += len(done.gone)
            else:
                self.report.swept += len(done.gone)
        return gone

    def _delete_chunk(self, table_id: str, paths: Iterable[str]) -> _Done:
        done = _Done()
        for path in paths:
            whole = f"{self._root}/{table_id}/{path}"
            if link := self._link_to(whole):
                done.failures.append((path, f"{link} is a link: files behind it are not deleted"))
                continue
            try:
                self._files.delete_file(whole)
            except FileNotFoundError:
                done.missing += 1
            except OSError as error:
                done.failures.append((path, str(error)))
                continue
            done.gone.append(path)
            if is_local(self._files):
                folder, _, name = path.rpartition("/")
                Path(self._root, table_id, folder, f".{name}.crc").unlink(missing_ok=True)  # Hadoop's, beside the file
        return done

    def _link_to(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        if folder not in self._links:
            self._links[folder] = crosses_link(self._files, self._root, folder)
        return self._links[folder] or crosses_link(self._files, folder, path)

    def _remove_empty_folders(self, table_id: str, paths: Iterable[str]) -> None:
        """Removes the empty folders of the paths, up to their transaction's; object stores have none."""
        if not is_local(self._files):
            return
        folders = {parent for path in paths for parent in PurePosixPath(path).parents if parent.name}
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            with suppress(OSError):  # another process removes it too
                _remove_if_empty(Path(self._root, table_id, folder))

    # -- tables that were never made -----------------------------------------------------------------------------------

    def _end_staged(self) -> None:
        """Drops the tables that Iceberg clients staged and gave up. A later run deletes their folders."""
        staged = StagedTables(self._client, self._warehouse)
        for table_id in staged.given_up(self._now_s()):
            try:
                if self._dry_run or staged.end(table_id):
                    self.report.staged += 1
                    self._say("drop", table_id)
                if not self._dry_run:
                    staged.remove(table_id)
            except (LakeTXError, OSError) as error:
                self.report.fail(table_id, error)

    # -- folders -------------------------------------------------------------------------------------------------------

    def _sweep(self, pool: ThreadPoolExecutor, only: str) -> None:
        """A page is settled once all before it are; the next run retries what failed."""
        before, settles = self.report.failed, not only and not self._dry_run
        for page in self._client.list_sweepable():
            folders = [folder for folder in page.folders if not only or folder.table_id == only]
            self._sweep_page(pool, folders)
            if settles and self.report.failed == before and page.settled_txn_id:
                self._client.confirm_swept(page.settled_txn_id)

    def _sweep_page(self, pool: ThreadPoolExecutor, folders: Iterable[maintenance_pb2.SweepableFolder]) -> None:
        by_table: dict[str, list[str]] = {}
        ended = []
        for folder in folders:
            if not folder.txn_id:
                self._remove_table(pool, folder.table_id)
                continue
            start, paths = f"{self._root}/{folder.table_id}/", by_table.setdefault(folder.table_id, [])
            paths += self._list(folder.table_id, folder.txn_id)
            ended.append(f"{start}{folder.txn_id}")
            if len(paths) >= SWEPT_AT_ONCE:
                self._sweep_files(pool, folder.table_id, by_table.pop(folder.table_id))
        for table_id, paths in by_table.items():
            self._sweep_files(pool, table_id, paths)
        for path in ended if not self._dry_run else ():
            with suppress(OSError):
                remove_empty_folders(self._files, path)

    def _list(self, table_id: str, folder: str = "") -> Iterator[str]:
        """Paths below the table's folder."""
        start = f"{self._root}/{table_id}/"
        where = f"{start}{folder}".rstrip("/")
        if link := crosses_link(self._files, self._root, where):
            self.report.fail(where, f"{link} is a link: files behind it are not swept")
            return
        try:
            for path, _ in walk(self._files, where):
                yield path[len(start) :]
        except OSError as error:
            self.report.fail(where, error)

    def _sweep_files(self, pool: ThreadPoolExecutor, table_id: str, files: Iterable[str]) -> None:
        """Deletes the files that nothing needs, including those on the purge list."""
        for paths in pages(files, SWEPT_AT_ONCE):
            self._sweep_checked(pool, table_id, paths)

    def _sweep_checked(self, pool: ThreadPoolExecutor, table_id: str, paths: list[str]) -> None:
        checked = self._client.check_paths(table_id, paths)
        accounted = {*checked.needed, *checked.purgeable}
        self.report.kept += len(checked.needed)
        strays = [path for path in paths if path not in accounted]
        if self._dry_run:
            self.report.swept += len(strays)
            for path in strays:
                self._say("sweep", f"{table_id}/{path}")
            return
        self._delete(pool, table_id, strays, "sweep")

    def _sweep_found(
        self, pool: ThreadPoolExecutor, table_ids: Sequence[str], find: Callable[[str], list[str]]
    ) -> None:
        """Deletes files that can be made again: what is still needed is made anew."""
        for table_id, paths in zip(table_ids, pool.map(find, table_ids), strict=True):
            self._sweep_made(pool, table_id, paths)

    def _sweep_made(self, pool: ThreadPoolExecutor, table_id: str, paths: Sequence[str]) -> None:
        if self._dry_run:
            self.report.swept += len(paths)
            for path in paths:
                self._say("sweep", f"{table_id}/{path}")
        elif paths:
            self._delete(pool, table_id, paths, "sweep")

    def _folders(self) -> list[str]:
        """Return the ids of folders with files of tables; the table of a clone's folder may have been dropped."""
        return list(dict.fromkeys(table.folder_id or table.table_id for table in self._client.list_tables()))

    def _aged(self, table_id: str) -> list[str]:
        """What the Iceberg catalog generated long ago."""
        of_forks = self._older_files(table_id, fork_files.FOLDER)
        marked = f"/{generated_files.REST}/"
        return self._older_files(table_id, generated_files.FOLDER) + [path for path in of_forks if marked in path]

    def _sweep_forks(self, pool: ThreadPoolExecutor, table_ids: Sequence[str]) -> None:
        """What was generated of forks that are gone. The service knows which are not."""
        for table_id in table_ids:
            forks: set[str] = set()
            for paths in pages(self._list(table_id, fork_files.FOLDER), SWEPT_AT_ONCE):
                needed = {*self._client.check_paths(table_id, paths).needed}
                gone = [path for path in paths if path not in needed and fork_files.fork_of(path)]
                forks |= set(map(fork_files.fork_of, gone))
                self._sweep_made(pool, table_id, gone)
            for fork_id in forks if not self._dry_run else ():
                with suppress(OSError):
                    folder = fork_files.folder_of_fork(fork_id)
                    remove_empty_folders(self._files, f"{self._root}/{table_id}/{folder}")

    def _unused_vectors(self, table_id: str) -> list[str]:
        """Deletion vectors that were kept long ago, and that the newest version doesn't use."""
        old = self._older_files(table_id, kept_vectors.FOLDER)
        if not old:
            return []
        try:
            table = self._client.get_table(table_id=table_id)
            used = kept_vectors.names_of(table, self._client.list_files(table_id))
        except (NotFoundError, BlockedError):  # the table was dropped: its folder goes as a whole
            return []
        return [path for path in old if PurePosixPath(path).stem not in used]

    def _unused_key_index(self, table_id: str) -> list[str]:
        """What was written long ago of key indexes of tables that are gone. Of others, who keeps them deletes it."""
        old = self._older_files(table_id, key_index.FOLDER)
        if not old:
            return []
        tables = [table for table in self._client.list_tables() if table_id in (table.table_id, table.folder_id)]
        used = {key_index.folder_of(table) for table in tables if key_spans_partitions(table)}
        return [path for path in old if path.rpartition("/")[0] not in used]

    def _older_files(self, table_id: str, folder: str) -> list[str]:
        start = f"{self._root}/{table_id}/"
        if crosses_link(self._files, self._root, f"{start}{folder}"):
            return []
        listed = self._files.get_file_info(fs.FileSelector(f"{start}{folder}", recursive=True, allow_not_found=True))
        last_ns = (self._now_s() - generated_files.KEEP_S) * 1e9
        return [
            info.path[len(start) :]
            for info in listed
            if info.type == fs.FileType.File and info.mtime_ns is not None and info.mtime_ns < last_ns
        ]

    def _remove_table(self, pool: ThreadPoolExecutor, table_id: str) -> None:
        path = f"{self._root}/{table_id}"
        if self._files.get_file_info(path).type != fs.FileType.Directory:
            return
        kept, failed = self.report.kept, self.report.failed
        self._sweep_files(pool, table_id, self._list(table_id))
        if (self.report.kept, self.report.failed) != (kept, failed):
            return
        try:
            gone = self._dry_run or remove_empty_folders(self._files, path)
        except OSError as error:
            self.report.fail(path, error)
            return
        if gone:
            self.report.folders += 1
            self._say("drop", table_id)
        else:
            self.report.fail(path, "it contains something that the purge can't delete, such as a link")


def _remove_if_empty(folder: Path) -> None:
    """Removes the folder if it is empty apart from markers of Spark and Hadoop."""
    markers = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name[0] not in "._" or not entry.is_file():
                return
            markers.append(entry.path)
    for marker in markers:
        Path(marker).unlink(missing_ok=True)
    folder.rmdir()
