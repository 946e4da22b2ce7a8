"""A store whose log is in a bucket of another server: nothing answered is lost, and nobody opens it without its log.

Both buckets have the same name, as buckets of two servers can.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from metaservice.client import MetaClient
from metaservice.offline.stores import copy_store
from metaservice.rpc.convert.payloads import WirePayloads
from metaservice.server.process import EXIT_UNUSABLE
from metaservice.service.decider.state import State
from metaservice.store.engines import slate
from metaservice.store.engines.rocks import RocksStore
from metaservice.store.engines.slate import SlateStore, new_cache
from metaservice.store.engines.slate_reader import SlateReader
from metaservice.store.formats import FORMAT_KEY, LOG_ELSEWHERE, decode_format
from metaservice.store.lease import log_record
from metaservice.store.lease.lease_object import s3_client
from metaservice.store.lease.log_record import NAME, NAME_AT_LOG, find_log
from metaservice.store.object_location import LogPlace, ObjectPlace
from metaservice.store.port import (
    STORE_LOG_FOREIGN,
    STORE_LOG_OTHER,
    STORE_LOG_UNFENCED,
    STORE_LOG_UNREACHABLE,
    Batch,
    StoreFenced,
    StoreUnusable,
)
from tests.forked_programs import run_forked
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.high_availability import (
    STORE,
    Load,
    Pair,
    Process,
    check_history,
    create_table,
    list_committed,
    running,
)
from tests.integration.service import TIMEOUT_S, free_address

PLACE: Final = ObjectPlace(BUCKET, "lake/meta")
LOG: Final = f"s3://{BUCKET}"
ID: Final = "first"


@dataclass(frozen=True)
class Servers:
    """Two servers of S3; the log's bucket is on the second."""

    data: Path
    log: Path
    known: Mapping[str, str]
    log_url: str

    @property
    def log_place(self) -> LogPlace:
        return LogPlace(BUCKET, self.log_url)

    def objects(self, folder: Path) -> set[str]:
        below = folder / "objects" / BUCKET / PLACE.path
        return {str(path.relative_to(below)) for path in below.rglob("*") if path.is_file()}


@contextmanager
def two_servers(folder: Path) -> Iterator[Servers]:
    data, log = folder / "data-server", folder / "log-server"
    for each in (data, log):
        each.mkdir()
    with bucket(data) as known, bucket(log) as at_log:
        yield Servers(data, log, known, at_log["AWS_ENDPOINT_URL"])


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    with two_servers(tmp_path) as found:
        for name, value in found.known.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(slate, "OPENING_S", 0.0)
        yield found


def write(store: SlateStore, key: bytes) -> None:
    batch = Batch()
    batch.put(key, b"x" * 100)
    store.write(batch)


def opened(servers: Servers) -> SlateStore:
    return SlateStore(PLACE, log=servers.log_place, log_id=ID)


def refusal(asked: LogPlace, new_id: str = "") -> StoreUnusable:
    with pytest.raises(StoreUnusable) as refused:
        SlateStore(PLACE, log=asked, log_id=new_id)
    return refused.value


def known_with_log(servers: Servers) -> dict[str, str]:
    at_log = {"LAKETX_STORE_LOG": LOG, "LAKETX_STORE_LOG_ENDPOINT": servers.log_url}
    return {**known_to(dict(servers.known)), **at_log}


def head_of(folder: Path) -> int:
    """The newest version of the one table of a store in a folder."""
    store = RocksStore(folder)
    (table,) = State(store, WirePayloads()).tables.values()
    store.close()
    return table.head


def test_a_leader_is_killed_and_nothing_is_lost(servers: Servers, tmp_path: Path) -> None:
    known = known_with_log(servers)
    with running(Pair([Process(tmp_path, name, known) for name in ("one", "two")], known)) as both:
        load = Load(both.address, create_table(both))
        load.start(writers=3, readers=1)
        try:
            load.wait_for_more()
            leader = both.leader()
            leader.send(signal.SIGKILL)
            leader.wait()
            load.wait_for_more()
        finally:
            load.stop()
        versions = list_committed(both.leader().address, load.table_id)
        check_history(load, versions)
        with MetaClient(both.leader().address) as client:
            made = client.backup("first").path
    words = ("restore", "--backup", made, "--data", str(tmp_path / "restored"))
    done = run_forked("metaservice.cli", *words, env=known, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    assert head_of(tmp_path / "restored") == max(versions.values())
    for setting, reason in (("s3://another", STORE_LOG_OTHER), (LOG, STORE_LOG_UNREACHABLE)):
        where = {"LAKETX_STORE_LOG": setting, "LAKETX_STORE_LOG_ENDPOINT": f"http://{free_address()}"}
        third = ("--store", STORE, "--data", str(tmp_path / "three"), "--listen", free_address())
        refused = run_forked("metaservice", *third, env={**known, **where}, timeout=TIMEOUT_S)
        assert (refused.returncode, reason in refused.stderr) == (EXIT_UNUSABLE, True), refused.stderr


@pytest.mark.long
def test_commands_find_the_log(servers: Servers, tmp_path: Path) -> None:
    """The leader was killed before it wrote any commit to a table."""
    known = known_with_log(servers)
    with running(Pair([Process(tmp_path, "one", known)], known)) as alone:
        load = Load(alone.address, create_table(alone))
        load.start(writers=2, readers=0)
        try:
            load.wait_for_more()
        finally:
            load.stop()
        with MetaClient(alone.address) as client:
            made = client.backup("first").path
        alone.leader().send(signal.SIGKILL)
        alone.processes[0].wait()

    def laketx(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return run_forked("metaservice.cli", *words, env={**known, **more}, timeout=TIMEOUT_S)

    lost = laketx("check", "--data", STORE, LAKETX_STORE_LOG_ENDPOINT="")
    assert (lost.returncode, STORE_LOG_FOREIGN in lost.stderr) == (EXIT_UNUSABLE, True), lost.stderr
    moved, restored = f"{STORE}-moved", f"{STORE}-restored"
    for words in (
        ("store", "copy", STORE, str(tmp_path / "copied")),
        ("store", "copy", STORE, moved, "--store-log", LOG),
        ("restore", "--backup", made, "--data", restored, "--store-log", LOG),
        *(("check", "--data", place) for place in (STORE, moved, restored)),
    ):
        done = laketx(*words)
        assert done.returncode == 0, done.stderr
    assert head_of(tmp_path / "copied") == max(each.version for each in load.appends)


def test_the_log_is_in_its_bucket_and_fences_there(servers: Servers) -> None:
    old = opened(servers)
    write(old, b"before")
    old.sync()
    assert not [name for name in servers.objects(servers.data) if name.startswith("wal/")]
    assert {NAME_AT_LOG, "wal/00000000000000000001.sst"} < servers.objects(servers.log)
    write(old, b"late")
    new = SlateStore(PLACE, log=LogPlace(endpoint=servers.log_url))  # it is read where the log is
    assert new.get(b"before")
    with pytest.raises(StoreFenced):
        old.sync()
    write(new, b"after")
    new.sync()
    old.close()
    again = opened(servers)
    assert [again.get(key) is not None for key in (b"before", b"late", b"after")] == [True, False, True]
    assert decode_format(again.get(FORMAT_KEY)) == LOG_ELSEWHERE
    again.close()


def test_a_release_that_looks_for_the_log_beside_the_store_refuses_it(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the format in a table, also in that of a copy of a store with a lower one."""
    store = opened(servers)
    assert format_in_tables(PLACE) == LOG_ELSEWHERE
    store.close()
    RocksStore(tmp_path / "folder").close()
    monkeypatch.setenv("LAKETX_STORE_LOG_ENDPOINT", servers.log_url)
    copy_store(str(tmp_path / "folder"), f"{STORE}-copied", LOG)
    assert format_in_tables(ObjectPlace(BUCKET, f"{PLACE.path}-copied")) == LOG_ELSEWHERE


def format_in_tables(place: ObjectPlace) -> int:
    reader = SlateReader(place, new_cache(1 << 20))
    found = reader.cursor().get(FORMAT_KEY)
    reader.close()
    return decode_format(found)


def test_a_store_is_not_opened_without_its_log(servers: Servers) -> None:
    store = opened(servers)
    write(store, b"only in the log")
    store.sync()
    before = servers.objects(servers.data)
    assert refusal(LogPlace()).reason == STORE_LOG_FOREIGN  # a bucket of that name on the store's server
    assert refusal(LogPlace("another", servers.log_url)).reason == STORE_LOG_OTHER
    assert refusal(LogPlace(BUCKET, f"http://{free_address()}")).reason == STORE_LOG_UNREACHABLE
    assert servers.objects(servers.data) == before  # nobody was fenced
    write(store, b"more")
    store.sync()
    store.close()
    (servers.log / "objects" / BUCKET / PLACE.path / NAME_AT_LOG).unlink()
    assert refusal(servers.log_place).reason == STORE_LOG_FOREIGN


def test_a_store_with_a_log_of_its_own_keeps_it(servers: Servers) -> None:
    """Also one that was made before there were records."""
    store = SlateStore(PLACE)
    assert NAME not in servers.objects(servers.data)
    assert refusal(servers.log_place, ID).reason == STORE_LOG_OTHER
    store.close()
    SlateStore(PLACE, log_id=ID).close()
    assert NAME in servers.objects(servers.data)
    assert refusal(servers.log_place, ID).reason == STORE_LOG_OTHER
    assert not servers.objects(servers.log)


def test_a_log_belongs_to_one_store(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store of the same path in another bucket, or on another server, would have its log at the same place."""
    store = opened(servers)
    (servers.data / "objects" / "other").mkdir()
    with pytest.raises(StoreUnusable) as refused:
        SlateStore(ObjectPlace("other", PLACE.path), log=servers.log_place, log_id="second")
    assert refused.value.reason == STORE_LOG_FOREIGN
    store.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", servers.log_url)  # the record is where it was: this is another store
    assert find_log(PLACE) is None
    here = servers.data / "objects" / BUCKET / PLACE.path / NAME
    moved = json.loads(here.read_text()) | {"store": "s3://before/lake/meta"}
    here.write_text(json.dumps(moved))
    monkeypatch.setenv("AWS_ENDPOINT_URL", servers.known["AWS_ENDPOINT_URL"])
    assert refusal(servers.log_place, "third").reason == STORE_LOG_FOREIGN


def test_a_start_that_was_interrupted_goes_on(servers: Servers) -> None:
    """The log has its record, the store has none yet."""
    opened(servers).close()
    (servers.data / "objects" / BUCKET / PLACE.path / NAME).unlink()
    assert refusal(servers.log_place, "second").reason == STORE_LOG_OTHER  # there is a store
    for folder in ("manifest", "compactions", "compacted"):
        for path in (servers.data / "objects" / BUCKET / PLACE.path / folder).glob("*"):
            path.unlink()
    assert refusal(servers.log_place, "second").reason == STORE_LOG_FOREIGN  # what is in the log is another store's
    for path in (servers.log / "objects" / BUCKET / PLACE.path / "wal").glob("*"):
        path.unlink()
    SlateStore(PLACE, log=servers.log_place, log_id="second").close()
    assert json.loads((servers.data / "objects" / BUCKET / PLACE.path / NAME).read_text())["log_id"] == ID


def test_a_server_that_ignores_conditions_is_refused(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(servers).close()
    before = servers.objects(servers.data)
    monkeypatch.setattr(log_record, "s3_client", lambda endpoint: Unconditional(s3_client(endpoint)))
    assert refusal(servers.log_place).reason == STORE_LOG_UNFENCED
    assert servers.objects(servers.data) == before


class Unconditional:
    """A server that knows no conditions, as far as its client can tell."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put_object(self, IfNoneMatch: str, **words: object) -> object:  # noqa: N803 - botocore's word
        del IfNoneMatch
        return self._client.put_object(**words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)
