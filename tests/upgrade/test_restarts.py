"""The service becomes another release while clients of both write: nothing is lost, no client sees an error."""

import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2
from tests.integration.service import free_address, wait_until
from tests.upgrade.releases import NOW, Release, finish
from tests.upgrade.sides import lake_at, serving

THREADS = 2
BETWEEN_S = 1.0


def restarts(before: Release, folder: Path, rounds: int) -> tuple[int, float]:
    """How many commits were acknowledged, and the longest pause between two of them in seconds."""
    service = before.service(folder / "db", free_address())
    service.start()
    writers: list[subprocess.Popen[str]] = []
    try:
        with MetaClient(service.address) as client:
            column = catalog_pb2.Column(name="id", type="bigint")
            wanted = catalog_pb2.Table(name="t", columns=[column], profile="delta_write_serializable")
            table_id = client.create_table(wanted).table_id
            releases = (before, NOW, before, NOW)
            writers += [release.popen("writers.py", service.address, "t", str(THREADS)) for release in releases]
            for writer in writers:  # a client's first call needs a service
                assert writer.stdout is not None
                assert writer.stdout.readline() == "writing\n"
            time.sleep(BETWEEN_S)
            for number in range(rounds):
                service.become(before if number % 2 else NOW)
                time.sleep(BETWEEN_S)
            told = [json.loads(finish(writer)) for writer in writers]
            versions = {one.version: one for one in client.list_versions(table_id)}
            problems = [line for part in client.check() for line in part.problems]
        service.stop()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
        if service.process is not None and service.process.poll() is None:
            service.kill()
    errors = [one["errors"] for one in told]
    assert errors == [[]] * len(writers), errors
    assert problems == []
    acknowledged = {txn_id: version for one in told for txn_id, version in one["acknowledged"].items()}
    committed = {one.txn_id: one.version for one in versions.values() if one.version}
    assert acknowledged == committed, "what was acknowledged is there once, and nothing else"
    assert all(0 < one["watched"] <= len(committed) for one in told)
    times = sorted(one.commit_time_us for one in versions.values() if one.version)
    return len(acknowledged), max(after - one for one, after in pairwise(times)) / 1e6


def test_small_writes_go_on_while_the_service_learns_to_inline(featureless: Release, tmp_path: Path) -> None:
    """A writer that wrote files for the older service inlines its rows as soon as the newer one serves."""
    with serving(featureless, tmp_path / "db") as service, lake_at(service.address, tmp_path / "files") as lake:
        table = lake.create_table("t", "id bigint, note string")
        written: list[int] = []
        over = threading.Event()

        def write() -> None:
            while not over.is_set():
                table.append([{"id": len(written), "note": "x"}], on_conflict="resubmit")
                written.append(len(written))

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            wait_until(lambda: len(written) > 3 or writing.done())
            service.become(NOW)
            before_it = len(written)
            wait_until(lambda: len(written) > before_it + 3 or writing.done())
            over.set()
            writing.result()
        rows = sorted(lake.table("t").to_arrow().column("id").to_pylist())
        assert rows == written
        entries = list(lake.client.list_files(lake.client.get_table("t").table_id))
        assert {entry.file.inlined for entry in entries} == {False, True}


@pytest.mark.long
def test_a_service_becomes_the_newer_release_and_back_under_load(before: Release, tmp_path: Path) -> None:
    committed, _ = restarts(before, tmp_path, rounds=3)
    assert committed > 50


@pytest.mark.long
def test_a_service_changes_its_release_often(before: Release, tmp_path: Path) -> None:
    committed, _ = restarts(before, tmp_path, rounds=21)
    assert committed > 500
