"""SlateDB's collector of garbage beside a write that was sent, and arrives when another process leads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from slatedb import uniffi as slatedb

from metaservice.store.engines.slate import COLLECTS, SlateStore, open_bucket, own_settings
from metaservice.store.engines.slate_binding import run
from metaservice.store.object_location import ObjectPlace
from metaservice.store.port import STORE_OPTIONS_OTHER, Batch, StoreFenced, StoreUnusable
from tests.integration.broken_network import Network, Way
from tests.integration.bucket import BUCKET, bucket
from tests.integration.service import TIMEOUT_S

PLACE = ObjectPlace(BUCKET, "meta")


@pytest.fixture
def way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    """To the bucket that the environment names; the folder of its objects is `objects`."""
    network = Network()
    with bucket(tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        yield Way(network, variables["AWS_ENDPOINT_URL"].removeprefix("http://"))
        network.close()


def write(store: SlateStore, key: str) -> None:
    batch = Batch()
    batch.put(key.encode(), b"x" * 100)
    store.write(batch)


def collect_now(place: ObjectPlace) -> None:
    """By the options that run, but of any age."""

    def options(name: str) -> slatedb.GarbageCollectorDirectoryOptions:
        return slatedb.GarbageCollectorDirectoryOptions(min_age_ms=0, dry_run=COLLECTS[name]["dry_run"])

    admin = slatedb.AdminBuilder(place.path, open_bucket(place)).build()
    run(
        admin.run_gc_once(
            slatedb.GarbageCollectorOptions(
                manifest_options=options("manifest_options"),
                wal_options=options("wal_options"),
                wal_fence_options=options("wal_fence_options"),
                compacted_options=options("compacted_options"),
                compactions_options=options("compactions_options"),
            )
        )
    )


def log_of(tmp_path: Path) -> dict[str, int]:
    return {one.name: one.stat().st_size for one in (tmp_path / "objects" / BUCKET / "meta" / "wal").glob("*.sst")}


def test_a_put_in_flight_across_a_collection_is_refused(
    way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = f"http://{way._target}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{way.address}")
    old = SlateStore(PLACE)
    write(old, "old")
    old.sync()
    monkeypatch.setenv("AWS_ENDPOINT_URL", direct)
    way.holds = b"/meta/"
    write(old, "in flight")
    failed: list[BaseException] = []

    def sync() -> None:
        try:
            old.sync()
        except StoreFenced as error:
            failed.append(error)

    syncing = threading.Thread(target=sync)
    syncing.start()
    until_s = time.monotonic() + TIMEOUT_S
    while not way.has_held:
        assert time.monotonic() < until_s
        time.sleep(0.01)
    new = SlateStore(PLACE)
    for number in range(3):
        write(new, f"new {number}")
        new.sync()
    new.write_out()
    before = log_of(tmp_path)
    collect_now(PLACE)
    left = log_of(tmp_path)
    assert len(left) < len(before)  # it did collect
    way.mend()
    syncing.join(TIMEOUT_S)
    assert failed  # what was not made durable is not acknowledged
    assert log_of(tmp_path) == left
    write(new, "after")
    new.sync()
    new.close()
    again = SlateStore(PLACE)
    assert again.get(b"after")
    assert again.get(b"in flight") is None
    again.close()
    old.close()


def test_a_start_with_other_options_is_refused() -> None:
    assert own_settings(PLACE)
    others = {
        "fences are collected": {**COLLECTS, "wal_fence_options": COLLECTS["wal_options"]},
        "one is left out": {**COLLECTS, "wal_options": None},
        "an unknown interval": {**COLLECTS, "wal_options": {**COLLECTS["wal_options"], "interval": "1 fortnight"}},
    }
    for options in others.values():
        with pytest.raises(StoreUnusable, match=STORE_OPTIONS_OTHER):
            own_settings(PLACE, {"garbage_collector_options": options})
