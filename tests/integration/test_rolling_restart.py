"""A rolling restart under load: each process is stopped and started again in turn, and no client notices."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

from metaservice.client import CommitOutcomeUnknownError, MetaClient
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.high_availability import (
    LEADS_NO_MORE,
    Append,
    Load,
    Pair,
    Process,
    check_history,
    create_table,
    list_committed,
    pair,
    version_of,
)
from tests.integration.service import TIMEOUT_S, data_file

WRITERS, READERS = 4, 4
PROFILE = "delta_write_serializable"  # inserts stand beside each other


class EveryCall(Load):
    """Writers with every way to commit, readers with every way to read."""

    def _write(self, client: MetaClient) -> None:
        ways = (super()._write, self._commit, self._commit_batch)
        ways[len(self.appends) % len(ways)](client)

    def _commit(self, client: MetaClient) -> None:
        """Three calls, of a session's stream."""
        asked_s = time.monotonic()
        intent = transaction_pb2.TableIntent(table_id=self.table_id, operation=common_pb2.OPERATION_INSERT)
        txn = client.begin([intent])
        try:
            txn.register(self.table_id, [data_file(txn.txn_id)])
            done = txn.commit([common_pb2.Change(table_id=self.table_id)])
        except CommitOutcomeUnknownError:
            self.unknown.append(txn.txn_id)
            return
        self.appends.append(Append(txn.txn_id, done.tables[0].version, asked_s, time.monotonic()))

    def _commit_batch(self, client: MetaClient) -> None:
        txn_id, asked_s = new_uuid7(), time.monotonic()
        request = transaction_pb2.AppendRequest(txn_id=txn_id, table_id=self.table_id, files=[data_file(txn_id)])
        try:
            (done,) = client.commit_batch([request])
        except CommitOutcomeUnknownError:
            self.unknown.append(txn_id)
            return
        assert isinstance(done, common_pb2.Committed)
        self.appends.append(Append(txn_id, version_of(done), asked_s, time.monotonic()))

    def _read(self, client: MetaClient) -> None:
        super()._read(client)
        if len(self.readings) % 20 == 0:
            assert any(part.entries for part in client.plan_scan(self.table_id)) or not self.appends


class Watcher:
    """Who sees every commit, as one sequence."""

    def __init__(self, address: str, table_id: str) -> None:
        self.seen: list[int] = []
        self.broken: list[Exception] = []
        self._client = MetaClient(address)
        self._table_id = table_id
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def wait_for(self, version: int) -> None:
        until_s = time.monotonic() + TIMEOUT_S
        while not self.seen or self.seen[-1] < version:
            assert time.monotonic() < until_s, self.broken
            time.sleep(0.02)

    def stop(self) -> None:
        self._client.close()
        self._thread.join()

    def _watch(self) -> None:
        try:
            for one in self._client.watch(self._table_id, after_version=0):
                self.seen.append(one.version)
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.broken.append(error)


@pytest.mark.long
def test_a_rolling_restart_loses_nothing_and_nobody_notices(tmp_path: Path) -> None:
    """Every process is stopped once a round, the leader perhaps after it has stepped down."""
    with pair(tmp_path, ("one", "two", "three")) as all_:
        load = EveryCall(all_.address, create_table(all_, PROFILE))
        watcher = Watcher(all_.address, load.table_id)
        load.start(WRITERS, READERS)
        try:
            for by_step_down in (False, True):
                leader = all_.leader()
                standbys = [each for each in all_.processes if each is not leader]
                for each in (leader, *standbys) if by_step_down else (*standbys, leader):
                    restart(all_, load, each, by_step_down=by_step_down)
        except BaseException:
            watcher.stop()
            raise
        finally:
            load.stop()
        assert load.unknown == []
        committed = list_committed(all_.leader().address, load.table_id)
        check_history(load, committed)
        watcher.wait_for(max(committed.values()))
        watcher.stop()
        assert watcher.seen == list(range(1, max(committed.values()) + 1))
        assert watcher.broken == []
        print(f"{len(load.appends)} commits, {len(load.readings)} readings")


def restart(all_: Pair, load: Load, one: Process, *, by_step_down: bool) -> None:
    """Stops a process, if it leads perhaps by stepping down, and starts it again."""
    load.wait_for_more()
    leads = all_.leader() is one
    if leads and by_step_down:
        with MetaClient(one.address) as client:
            client.step_down()
        assert one.wait() == LEADS_NO_MORE, one.said()[-2000:]
    else:
        one.send(signal.SIGTERM)
        assert one.wait() == 0, one.said()[-2000:]
    one.start()
    load.wait_for_more()
