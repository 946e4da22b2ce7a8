"""Pins of a lake's reads, renewed in the background, so that no purge deletes the files of their versions.

A DataFrame is lazy, and its last use can't be observed. So the versions that it reads stay pinned until the lake
closes. The pins of a dead process are not renewed, and expire.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from metaservice.client import ErrorKind, LakeTXError, MetaClient, MetaServiceError, uuid7
from protos.laketx.v1 import read_pb2

VERSIONS_PER_PIN: Final = 64
PINS_MAX: Final = 1_000
RENEWALS_PER_LEASE: Final = 3

_log = logging.getLogger("laketx.worker")


@dataclass(slots=True)
class _Pin:
    versions: frozenset[tuple[str, int]]
    lease_ms: int


class ReaderPins:
    """The pins of one client, at most PINS_MAX; a new pin beyond that ends the oldest."""

    def __init__(self, client: MetaClient) -> None:
        self._client = client
        self._pins: OrderedDict[str, _Pin] = OrderedDict()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold_head(self, table_id: str) -> int:
        """Pins the newest version and returns it."""
        return self._pin([read_pb2.TableVersion(table_id=table_id)])[0]

    def hold(self, table_id: str, versions: Iterable[int]) -> None:
        """Pins the versions that are not pinned yet."""
        with self._lock:
            known = {version for pin in self._pins.values() for name, version in pin.versions if name == table_id}
        missing = sorted(set(versions) - known)
        for at in range(0, len(missing), VERSIONS_PER_PIN):
            chunk = missing[at : at + VERSIONS_PER_PIN]
            self._pin([read_pb2.TableVersion(table_id=table_id, version=version) for version in chunk])

    def close(self) -> None:
        """Ends all pins."""
        self._stop.set()
        with self._lock:
            held, self._pins = list(self._pins), OrderedDict()
        for pin_id in held:
            self._unpin(pin_id)

    def _pin(self, wanted: list[read_pb2.TableVersion]) -> list[int]:
        pin = self._client.pin(wanted, pin_id=uuid7())
        versions = [(one.table_id, one.version) for one in pin.tables]
        with self._lock:
            same = [one for one in self._pins.values() if one.versions == frozenset(versions)]
            if not same:
                self._pins[pin.pin_id] = _Pin(frozenset(versions), pin.lease_ms)
            oldest = self._pins.popitem(last=False)[0] if len(self._pins) > PINS_MAX else None
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=_renew_until_stopped, args=[weakref.ref(self), self._stop])
                self._thread.daemon = True
                self._thread.name = "laketx-pins"
                self._thread.start()
        for pin_id in (pin.pin_id if same else None, oldest):
            if pin_id is not None:
                self._unpin(pin_id)
        return [version for _, version in versions]

    def _unpin(self, pin_id: str) -> None:
        try:
            self._client.unpin(pin_id)
        except LakeTXError as error:
            _log.debug("a pin is left to its lease", extra={"pin_id": pin_id, "reason": str(error)})

    def renew_all(self) -> float:
        """Renews all pins; returns the seconds until the next renewal."""
        with self._lock:
            held = list(self._pins.items())
        for pin_id, pin in held:
            if self._stop.is_set():
                break
            try:
                pin.lease_ms = self._client.renew_pin(pin_id)
            except MetaServiceError as error:
                if error.kind not in (ErrorKind.UNAVAILABLE, ErrorKind.EXHAUSTED):
                    _log.warning("a pinned version is held no longer", extra={"pin_id": pin_id, "reason": error.reason})
                    with self._lock:
                        self._pins.pop(pin_id, None)
            except (LakeTXError, ValueError) as error:  # a channel that was closed says ValueError
                _log.debug("a pin was not renewed", extra={"pin_id": pin_id, "reason": str(error)})
        return min((pin.lease_ms for _, pin in held), default=60_000) / 1_000 / RENEWALS_PER_LEASE


def _renew_until_stopped(pins: weakref.ref[ReaderPins], stop: threading.Event) -> None:
    wait_s = 1.0
    while not stop.wait(wait_s):
        found = pins()
        if found is None:
            return
        wait_s = found.renew_all()
        del found
