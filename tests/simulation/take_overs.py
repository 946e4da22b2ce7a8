"""Histories of several servers on one bucket: what breaks, and what must hold all the same."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from metaservice.store import keys
from metaservice.store.engines.slate import SlateStore
from metaservice.store.port import prefix_end
from protos.laketx.storage.v1 import records_pb2 as pb
from tests.simulation.bucket import Bucket
from tests.simulation.history import HistoryError
from tests.simulation.logs import ViolationError, check
from tests.simulation.servers import Machine
from tests.simulation.steps import MS, Steps
from tests.simulation.take_over_clients import Client, FixedReader, Heard, Lake, Told

CLIENTS: Final = 3
BREAKS: Final = 14
PATIENCE_MS: Final = 60_000  # once nothing is broken any more: within it everybody is answered


class Nemesis:
    """Breaks something, mends it, and breaks the next thing."""

    def __init__(self, lake: Lake, bucket: Bucket) -> None:
        self._lake = lake
        self._bucket = bucket
        self._steps = lake.steps
        self.broke: Counter[str] = Counter()
        self._ways: list[Callable[[Machine], None]] = [
            self.kill,
            self.stop,
            self.step_down,
            self.stand_still,
            self.stand_still,
            self.cut_off_bucket,
            self.cut_off_bucket,
            self.cut_off_clients,
            self.slow_then_cut,
            self.slow_then_cut,
            self.lose_then_cut,
            self.lose_then_cut,
            self.fail,
            self.lose,
            self.be_late,
            self.jump,
        ]

    def run(self) -> None:
        steps, rng, lake = self._steps, self._steps.rng, self._lake
        for _ in range(BREAKS):
            steps.sleep_ms(rng.choice((300, 3_000, 7_000)) * rng.random())
            leaders = [each for each in lake.machines if each.process is not None and each.process.service is not None]
            machine = rng.choice(leaders if leaders and rng.random() < 0.7 else lake.machines)
            way = rng.choice(self._ways)
            self.broke[way.__name__] += 1
            way(machine)
        for each in lake.machines:
            each.link.mend()
            each.cut_from.clear()
        lake.is_ending = True

    def _later(self, machine: Machine, mend: Callable[[], None], most_ms: int = 14_000) -> None:
        def run() -> None:
            self._steps.sleep_ms(self._steps.rng.randrange(most_ms))
            mend()

        self._steps.spawn(run)

    def kill(self, machine: Machine) -> None:
        if machine.process is not None:
            machine.process.die(-9)

    def stop(self, machine: Machine) -> None:
        if machine.process is not None:
            machine.process.stop.set()

    def step_down(self, machine: Machine) -> None:
        if machine.process is not None and machine.process.service is not None:
            machine.process.leads.step_down()

    def stand_still(self, machine: Machine) -> None:
        if machine.process is not None:
            most_ms = self._steps.rng.choice((1_000, 6_000, 20_000))
            machine.process.still_until_us = self._steps.now_us + self._steps.rng.randrange(most_ms) * MS

    def cut_off_bucket(self, machine: Machine) -> None:
        machine.link.cut = True
        self._later(machine, machine.link.mend)

    def cut_off_clients(self, machine: Machine) -> None:
        names = ["client 0", "client 1", "client 2", *(f"reader of {each.name}" for each in self._lake.machines)]
        machine.cut_from.update(self._steps.rng.sample(names, self._steps.rng.randint(1, len(names))))
        self._later(machine, machine.cut_from.clear)

    def slow_then_cut(self, machine: Machine) -> None:
        """The last renewals were long under way when the bucket is gone."""
        machine.link.slow_ms = 1_850
        self._steps.sleep_ms(self._steps.rng.randrange(1_000, 6_000))
        machine.link.cut = True
        self._later(machine, machine.link.mend)

    def lose_then_cut(self, machine: Machine) -> None:
        """The last renewals were done, and nobody said so."""
        machine.link.losing = True
        self._steps.sleep_ms(self._steps.rng.randrange(2_000, 8_000))
        machine.link.cut = True
        self._later(machine, machine.link.mend)

    def fail(self, machine: Machine) -> None:
        machine.link.failing = True
        self._later(machine, machine.link.mend)

    def lose(self, machine: Machine) -> None:
        machine.link.losing = machine.link.unsure = True
        self._later(machine, machine.link.mend)

    def be_late(self, machine: Machine) -> None:
        machine.link.late = True
        self._later(machine, machine.link.mend)

    def jump(self, machine: Machine) -> None:
        rng = self._steps.rng
        machine.clock.off_us += rng.choice((-1, 1)) * rng.choice((1_000, 3_000_000, 40_000_000))


def run_take_overs(seed: int) -> Counter[str]:
    """What happened, counted; the same seed always gives the same."""
    steps = Steps(random.Random(seed))
    try:
        with tempfile.TemporaryDirectory(prefix="laketx-sim-") as folder:
            return _run(steps, Path(folder), servers=2 + seed % 2)
    except ViolationError as error:
        raise HistoryError(f"seed {seed} of take-overs, after {steps.now_us / 1e6:.3f} s: {error}") from error
    except Exception as error:
        raise HistoryError(f"seed {seed} of take-overs, after {steps.now_us / 1e6:.3f} s: {error!r}") from error


def _run(steps: Steps, folder: Path, servers: int) -> Counter[str]:
    bucket = Bucket(steps)
    machines = [Machine(f"server {number}", steps, bucket, folder) for number in range(servers)]
    lake = Lake(steps, machines)
    nemesis = Nemesis(lake, bucket)
    clients = [Client(f"client {number}", lake) for number in range(CLIENTS)]

    def begin() -> None:
        clients[0].create()
        for client in clients:
            steps.spawn(client.run)
        for machine in machines:
            steps.spawn(FixedReader(f"reader of {machine.name}", lake, machine).run)
        nemesis.run()
        until_us = steps.now_us + PATIENCE_MS * MS
        while lake.busy and steps.now_us < until_us:
            steps.sleep_ms(50)
        done.append(True)

    done: list[bool] = []
    for machine in machines:
        steps.spawn(machine.run)
    steps.spawn(begin)
    steps.play(lambda: not done)
    check(not lake.busy, "once nothing is broken everybody is answered", lake.busy)
    log = read_log(bucket, lake.table_id)
    bucket.close()
    check_log(log)
    check_txns(lake, log)
    check_real_time(lake, log)
    counts = Counter(nemesis.broke)
    counts.update(str(told.answer[0]).lower() for told in lake.txns.values() if told.answer is not None)
    counts.update(
        commits=len(log), merges=lake.merges, heard=len(lake.heard), openings=bucket.openings, fenced=bucket.fenced
    )
    counts.update(turns=steps.turns, virtual_s=steps.now_us // 1_000_000)
    counts.update(f"ended with {code}" for machine in machines for code in machine.ends)
    return counts


# -- what must hold ----------------------------------------------------------------------------------------------------


def read_log(bucket: Bucket, table_id: str) -> list[pb.CommitRecord]:
    """As the next leader would find it."""
    store = SlateStore(bucket.place, bucket=bucket.objects)
    prefix = keys.commits_prefix(keys.uuid_bytes(table_id))
    found = [pb.CommitRecord.FromString(raw) for _, raw in store.cursor().scan(prefix, prefix_end(prefix))]
    store.close()
    return found


def check_log(log: list[pb.CommitRecord]) -> None:
    check([one.version for one in log] == list(range(len(log))), "versions have no gaps", [one.version for one in log])
    times = [one.time_us for one in log]
    check(times == sorted(set(times)), "commit times increase")
    ids = [one.txn_id for one in log[1:]]
    check(len(ids) == len(set(ids)), "nobody commits twice")


def check_txns(lake: Lake, log: list[pb.CommitRecord]) -> None:
    there = {one.txn_id: one.version for one in log[1:]}
    check(there.keys() <= lake.txns.keys(), "what is in the log was asked for", there.keys() - lake.txns.keys())
    for txn_id, told in lake.txns.items():
        check(not told.differs, "an outcome never changes", txn_id, told)
        if told.answer is None:
            continue
        version = told.version(lake.table_id)
        check(there.get(txn_id) == version, "an outcome is what the log says", txn_id, told, there.get(txn_id))


def check_real_time(lake: Lake, log: list[pb.CommitRecord]) -> None:
    """Whoever asks after an answer sees what it said; a time that was answered keeps its version."""
    told: list[tuple[int, int]] = []  # when, and which version somebody knew by then
    asked: list[tuple[int, int, Heard | Told]] = []
    for txn in lake.txns.values():
        version = txn.version(lake.table_id)
        if version is not None:
            told.append((txn.told_us, version))
            asked.append((txn.asked_us, version - 1, txn))  # it goes on top of what was answered before
    for heard in lake.heard:
        if heard.time_us is None:
            told.append((heard.told_us, heard.version))
            asked.append((heard.asked_us, heard.version, heard))
        else:
            newest = max(one.version for one in log if one.time_us <= heard.time_us)
            check(heard.version == newest, "an answered time keeps its version", heard, newest)
    told.sort()
    at = known = 0
    for asked_us, version, what in sorted(asked, key=lambda one: one[:2]):
        while at < len(told) and told[at][0] < asked_us:
            known = max(known, told[at][1])
            at += 1
        check(version >= known, "no answer is older than what was known when it was asked for", what, known)
