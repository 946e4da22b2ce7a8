"""One bucket in memory for several servers: SlateDB itself on it, the lease beside it, and a network that breaks.

Each server has a link to the bucket:

    cut        nothing comes through, either way: a lease's request times out, SlateDB tries again until it does
    failing    the bucket answers 503
    losing     what is asked of the lease is done, and its answer is lost
    unsure     likewise of the store
    slow       answers take about so many milliseconds
    late       a request comes to the bucket long after its sender gave up, or died
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from slatedb import uniffi as slatedb

from metaservice.core.lease import Lease
from metaservice.store.engines.slate import SlateStore
from metaservice.store.engines.slate_binding import run
from metaservice.store.lease.lease_object import LeaseObject, decode_lease, encode_lease
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import Store
from tests.simulation.logs import check
from tests.simulation.steps import Bell, Steps

T = TypeVar("T")

TIMEOUT_MS: Final = 2_000  # of a request about the lease
TRY_AGAIN_MS: Final = 150  # SlateDB


@dataclass(slots=True)
class Link:
    """One server's way to the bucket."""

    cut: bool = False
    failing: bool = False
    losing: bool = False
    unsure: bool = False
    late: bool = False
    slow_ms: int = 0

    def mend(self) -> None:
        self.cut = self.failing = self.losing = self.unsure = self.late = False
        self.slow_ms = 0


class Bucket:
    """What is in it, and who opened the store last."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.objects = slatedb.ObjectStore.resolve("memory:///")
        self.place = ObjectPlace("sim", "meta")
        self.lease: bytes | None = None
        self.openings = 0
        self.fenced = 0
        self.served: dict[int, int] = {}  # when a process first took a call, by the number of its opening
        self._opened: list[slatedb.Db] = []

    def open_store(self, link: Link) -> Store:
        """For one server; whoever had it is fenced."""
        _reach(self.steps, link)
        store = SlateStore(self.place, bucket=self.objects)
        store.reads_at_once = 1  # threads would come in an order that no seed tells
        store.log_files_max = 1 << 30  # likewise
        self.openings += 1
        self._opened.append(store._db)
        store._db = _Db(self, link, store._db, self.openings)
        self.steps.step()
        return store

    def close(self) -> None:
        """Ends what SlateDB runs for processes that were killed."""
        for db in self._opened:
            with suppress(slatedb.Error):
                run(db.shutdown())

    @property
    def tag(self) -> str | None:
        """As S3 makes it: of the bytes alone."""
        return None if self.lease is None else hashlib.md5(self.lease).hexdigest()


class LeaseInSim(LeaseObject):
    """The lease as one server reaches it."""

    def __init__(self, bucket: Bucket, link: Link) -> None:
        self._bucket = bucket
        self._link = link

    def read(self) -> tuple[Lease, str] | None:
        def read() -> tuple[Lease, str] | None:
            raw, tag = self._bucket.lease, self._bucket.tag
            return (decode_lease(raw), tag) if raw is not None and tag is not None else None

        return self._ask(read)

    def write(self, lease: Lease, over: str | None) -> str | None:
        raw = encode_lease(lease)

        def write() -> str | None:
            if self._bucket.tag != over:
                return None
            self._bucket.lease = raw
            return self._bucket.tag

        return self._ask(write)

    def _ask(self, do: Callable[[], T]) -> T:
        steps, link = self._bucket.steps, self._link
        rng = steps.rng
        sent_us = steps.now_us
        steps.sleep_ms(rng.random() * (2 + link.slow_ms / 20))
        if link.cut:
            steps.sleep_ms(TIMEOUT_MS)
            raise OSError("no answer")
        if link.failing:
            raise OSError("503: slow down")
        if link.late and rng.random() < 0.5:
            steps.spawn(lambda: _after(steps, rng.randrange(TIMEOUT_MS, 4 * TIMEOUT_MS), do))
            steps.sleep_ms(TIMEOUT_MS)
            raise OSError("no answer in time")
        answer = do()
        steps.sleep_ms(rng.random() * 2 + rng.uniform(0.8, 1.0) * link.slow_ms)
        if self._is_lost():
            steps.sleep_ms(TIMEOUT_MS)
            raise OSError("the answer was lost")
        if steps.now_us - sent_us > TIMEOUT_MS * 1000:
            raise OSError("the answer came too late")
        return answer

    def _is_lost(self) -> bool:
        return self._link.cut or (self._link.losing and self._bucket.steps.rng.random() < 0.5)


class _Db:
    """SlateDB's handle, behind the network: what it keeps in memory is asked without it."""

    def __init__(self, bucket: Bucket, link: Link, db: slatedb.Db, opening: int) -> None:
        self._bucket = bucket
        self._link = link
        self._db = db
        self._opening = opening
        self._has_written = False

    async def get(self, key: bytes) -> bytes | None:
        if self._bucket.steps.rng.random() < 0.02:
            self._bucket.steps.step()
        found: bytes | None = await self._db.get(key)
        return found

    async def snapshot(self) -> slatedb.DbSnapshot:
        return await self._db.snapshot()

    async def write(self, batch: slatedb.WriteBatch) -> object:
        self._bucket.steps.step()
        self._has_written = True
        return await self._db.write(batch)

    async def flush_with_options(self, options: slatedb.FlushOptions) -> None:
        steps, link = self._bucket.steps, self._link
        late = link.late and steps.rng.random() < 0.3
        if late:
            said, heard = Bell(steps), list[Any]()
            steps.spawn(lambda: self._flush_late(options, said, heard))
            said.wait_ms(1 << 30)
            if heard:
                raise heard[0]
        else:
            _reach(steps, link)
            self._flush(options)
        _reach(steps, link)
        if link.unsure and steps.rng.random() < 0.2:
            raise slatedb.Error.Unavailable("the answer was lost")

    async def shutdown(self) -> None:
        self._bucket.steps.step()
        await self._db.shutdown()

    def _flush_late(self, options: slatedb.FlushOptions, said: Bell, heard: list[Any]) -> None:
        """Its sender may be dead by then."""
        steps = self._bucket.steps
        steps.sleep_ms(steps.rng.randrange(7_000))
        try:
            self._flush(options)
        except slatedb.Error as error:
            heard.append(error)
        said.ring()

    def _flush(self, options: slatedb.FlushOptions) -> None:
        try:
            run(self._db.flush_with_options(options))
        except slatedb.Error.Closed:
            self._bucket.fenced += 1
            raise
        if self._has_written:
            check(self._opening == self._bucket.openings, "who opened the store last writes alone", self._opening)
        self._has_written = False


def _reach(steps: Steps, link: Link) -> None:
    steps.sleep_ms(steps.rng.random() * (2 + link.slow_ms / 4))
    while link.cut or (link.failing and steps.rng.random() < 0.8):
        steps.sleep_ms(TRY_AGAIN_MS)


def _after(steps: Steps, ms: int, do: Callable[[], object]) -> None:
    steps.sleep_ms(ms)
    do()
