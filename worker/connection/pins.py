"""Pins of a lake's reads, renewed in the background, so that no purge deletes the files of their versions.

A DataFrame is lazy, and its last use can't be observed. So the versions that it reads stay pinned until the lake
closes. What reads with Arrow has a pin of its own, which ends with it. The pins of a dead process are not renewed, and
expire.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from metaservice.client import ErrorKind, LakeTXError, MetaClient, MetaServiceError, uuid7
from metaservice.client.threads import start_thread
from protos.laketx.v1 import common_pb2, read_pb2

VERSIONS_PER_PIN: Final = common_pb2.LIMIT_PIN_VERSIONS
PINS_MAX: Final = common_pb2.LIMIT_PINS
RENEWALS_PER_LEASE: Final = 3
RELEASED_MAX: Final = 100  # that wait for their end

_log = logging.getLogger("laketx.worker")


@dataclass(slots=True)
class _Pin:
    versions: frozenset[tuple[str, int]]
    lease_ms: int
    is_shared: bool = True


class PinnedVersion:
    """A version that is kept readable as long as this object is used, or until `release`."""

    def __init__(self, version: int, release: Callable[[], None]) -> None:
        self.version = version
        self.release = weakref.finalize(self, release)
        self.release.atexit = False  # the lake's end, or the lease's, ends it


class ReaderPins:
    """The pins of one client, of the shared ones at most PINS_MAX; a new one beyond that ends the oldest."""

    def __init__(self, client: MetaClient) -> None:
        self._client = client
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._released: deque[str] = deque()  # an object's end may come in any thread at any time: it calls nothing
        self._scans_pin = True  # until a service of the release before answers
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._bell = threading.Event()  # pins are to be ended
        self._thread: threading.Thread | None = None

    def hold_head(self, table_id: str) -> int:
        """Pins the newest version and returns it."""
        return self._pin([read_pb2.TableVersion(table_id=table_id)])[0]

    def hold(self, table_id: str, versions: Iterable[int]) -> None:
        """Pins the versions that are not pinned yet."""
        with self._lock:
            pinned = {
                version
                for pin in self._pins.values()
                if pin.is_shared
                for name, version in pin.versions
                if name == table_id
            }
        missing = sorted(set(versions) - pinned)
        for at in range(0, len(missing), VERSIONS_PER_PIN):
            chunk = missing[at : at + VERSIONS_PER_PIN]
            self._pin([read_pb2.TableVersion(table_id=table_id, version=version) for version in chunk])

    def own(self, table_id: str, version: int | None = None) -> PinnedVersion:
        """A pin of a version, or of the newest, that nobody shares."""
        return self._own([read_pb2.TableVersion(table_id=table_id, version=version)])

    def own_many(self, versions: Mapping[str, int | None]) -> tuple[PinnedVersion, dict[str, int]]:
        """Pin a version, or the newest, of each of several tables, all as of one instant; nobody shares the pin."""
        self._let_end()
        pin = self._client.pin(
            [read_pb2.TableVersion(table_id=table_id, version=version) for table_id, version in versions.items()],
            pin_id=uuid7(),
        )
        granted = [(table.table_id, table.version) for table in pin.tables]
        return self._held(pin.pin_id, granted, pin.lease_ms), dict(granted)

    def scan(
        self,
        table_id: str,
        version: int | None,
        predicate: common_pb2.Predicate | None,
    ) -> tuple[PinnedVersion, Iterator[read_pb2.PlanScanResponse]] | None:
        """The plan of a version, or of the newest, with metadata and inlined rows, and a pin that nobody shares.

        One call. None from a service of the release before, which can't.
        """
        if not self._scans_pin:
            return None
        self._let_end()
        pin_id = uuid7()
        parts = self._client.plan_scan(
            table_id,
            version=version,
            predicate=predicate,
            without_stats=True,
            pin_id=pin_id,
            with_tables=True,
            with_rows=True,
            join_rows=predicate is None,
        )
        first = next(parts)
        if not first.lease_ms:
            self._scans_pin = False
            return None
        return self._held(pin_id, [(table_id, first.version)], first.lease_ms), chain([first], parts)

    def own_all(self, table_id: str, versions: Sequence[int]) -> list[PinnedVersion]:
        """Pin versions without sharing; each pin is returned with the last of its versions."""
        requested = [read_pb2.TableVersion(table_id=table_id, version=version) for version in versions]
        return [self._own(requested[at : at + VERSIONS_PER_PIN]) for at in range(0, len(requested), VERSIONS_PER_PIN)]

    def _own(self, requested: list[read_pb2.TableVersion]) -> PinnedVersion:
        self._let_end()
        pin = self._client.pin(requested, pin_id=uuid7())
        return self._held(pin.pin_id, [(table.table_id, table.version) for table in pin.tables], pin.lease_ms)

    def _held(self, pin_id: str, versions: Sequence[tuple[str, int]], lease_ms: int) -> PinnedVersion:
        with self._lock:
            self._pins[pin_id] = _Pin(frozenset(versions), lease_ms, is_shared=False)
            self._begin_renewals()
        return PinnedVersion(versions[-1][1], partial(self._released.append, pin_id))

    def _let_end(self) -> None:
        """Pins that are used no more end in the background: a read waits for no call of another one."""
        if len(self._released) > RELEASED_MAX:
            self.end_released()
        elif self._released:
            self._bell.set()

    def end_released(self) -> None:
        """Ends pins that are no longer used."""
        while True:
            try:
                pin_id = self._released.popleft()
            except IndexError:  # none is left; another thread may have been faster
                return
            with self._lock:
                pin = self._pins.pop(pin_id, None)
            if pin is not None:
                self._unpin(pin_id)

    def close(self) -> None:
        """Ends all pins."""
        _stop(self._stop, self._bell)
        with self._lock:
            held, self._pins = list(self._pins), OrderedDict()
        for pin_id in held:
            self._unpin(pin_id)

    def _pin(self, requested: list[read_pb2.TableVersion]) -> list[int]:
        pin = self._client.pin(requested, pin_id=uuid7())
        versions = [(table.table_id, table.version) for table in pin.tables]
        with self._lock:
            shared = {pin_id: shared_pin for pin_id, shared_pin in self._pins.items() if shared_pin.is_shared}
            same = [shared_pin for shared_pin in shared.values() if shared_pin.versions == frozenset(versions)]
            if not same:
                self._pins[pin.pin_id] = _Pin(frozenset(versions), pin.lease_ms)
            oldest = next(iter(shared)) if not same and len(shared) >= PINS_MAX else None
            if oldest is not None:
                del self._pins[oldest]
            self._begin_renewals()
        for pin_id in (pin.pin_id if same else None, oldest):
            if pin_id is not None:
                self._unpin(pin_id)
        return [version for _, version in versions]

    def _begin_renewals(self) -> None:
        if self._thread is None and not self._stop.is_set():
            keep = partial(_keep_until_stopped, weakref.ref(self), self._stop, self._bell)
            self._thread = start_thread(keep, "laketx-pins", partial(_stop, self._stop, self._bell))

    def _unpin(self, pin_id: str) -> None:
        try:
            self._client.unpin(pin_id)
        except (LakeTXError, ValueError) as error:  # a channel that was closed says ValueError
            _log.debug("a pin is left to its lease", extra={"pin_id": pin_id, "reason": str(error)})

    def renew_all(self) -> float:
        """Renews all pins; returns the seconds until the next renewal."""
        self.end_released()
        with self._lock:
            held = list(self._pins.items())
        for pin_id, pin in held:
            if self._stop.is_set():
                break
            try:
                pin.lease_ms = self._client.renew_pin(pin_id)
            except MetaServiceError as error:
                if error.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED, ErrorKind.DENIED):
                    _log.warning("a pinned version is held no longer", extra={"pin_id": pin_id, "reason": error.reason})
                    with self._lock:
                        self._pins.pop(pin_id, None)
            except (LakeTXError, ValueError) as error:  # a channel that was closed says ValueError
                _log.debug("a pin was not renewed", extra={"pin_id": pin_id, "reason": str(error)})
        return min((pin.lease_ms for _, pin in held), default=60_000) / 1_000 / RENEWALS_PER_LEASE


def _stop(stop: threading.Event, bell: threading.Event) -> None:
    stop.set()
    bell.set()


def _keep_until_stopped(pins: weakref.ref[ReaderPins], stop: threading.Event, bell: threading.Event) -> None:
    due_s = time.monotonic() + 1.0
    while not stop.is_set():
        bell.wait(max(due_s - time.monotonic(), 0))
        bell.clear()
        reader_pins = pins()
        if reader_pins is None or stop.is_set():
            return
        if time.monotonic() < due_s:
            reader_pins.end_released()
        else:
            due_s = time.monotonic() + reader_pins.renew_all()
        del reader_pins
