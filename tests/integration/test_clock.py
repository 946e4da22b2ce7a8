"""The clocks of a real process: a wall clock that jumped between two runs, and a process that stands still."""

import json
import signal
import time
from pathlib import Path

import pytest

from metaservice.cli.failures import Exit
from metaservice.client import BlockedError, MetaClient
from metaservice.core.clock import Instant
from metaservice.store import keys
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.port import Batch
from metaservice.store.records.clocks import ClockState, decode_clock, encode_clock
from protos.laketx.v1 import common_pb2, read_pb2
from tests.integration.service import service
from tests.integration.terminal import Shell

MONTH_US = 30 * 24 * 3_600_000_000
LEASE_MS = 2_000
PAUSE_S = 3.0


def set_back(folder: Path) -> None:
    """As if the machine's clock had been a month behind in the last run: it has jumped ahead since."""
    store = RocksStore(folder)
    raw = store.get(keys.CLOCK)
    assert raw is not None
    last = decode_clock(raw).believed
    before = Instant(last.time_us - MONTH_US, last.boot, last.up_ms)
    batch = Batch()
    batch.put(keys.CLOCK, encode_clock(ClockState(before, before)))
    store.write(batch)
    store.close()


def test_a_clock_that_jumped_is_shown_and_confirmed(tmp_path: Path) -> None:
    with service(tmp_path / "data") as (running, stubs):
        table_id = stubs.create("t")
        status = json.loads(Shell(running.address).run("status", "-o", "json").out)
        assert "clock_hold_reason" not in status or not status["clock_hold_reason"]
    set_back(running.folder)
    with service(running.folder) as (again, _), MetaClient(again.address, principal="op", client_name="t") as client:
        shell = Shell(again.address)
        assert "CLOCK JUMPED" in shell.run("status").out
        assert client.get_status().clock_off_ms == pytest.approx(MONTH_US // 1000, abs=1_000)
        with pytest.raises(BlockedError, match="CLOCKS_DISAGREE"):
            list(client.list_purgeable(table_id))
        assert "would confirm" in shell.run("clock", "confirm", "--dry-run").out
        assert shell.run("clock", "confirm").code == Exit.USAGE
        assert shell.run("clock", "confirm", "-y").out == "confirmed the clock\n"
        assert shell.run("clock", "confirm", "-y").out == "nothing to confirm\n"
        assert "CLOCK JUMPED" not in shell.run("status").out
        assert '"event": "clocks_disagree"' in again.said()
    with service(running.folder) as (last, _), MetaClient(last.address, principal="op", client_name="t") as client:
        assert client.get_status().clock_hold_reason == ""


def test_a_stopped_process_keeps_what_was_renewed_until_then(tmp_path: Path) -> None:
    with service(tmp_path / "data", "--lease-ms", str(LEASE_MS)) as (running, stubs):
        table = stubs.create("t")
        txn_id = stubs.begin(table)
        with MetaClient(running.address, principal="ann", client_name="t") as client:
            pin = client.pin([read_pb2.TableVersion(table_id=table)], lease_ms=LEASE_MS)
            process = running.running()
            process.send_signal(signal.SIGSTOP)
            time.sleep(PAUSE_S)
            process.send_signal(signal.SIGCONT)
            client.renew_pin(pin.pin_id)
        stubs.commit(txn_id, common_pb2.Change(table_id=table))
        assert len(stubs.list_versions(table)) == 2
        assert '"event": "leases_renewed"' in running.said()
