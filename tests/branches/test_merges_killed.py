"""Merges of many tables whose leader is killed or taken over meanwhile: whole or nothing, and once."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pytest

from metaservice.client import CommitOutcomeUnknownError, MetaClient, UnavailableError
from protos.laketx.v1 import catalog_pb2, read_pb2
from tests.conformance.play import new_uuid7
from tests.integration.high_availability import Load, Pair, check_history, list_committed, pair
from tests.integration.service import Service, Stubs, data_file

TABLES: Final = 150
WATCHED: Final = 40  # of them, at one instant
ROUNDS: Final = 8
CALLERS: Final = 8


@dataclass(frozen=True, slots=True)
class Serving:
    """Where clients call, and what kills the leader and starts it again."""

    address: str
    kill: Callable[[], None]


@contextmanager
def on_a_disk(folder: Path) -> Iterator[Serving]:
    service = Service(folder / "store")
    service.start()

    def kill() -> None:
        service.kill()
        service.start()

    try:
        yield Serving(service.address, kill)
    finally:
        service.kill()


@contextmanager
def with_a_standby(folder: Path) -> Iterator[Serving]:
    with pair(folder) as both:
        yield Serving(both.address, lambda: kill_leader(both))


def kill_leader(both: Pair) -> None:
    leader = both.leader()
    leader.send(signal.SIGKILL)
    assert leader.wait() == -signal.SIGKILL
    assert both.leader() is both.other(leader)
    leader.start()


def heads(client: MetaClient, tables: Sequence[str]) -> dict[str, int]:
    pinned = client.pin([read_pb2.TableVersion(table_id=table) for table in tables])
    client.unpin(pinned.pin_id)
    return {each.table_id: each.version for each in pinned.tables}


def append(client: MetaClient, table: str) -> str:
    txn_id = new_uuid7()
    file = data_file(txn_id)
    while True:
        try:
            client.append(table, [file], txn_id=txn_id)
        except CommitOutcomeUnknownError:
            continue
        return file.path


def merged(client: MetaClient, branch: str, txn_id: str) -> catalog_pb2.MergeBranchResponse:
    """Asks until it is answered."""
    while True:
        try:
            return client.merge_branch(branch, txn_id=txn_id)
        except (CommitOutcomeUnknownError, UnavailableError):
            continue


class Watcher:
    """Looks at some tables at one instant, again and again: all of them have the merge, or none has."""

    def __init__(self, address: str, before: Mapping[str, int]) -> None:
        self._address, self._before = address, before
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: list[set[int]] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        with MetaClient(self._address) as client:
            while not self._is_over.is_set():
                try:
                    now = heads(client, list(self._before))
                except UnavailableError:
                    continue
                self.seen.append({now[table] - before for table, before in self._before.items()})


def play(serving: Serving, names: Mapping[str, str], chance: random.Random, number: int) -> float:
    """One merge, in which the leader is killed; how long that took to be answered. `names`: tables by id."""
    branch, txn_id = f"b{number}", new_uuid7()
    with MetaClient(serving.address) as client, ThreadPoolExecutor(CALLERS) as pool:
        client.create_branch(branch)

        def change(table: str) -> str:
            path = append(client, client.get_table(f"{names[table]}@{branch}").table_id)
            if chance.random() < 0.5:
                append(client, table)
            return path

        paths = dict(zip(names, pool.map(change, names), strict=True))
        watched = chance.sample(list(names), WATCHED)
        with Watcher(serving.address, heads(client, watched)) as watcher:
            begun_s = time.monotonic()
            answer = pool.submit(merged, client, branch, txn_id)
            time.sleep(chance.uniform(0, 0.4))
            serving.kill()
            first = answer.result()
            took_s = time.monotonic() - begun_s
        assert first.merged
        assert merged(client, branch, txn_id) == first, "the same request again gets the same answer"
        assert all(steps in ({0}, {1}) for steps in watcher.seen), watcher.seen
        for table, path in paths.items():
            found = [entry.file.path for entry in client.list_files(table)]
            assert found.count(path) == 1, (names[table], path)
            assert len(set(found)) == len(found)
        assert [each for each in client.list_branches() if each.name == branch] == []
    return took_s


@pytest.mark.long
@pytest.mark.parametrize("place", [on_a_disk, with_a_standby])
def test_a_merge_whose_leader_is_killed_is_whole_or_nothing_and_once(
    tmp_path: Path, place: Callable[[Path], AbstractContextManager[Serving]]
) -> None:
    chance = random.Random(5)
    with place(tmp_path) as serving:
        stubs = Stubs(serving.address)
        names = {stubs.create(f"t{number}"): f"t{number}" for number in range(TABLES)}
        busy = stubs.create("busy")
        stubs.channel.close()
        load = Load(serving.address, busy)
        load.start(2, readers=1)
        try:
            took = [play(serving, names, chance, number) for number in range(ROUNDS)]
        finally:
            load.stop()
        print(f"merges were answered after {', '.join(f'{each:.1f}' for each in took)} s; {len(load.appends)} appends")
        check_history(load, list_committed(serving.address, busy))
