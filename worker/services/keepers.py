"""What keeps derived files of tables up to date, beside a worker's tasks: soon after each commit, and never needed.

A pass looks at the tables whose newest version has changed since the last one.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from metaservice.client import DeniedError, LakeTXError
from protos.laketx.v1 import catalog_pb2
from worker.arrow.scan.plans import ScannedFile, entries_of
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView

IDLE_S: Final = 5.0
REST: Final = 4.0  # after a table, times as long as it took: at most a fifth of one core
LISTING_REST: Final = 20.0  # after a list of the tables, likewise
TABLES_MAX: Final = 10_000  # whose newest version is remembered

log = logging.getLogger("laketx.worker")


class Keeper(ABC):
    """Keeps files of the newest versions: `start`, later `stop`; or `run_once`."""

    WHAT: str  # is kept, in words
    THREAD: str

    def __init__(
        self, lake: Connection, *, idle_s: float = IDLE_S, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._lake = lake
        self._idle_s = idle_s
        self._now_s = now_s
        self._heads: dict[str, int] = {}  # the versions whose files are kept
        self._due_s: dict[str, float] = {}
        self._listing_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=self.THREAD, daemon=True)

    @abstractmethod
    def wants(self, meta: catalog_pb2.Table) -> bool:
        """Whether such files are kept of a table."""

    @abstractmethod
    def keep(self, then: TableView, version: int, files: list[ScannedFile]) -> int:
        """Keeps them of a version with these files, until `is_stopping`; returns of how many buckets."""

    @abstractmethod
    def forget(self) -> None:
        """Forgets what it remembers of tables."""

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def stop(self, wait_s: float) -> None:
        """Ends after the bucket that it works on, if that is soon enough."""
        self.ask_to_stop()
        self._thread.join(wait_s)

    def run_once(self) -> int:
        """Looks at every table once; returns for how many buckets files were kept."""
        began, kept = self._now_s(), 0
        tables = [meta for meta in self._lake.client.list_tables() if self.wants(meta)]
        self._listing_s = self._now_s() - began
        for meta in tables:
            if self.is_stopping:
                break
            if self._is_due(meta):
                kept += self._keep(meta)
        return kept

    def _serve(self) -> None:
        while not self.is_stopping:
            try:
                self.run_once()
            except LakeTXError as error:
                log.warning("%s are not kept: %s", self.WHAT, error)
            except Exception:
                log.exception("the keeper of %s failed; it continues", self.WHAT)
            self._stopping.wait(max(self._idle_s, LISTING_REST * self._listing_s))

    def _is_due(self, meta: catalog_pb2.Table) -> bool:
        table_id = meta.table_id
        return self._heads.get(table_id) != meta.head_version and self._now_s() >= self._due_s.get(table_id, 0.0)

    def _keep(self, meta: catalog_pb2.Table) -> int:
        began, table_id = self._now_s(), meta.table_id
        try:
            version, kept = self._keep_newest(TableView(self._lake, meta))
        except DeniedError as error:  # of this table, and again when it changes
            log.debug("%s of %s are not kept: %s", self.WHAT, meta.name, error)
            version, kept = meta.head_version, 0
        except Exception as error:  # noqa: BLE001 - the other tables go on, and its next version may be better
            log.warning("%s of %s are not kept: %s", self.WHAT, meta.name, error)
            version, kept = meta.head_version, 0
        if len(self._heads) >= TABLES_MAX:
            self._heads.clear()
            self._due_s.clear()
            self.forget()
        self._heads[table_id] = version
        self._due_s[table_id] = self._now_s() + REST * (self._now_s() - began)
        if kept:
            log.info("kept the %s of %s buckets of %s", self.WHAT, kept, meta.name)
        return kept

    def _keep_newest(self, table: TableView) -> tuple[int, int]:
        pinned = self._lake.pins.own(table.table_id)
        try:
            then = table if pinned.version == table.meta.head_version else table.at(pinned.version)
            entries = entries_of(then, pinned.version)
            files = [ScannedFile(entry.file, entry.data_version) for entry in entries if entry.HasField("file")]
            return pinned.version, self.keep(then, pinned.version, files)
        finally:
            pinned.release()
