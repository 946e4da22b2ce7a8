"""Writers of a service whose backups are restored, and what a restored one may show of their commits."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import grpc

from tests.conformance.play import new_uuid7
from tests.integration.service import TIMEOUT_S, Stubs


class Oracle:
    """Writers of one table each, and what was acknowledged when: for each table, its transactions in order."""

    def __init__(self, address: str, writers: int, prefix: str = "t") -> None:
        self.stubs = Stubs(address)
        self.acknowledged: dict[str, list[tuple[str, int]]] = {
            self.stubs.create(f"{prefix}{number}"): [] for number in range(writers)
        }
        self.made_us = time.time_ns() // 1000  # by then its tables were there
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(each,)) for each in self.acknowledged]
        for each in self._threads:
            each.start()

    def _write(self, table: str) -> None:
        with suppress(grpc.RpcError):  # the service was killed
            while not self._ended.is_set():
                txn_id = new_uuid7()
                self.stubs.append(table, txn_id)
                self.acknowledged[table].append((txn_id, time.time_ns() // 1000))
                time.sleep(0.002)

    def end(self) -> None:
        self._ended.set()
        for each in self._threads:
            each.join(TIMEOUT_S)
        self.stubs.channel.close()

    def compare(self, restored: Stubs, begin_us: int) -> dict[str, int]:
        """The first commits are there, with all that was acknowledged before the backup began; the heads by table."""
        heads = {}
        for table, acknowledged in self.acknowledged.items():
            there = [version.txn_id for version in restored.list_versions(table)[1:]]
            txns = [txn_id for txn_id, _ in acknowledged]
            assert there[: len(txns)] == txns[: len(there)], "the same commits, up to some version"
            assert len(there) >= sum(time_us < begin_us for _, time_us in acknowledged)
            files = restored.list_files(table)
            assert sorted(entry.file.path for entry in files) == sorted(f"{txn_id}/f" for txn_id in there)
            heads[table] = len(there)
        return heads
