"""Two processes on one bucket: whatever happens to the leader, nothing answered is lost, twice or stale.

The quick run kills a leader, cuts it off from its bucket, loses answers of the bucket, and lets it stand still; the
long tests break each other thing too.
"""

from __future__ import annotations

import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

from metaservice.client import LakeTXError, MetaClient
from metaservice.client.health import ask_health
from metaservice.server.settings import read_settings
from metaservice.server.store_opening import OpenState
from metaservice.store.port import Batch, StoreFenced
from protos.laketx.v1 import read_pb2
from tests.conformance.play import new_uuid7
from tests.forked_programs import run_forked
from tests.integration.bucket import bucket
from tests.integration.high_availability import (
    LEADS_NO_MORE,
    PATIENCE_S,
    STORE,
    Load,
    Pair,
    check_history,
    create_table,
    list_committed,
    pair,
)
from tests.integration.periodic_runs import run_twice
from tests.integration.service import TIMEOUT_S, Stubs, append_request
from tests.integration.take_over_rounds import CUT, KILL, LOSSY, MIX, deal, play_everywhere


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param([KILL, CUT, LOSSY], id="some"),
        pytest.param(deal(seed=1, rounds=len(MIX)), id="each", marks=pytest.mark.long),
    ],
)
def test_commits_go_on_whatever_breaks(tmp_path: Path, rounds: list[str]) -> None:
    assert len(play_everywhere(tmp_path, rounds, pairs=3, writers=3)) == len(rounds)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_rounds(tmp_path: Path, seed: int) -> None:
    """Forty a seed."""
    assert len(play_everywhere(tmp_path, deal(seed, 40), pairs=5, writers=4)) == 40


def test_a_leader_that_stood_still_answers_nothing(both: Pair) -> None:
    """Calls that came while it stood still are there when it goes on."""
    table_id, leader = create_table(both), both.leader()
    with MetaClient(leader.address) as client:
        check_runs = run_twice(client)
    leader.send(signal.SIGSTOP)
    read = read_pb2.ResolveVersionRequest(table_id=table_id)
    stubs = [Stubs(leader.address) for _ in range(8)]
    asked = [each.reads.ResolveVersion.future(read, timeout=PATIENCE_S, wait_for_ready=True) for each in stubs]
    commits = [each.txns.Append.future(append_request(table_id, new_uuid7()), timeout=PATIENCE_S) for each in stubs]
    assert both.leader() is both.other(leader)
    leader.send(signal.SIGCONT)
    assert leader.wait() == LEADS_NO_MORE
    calls: list[Any] = [*asked, *commits]
    for call in calls:
        call.cancel()  # those that wait for a server that isn't there
        with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
            call.result(TIMEOUT_S)
    for each in stubs:
        each.channel.close()
    assert list_committed(both.other(leader).address, table_id) == {}
    with MetaClient(both.other(leader).address) as client:
        check_runs(client)


def test_a_standby_says_who_leads(both: Pair) -> None:
    leader = both.leader()
    standby = both.other(leader)
    with MetaClient(standby.address, retry_budget_s=0.5) as client:
        with pytest.raises(LakeTXError) as refused:
            list(client.list_tables())
        status = client.get_status()
    assert getattr(refused.value, "reason", "") == "NOT_LEADER"
    assert getattr(refused.value, "facts", {})["leader"] == leader.address
    assert (status.role, status.leader, status.lease_epoch) == ("standby", leader.address, 1)
    assert ask_health(standby.address, TIMEOUT_S) == "NOT_SERVING"
    assert ask_health(leader.address, TIMEOUT_S) == ask_health(both.address, TIMEOUT_S) == "SERVING"
    with grpc.insecure_channel(standby.address) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        stream = watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert next(stream).status == health_pb2.HealthCheckResponse.NOT_SERVING
        stream.cancel()
    other_way_round = f"{standby.address},{leader.address}"
    wait_until(
        lambda: f"standbys        {standby.address}\n" in laketx(both, "--server", other_way_round, "status").stdout
    )
    said = laketx(both, "--server", other_way_round, "status")
    assert f"leader          {leader.address}\n" in said.stdout
    assert "lease           epoch 1, renewed " in said.stdout
    seen = laketx(both, "--server", standby.address, "status")
    assert "lease           epoch 1, seen to change " in seen.stdout
    assert "standbys" not in seen.stdout


@pytest.mark.long
def test_both_are_measured_and_a_standby_that_is_gone_is_missed(both: Pair) -> None:
    leader = both.leader()
    standby = both.other(leader)
    wait_until(lambda: scrape(leader.metrics).get("laketx_standbys") == 1)
    led, stood_by = scrape(leader.metrics), scrape(standby.metrics)
    for found, role in ((led, 1), (stood_by, 0)):
        assert found["laketx_leader"] == role
        assert found["laketx_take_overs_total"] == 1
        assert found['laketx_lease_failures_total{request="renewal"}'] == 0
        assert found["laketx_lease_age_seconds"] < TIMEOUT_S
    assert led["laketx_bucket_put_seconds_count"] >= 1
    assert led['laketx_bucket_requests_total{request="put"}'] >= 1
    assert led["laketx_start_time_seconds"] > 0
    assert not {"laketx_standbys", "laketx_start_time_seconds"} & stood_by.keys()
    standby.send(signal.SIGKILL)
    standby.wait()
    wait_until(lambda: scrape(leader.metrics)["laketx_standbys"] == 0)
    said = laketx(both, "--server", leader.address, "status").stdout
    assert f"NONE: nobody goes on when the leader ends, {standby.address} GONE for " in said


def scrape(address: str) -> dict[str, float]:
    """The samples of a process."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def wait_until(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.2)


def test_a_store_moves_to_a_bucket_and_back(both: Pair, tmp_path: Path) -> None:
    table_id = create_table(both)
    load = Load(both.address, table_id)
    load.start(writers=2, readers=0)
    load.wait_for_more()
    load.stop()
    refused = laketx(both, "store", "copy", STORE, str(tmp_path / "back"))
    assert refused.returncode == 1
    assert "STORE_IN_USE" in refused.stderr
    for each in both.processes:
        each.stop()

    done = laketx(both, "store", "copy", STORE, str(tmp_path / "back"))
    assert done.returncode == 0, done.stderr
    assert laketx(both, "store", "copy", STORE, str(tmp_path / "back")).returncode == 1
    other = STORE + "-moved"
    assert laketx(both, "store", "copy", str(tmp_path / "back"), other).returncode == 0
    assert "DATA_EXISTS" in laketx(both, "store", "copy", str(tmp_path / "back"), other).stderr
    for place in (STORE, other, str(tmp_path / "back")):
        said = laketx(both, "check", "--data", place)
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith("checked 1 tables")
        assert said.stdout.endswith(" 0 problems\n")

    both.processes[0].start()
    check_history(load, list_committed(both.leader().address, table_id))


def test_a_backup_of_a_bucket_is_restored_to_a_folder(both: Pair, tmp_path: Path) -> None:
    create_table(both)
    leader = both.leader()
    with MetaClient(leader.address) as client:
        made = client.backup("first")
    restored = laketx(both, "restore", "--backup", made.path, "--data", str(tmp_path / "restored"))
    assert restored.returncode == 0, restored.stderr
    assert "1 tables" in laketx(both, "check", "--data", str(tmp_path / "restored")).stdout


def test_a_cache_that_holds_no_index_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_settings(["--store", STORE, "--store-cache-bytes", "1000000"])
    assert "--store-cache-bytes must be at least 67108864" in capsys.readouterr().err


@pytest.mark.parametrize("store", ["file:///tmp/store", "s3://bucket", "gs://bucket/path", "s3://bucket/a/../b"])
def test_a_place_that_keeps_nothing_is_refused(store: str, tmp_path: Path) -> None:
    refused = run_forked("metaservice", "--store", store, "--data", str(tmp_path), timeout=TIMEOUT_S)
    assert refused.returncode == 2
    assert "--store" in refused.stderr


def test_a_process_opens_its_store_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fenced or failed leader that opened it again would fence the next one."""
    with bucket(tmp_path) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        command = ["--store", STORE, "--data", str(tmp_path / "one")]
        first = OpenState(read_settings(command))
        before = first.again().store
        after = OpenState(read_settings(command)).again().store
        with pytest.raises(StoreFenced):
            first.again()
        after.write(one_entry())
        after.sync()
        before.write(one_entry())
        with pytest.raises(StoreFenced):
            before.sync()
        before.close()
        after.close()


def one_entry() -> Batch:
    made = Batch()
    made.put(b"zz-test", b"")
    return made


def laketx(both: Pair, *words: str) -> subprocess.CompletedProcess[str]:
    return run_forked("metaservice.cli", *words, env=both.known, timeout=120)
