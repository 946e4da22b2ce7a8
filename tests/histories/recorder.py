"""Concurrent clients against a service that is killed, and the history of what they did and were told."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from protos.laketx.v1 import common_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.conformance.server import stop
from tests.histories import wire
from tests.histories.actions import ALONE, KINDS, TOGETHER, Action
from tests.histories.history import INSERT, Answer, History, Logged, Looked, Part, Txn
from tests.histories.wire import Table, Told, persist
from tests.integration.service import PRINCIPAL, TIMEOUT_S, Service, Stubs, free_address, reason_of

Outcome = transaction_pb2.CommitTransactionResponse | transaction_pb2.AppendResponse
PROFILES = ("maxcompute", "delta_serializable", "delta_write_serializable", "row_level")
CLIENTS = 8
TOGETHER_FOR = 8  # transactions of one profile in a row
THINKS, THINKING_S = 0.7, 0.04  # how often before a commit, and how long at most: others get in between
SHOWN_MAX = 60  # versions of a table whose files are looked at


@dataclass
class World:
    """One service with three tables of each profile: two append tables, one with a key."""

    stubs: Stubs
    tables: dict[str, list[Table]] = field(default_factory=dict)
    histories: dict[str, History] = field(default_factory=dict)
    told: Told = field(default_factory=Told)
    ended: Counter[str] = field(default_factory=Counter)

    def create(self) -> None:
        for profile in PROFILES:
            tables = [
                wire.create(self.stubs, f"{profile}_{name}", profile, keyed=name == "k") for name in ("a", "b", "k")
            ]
            self.tables[profile] = tables
            self.histories[profile] = History(profile, frozenset(one.name for one in tables if one.keyed))


class Client:
    """One transaction after the other; each is recorded before its commit is asked for."""

    def __init__(self, world: World, seed: int, count: int) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.count = count
        self.failures: list[BaseException] = []

    def run(self) -> None:
        try:
            for number in range(self.count):
                profile = PROFILES[number // TOGETHER_FOR % len(PROFILES)]  # about the same for all: they shall meet
                if self.rng.random() < 0.1:
                    self.look(profile)
                self.transact(profile)
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            self.failures.append(error)

    def look(self, profile: str) -> None:
        table = self.rng.choice(self.world.tables[profile])
        ahead_us = self.rng.choice((-50_000, 0, 10_000_000))
        request = read_pb2.ResolveVersionRequest(table_id=table.table_id, time_us=time.time_ns() // 1000 + ahead_us)
        try:
            found = persist(lambda: self.world.stubs.reads.ResolveVersion(request, timeout=TIMEOUT_S))
        except grpc.RpcError as error:
            if reason_of(error) != "VERSION_RETIRED":  # a time before the table
                raise
            return
        self.world.histories[profile].looks.append(Looked(table.name, found.time_read_us, found.version))

    def transact(self, profile: str) -> None:
        rng, world = self.rng, self.world
        tables = world.tables[profile]
        if rng.random() < 0.1:
            self.append(rng.choice(tables))
            return
        if rng.random() < 0.5:
            chosen = list(zip(rng.sample(tables, 2), rng.choice(TOGETHER), strict=True))
        else:
            chosen = [(rng.choice(tables), rng.choice(ALONE))]
        chosen = [(table, "major" if name == "minor" and table.keyed else name) for table, name in chosen]
        txn = Txn(new_uuid7(), {})
        actions = self.begin(txn, chosen)
        for action in actions:
            action.make()
        if any(action.name in ("minor", "major") and not action.change.groups for action in actions):
            return  # nothing to compact: it runs out, or the round ends
        if rng.random() < THINKS:
            time.sleep(rng.random() * THINKING_S)
        world.histories[profile].txns[txn.txn_id] = txn
        self.register(txn.txn_id, actions)
        self.commit(txn, actions)
        world.ended["committed" if txn.answers[0].committed else "lost"] += 1

    def append(self, table: Table) -> None:
        """In one call: it reads nothing, so its read version is what it was put on top of."""
        part = Part(table.name, INSERT, 0, asked_s=time.monotonic())
        txn = Txn(new_uuid7(), {table.name: part})
        change = common_pb2.Change(table_id=table.table_id)
        action = Action(self.rng, self.world.told, table, "insert", txn.txn_id, part, [], change)
        action.make()
        request = transaction_pb2.AppendRequest(
            txn_id=txn.txn_id, table_id=table.table_id, files=change.files, principal=PRINCIPAL
        )
        self.world.histories[table.profile].txns[txn.txn_id] = txn
        while not txn.answers or self.rng.random() < 0.3:
            outcome = persist(lambda: self.world.stubs.txns.Append(request, timeout=TIMEOUT_S))
            txn.told_s = txn.told_s or time.monotonic()
            txn.answers.append(answer_of(outcome, {table.table_id: table.name}))
            part.read_version = dict(txn.answers[0].versions)[table.name] - 1
        self.world.ended["appended"] += 1

    def begin(self, txn: Txn, chosen: Sequence[tuple[Table, str]]) -> list[Action]:
        """At the heads of one moment, or at those that were found one after the other."""
        asked: dict[str, tuple[float, int | None]] = {}
        early = len(chosen) > 1 and self.rng.random() < 0.4
        for table, _ in chosen:
            asked[table.table_id] = time.monotonic(), self.head(table) if early else None
        intents = [
            transaction_pb2.TableIntent(
                table_id=table.table_id, operation=KINDS[name][1], read_version=asked[table.table_id][1]
            )
            for table, name in chosen
        ]
        request = transaction_pb2.BeginTransactionRequest(txn_id=txn.txn_id, tables=intents, principal=PRINCIPAL)
        begun = persist(lambda: self.world.stubs.txns.BeginTransaction(request, timeout=TIMEOUT_S))
        actions = []
        for (table, name), there in zip(chosen, begun.tables, strict=True):
            part = Part(table.name, KINDS[name][0], there.read_version, asked_s=asked[table.table_id][0])
            txn.parts[table.name] = part
            entries = wire.list_entries(self.world.stubs, table, part.read_version)
            change = common_pb2.Change(table_id=table.table_id)
            actions.append(Action(self.rng, self.world.told, table, name, txn.txn_id, part, entries, change))
        return actions

    def head(self, table: Table) -> int:
        request = read_pb2.ResolveVersionRequest(table_id=table.table_id)
        return persist(lambda: self.world.stubs.reads.ResolveVersion(request, timeout=TIMEOUT_S)).version

    def register(self, txn_id: str, actions: Sequence[Action]) -> None:
        """Some of the files; the commit brings the rest."""
        for action in actions:
            change = action.change
            if change.files and self.rng.random() < 0.3:
                files = list(change.files)
                del change.files[:]
                persist(lambda a=action, f=files: self.world.stubs.register(txn_id, a.table.table_id, *f))  # type: ignore[misc]

    def commit(self, txn: Txn, actions: Sequence[Action]) -> None:
        names = {action.table.table_id: action.table.name for action in actions}
        changes = [action.change for action in actions]
        while not txn.answers or self.rng.random() < 0.15:  # sometimes again
            outcome = persist(lambda: self.world.stubs.commit(txn.txn_id, *changes))
            txn.told_s = txn.told_s or time.monotonic()
            txn.answers.append(answer_of(outcome, names))


def answer_of(outcome: Outcome, names: dict[str, str]) -> Answer:
    if outcome.WhichOneof("outcome") == "committed":
        versions = tuple((names[one.table_id], one.version) for one in outcome.committed.tables)
        return Answer(True, versions, outcome.committed.commit_time_us)
    lost = outcome.conflict
    rule = common_pb2.ConflictRule.Name(lost.rule).removeprefix("CONFLICT_RULE_")
    return Answer(False, rule=rule, winner=(names[lost.table_id], lost.winner_version))


def record(folder: Path, *, seed: int, transactions: int, kills: int) -> World:
    """`transactions` for each client; kills are spread over the time until most of them have ended."""
    running = Service(folder / "db", listen=free_address())
    running.start()

    def kill() -> None:
        running.kill()
        running.start()

    try:
        return record_on(running.address, [kill] * kills, seed=seed, transactions=transactions)
    finally:
        if running.process is not None and running.process.poll() is None:
            stop(running.process)


def record_on(address: str, breaks: Sequence[Callable[[], None]], *, seed: int, transactions: int) -> World:
    """`breaks` break the service, one after the other, and mend it."""
    stubs = Stubs(address)
    try:
        world = World(stubs)
        world.create()
        clients = [Client(world, seed * 1_000 + number, transactions) for number in range(CLIENTS)]
        threads = [threading.Thread(target=client.run, daemon=True) for client in clients]
        for thread in threads:
            thread.start()
        for number, break_it in enumerate(breaks, 1):
            wanted = CLIENTS * transactions * number // (len(breaks) + 1)
            while world.ended.total() < wanted and any(thread.is_alive() for thread in threads):
                time.sleep(0.01)
            break_it()
        for thread in threads:
            thread.join()
        for client in clients:
            for failure in client.failures:
                raise failure
        read_back(world, random.Random(seed))
        return world
    finally:
        stubs.channel.close()


def read_back(world: World, rng: random.Random) -> None:
    """The logs, and what files show: at the head, and at some of the versions before it."""
    for profile, tables in world.tables.items():
        history = world.histories[profile]
        for table in tables:
            versions = wire.persist(lambda table=table: world.stubs.list_versions(table.table_id))  # type: ignore[misc]
            history.logs[table.name] = [Logged(one.version, one.txn_id, one.commit_time_us) for one in versions]
            head = len(versions) - 1
            for version in {*rng.sample(range(head + 1), min(head + 1, SHOWN_MAX)), head}:
                shown = wire.visible(table, wire.list_entries(world.stubs, table, version))
                history.shown[table.name, version] = {row: seen.image for row, seen in shown.items()}
