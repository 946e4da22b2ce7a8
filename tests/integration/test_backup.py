"""Backups under load, restored: one moment between begin and end. What belongs to the other history is refused.

Of a store on a disk and of one in a bucket, each restored to where it was.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc
import pytest

from metaservice.client import MetaClient, MetaServiceError
from metaservice.offline.restore import FolderBackup, restore
from metaservice.store.backups import folders
from protos.laketx.v1 import admin_pb2, common_pb2, read_pb2, transaction_pb2
from protos.laketx.v1.admin_pb2_grpc import AdminServiceStub
from tests.conformance.play import new_uuid7
from tests.integration.bucket import BUCKET, bucket, known_to
from tests.integration.high_availability import STORE
from tests.integration.periodic_runs import run_twice
from tests.integration.repositories import leads, offline, refused, wait_until
from tests.integration.service import TIMEOUT_S, Stubs, append_request, data_file, service

WRITERS = 4
COMMITS_BEFORE = 40
CODE = grpc.StatusCode


class Load:
    """Writers that append to one table, and commit to two at once, until told to stop."""

    def __init__(self, stubs: Stubs, one: str, other: str) -> None:
        self.stubs = stubs
        self.tables = (one, other)
        self.acked: list[str] = []
        self.enough = threading.Event()
        self._done = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(bool(n % 2),)) for n in range(WRITERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        assert self._failures == []

    def _run(self, both: bool) -> None:
        try:
            while not self._done.is_set():
                self.acked.append(self._both() if both else self._one())
                if len(self.acked) >= COMMITS_BEFORE:
                    self.enough.set()
        except BaseException as error:  # noqa: BLE001 - the test's own thread reports it
            self._failures.append(error)
            self.enough.set()

    def _one(self) -> str:
        txn_id = new_uuid7()
        self.stubs.append(self.tables[0], txn_id)
        return txn_id

    def _both(self) -> str:
        txn_id = self.stubs.begin(*self.tables, operation=common_pb2.OPERATION_CUSTOM)
        files = [common_pb2.Change(table_id=each, files=[data_file(txn_id)], changes_data=True) for each in self.tables]
        self.stubs.commit(txn_id, *files)
        return txn_id


@dataclass(frozen=True)
class Copied:
    """A service whose backup was taken under load and restored, and what was known on the way."""

    backup: Path
    address: str
    stubs: Stubs
    restored: Stubs
    tables: tuple[str, str]
    answer: admin_pb2.BackupResponse
    acked_before: frozenset[str]
    heads_after: dict[str, int]
    old_token: str
    old_epoch: str
    open_before: str
    begun_after: str
    restored_address: str
    check_runs: Callable[[MetaClient], None]  # of a periodic task


@dataclass(frozen=True)
class Places:
    """Where the store is that is backed up, and the one that is restored; how a process finds them."""

    live: tuple[str, ...]
    restored: str
    again: tuple[Path, tuple[str, ...]]
    environment: dict[str, str]


@contextmanager
def places(kind: str, folder: Path) -> Iterator[Places]:
    if kind == "folder":
        yield Places((), str(folder / "restored"), (folder / "restored", ()), known_to({}))
        return
    restored = f"s3://{BUCKET}/restored"
    with bucket(folder / "s3") as known:
        yield Places(("--store", STORE), restored, (folder / "scratch", ("--store", restored)), known_to(known))


@pytest.fixture(scope="module", params=["folder", "bucket"])
def copied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copied]:
    folder = tmp_path_factory.mktemp("backup")
    with places(request.param, folder) as place:
        yield from back_up_and_restore(place, folder)


def back_up_and_restore(place: Places, folder: Path) -> Iterator[Copied]:
    flags = ("--lease-ms", "600000", *place.live)
    with service(folder / "live", *flags, environment=place.environment) as (running, stubs):
        wait_until(lambda: leads(running), "it leads")
        admin = AdminServiceStub(stubs.channel)
        profile = "delta_write_serializable"
        tables = (stubs.create("one", profile=profile), stubs.create("two", profile=profile))
        open_before = stubs.begin(tables[0])
        stubs.register(open_before, tables[0], data_file(open_before))
        with MetaClient(running.address) as client:
            check_runs = run_twice(client)
        with Load(stubs, *tables) as load:
            assert load.enough.wait(TIMEOUT_S)
            acked = frozenset(load.acked)
            answer = admin.Backup(admin_pb2.BackupRequest(path="b"), timeout=TIMEOUT_S)
            heads = {each: stubs.list_versions(each)[-1].version for each in tables}
        begun_after = stubs.begin(tables[0])
        page = stubs.reads.ListVersions(read_pb2.ListVersionsRequest(table_id=tables[0], page_size=1))
        epoch = admin.GetStatus(admin_pb2.GetStatusRequest()).history_epoch
        words = ("restore", "--backup", answer.path, "--data", place.restored)
        run = offline(*words, environment=place.environment)
        assert run.returncode == 0, run.stderr
        run = offline("check", "--data", place.restored, environment=place.environment)
        assert (run.returncode, run.stdout.split(",")[0]) == (0, "checked 3 tables"), run.stderr
        data, again_flags = place.again
        with service(data, *again_flags, environment=place.environment) as (again, restored):
            wait_until(lambda: leads(again), "it leads")
            yield Copied(
                Path(answer.path),
                running.address,
                stubs,
                restored,
                tables,
                answer,
                acked,
                heads,
                page.next_page_token,
                epoch,
                open_before,
                begun_after,
                again.address,
                check_runs,
            )


def logged(stubs: Stubs, table_id: str) -> list[read_pb2.Version]:
    return stubs.list_versions(table_id)


def test_a_backup_shows_one_moment_between_begin_and_end(copied: Copied) -> None:
    heads = {}
    for table in copied.tables:
        there, here = logged(copied.stubs, table), logged(copied.restored, table)
        assert here == there[: len(here)], "the same commits, up to some version"
        heads[table] = here[-1].version
        assert heads[table] <= copied.heads_after[table]
        files = copied.stubs.list_files(table, heads[table])
        assert sorted(map(str, copied.restored.list_files(table))) == sorted(map(str, files))
    restored = {version.txn_id for table in copied.tables for version in logged(copied.restored, table)}
    assert copied.acked_before <= restored, "what was acknowledged before the backup began is in it"
    manifest = json.loads((copied.backup / folders.MANIFEST).read_text(encoding="utf-8"))
    assert {head["table_id"]: head["version"] for head in manifest["heads"] if head["table_id"] in heads} == heads


def test_no_transaction_over_two_tables_was_cut_in_half(copied: Copied) -> None:
    one, two = ([version.txn_id for version in logged(copied.restored, table)[1:]] for table in copied.tables)
    both = [txn_id for txn_id in one if txn_id in set(two)]
    assert both == two, "whatever the second table has, the first has too, in this order"
    begun_over_both = {txn.txn_id for txn in copied.restored.list_txns() if len(txn.tables) == 2 and txn.state == 2}
    assert begun_over_both == set(two)


def test_the_answer_says_what_was_made(copied: Copied) -> None:
    answer = copied.answer
    assert (answer.tables, answer.history_epoch) == (3, copied.old_epoch)
    assert 0 < answer.begin_time_us <= answer.end_time_us
    assert (
        answer.bytes
        == sum(file.stat().st_size for file in copied.backup.iterdir() if file.suffix != ".json")
        + (copied.backup / "rocksdict-config.json").stat().st_size
    )
    assert not list(copied.backup.parent.glob("*.partial"))


def test_the_restored_store_is_sound(copied: Copied) -> None:
    parts = list(AdminServiceStub(copied.restored.channel).Check(admin_pb2.CheckRequest(), timeout=TIMEOUT_S))
    assert [problem for part in parts for problem in part.problems] == []
    assert parts[-1].done
    assert parts[-1].tables_checked == 3


def test_runs_of_periodic_tasks_are_restored_and_none_counts_twice(copied: Copied) -> None:
    with MetaClient(copied.restored_address) as client:
        copied.check_runs(client)


def test_a_restored_store_tells_another_history_and_its_purge_waits(copied: Copied) -> None:
    admin = AdminServiceStub(copied.restored.channel)
    status = admin.GetStatus(admin_pb2.GetStatusRequest())
    assert copied.old_epoch.startswith("1-")
    assert status.history_epoch.startswith("2-")
    assert status.history_time_us > copied.answer.end_time_us
    assert status.open_transactions == 0
    assert copied.old_epoch in status.purge_hold_reason
    assert admin.ReleasePurge(admin_pb2.ReleasePurgeRequest(validate_only=True)).reason == status.purge_hold_reason
    assert admin.ReleasePurge(admin_pb2.ReleasePurgeRequest()).reason == status.purge_hold_reason
    assert admin.ReleasePurge(admin_pb2.ReleasePurgeRequest()).reason == ""
    assert admin.GetStatus(admin_pb2.GetStatusRequest()).purge_hold_reason == ""


def test_two_restores_of_one_backup_tell_two_histories(copied: Copied, tmp_path: Path) -> None:
    one = restore(FolderBackup(copied.backup), tmp_path / "one", "aa", 1)
    two = restore(FolderBackup(copied.backup), tmp_path / "two", "bb", 1)
    assert (one.epoch, two.epoch) == ("2-aa", "2-bb")


def test_page_tokens_of_the_other_history_are_refused(copied: Copied) -> None:
    request = read_pb2.ListVersionsRequest(table_id=copied.tables[0], page_token=copied.old_token)
    assert copied.stubs.reads.ListVersions(request).versions
    assert refused(lambda: copied.restored.reads.ListVersions(request)) == (CODE.ABORTED, "HISTORY_CHANGED")
    own = copied.restored.reads.ListVersions(read_pb2.ListVersionsRequest(table_id=copied.tables[0], page_size=1))
    request.page_token = own.next_page_token
    assert copied.restored.reads.ListVersions(request).versions
    for bad in ("x", "MQ==", ".", own.next_page_token.partition(".")[2], own.next_page_token.partition(".")[0] + "."):
        request.page_token = bad
        assert refused(lambda: copied.restored.reads.ListVersions(request)) == (
            CODE.INVALID_ARGUMENT,
            "PAGE_TOKEN_INVALID",
        )


def test_transactions_of_the_other_history_are_refused(copied: Copied) -> None:
    for txn_id in (copied.open_before, copied.begun_after):
        change = common_pb2.Change(table_id=copied.tables[0], files=[data_file(txn_id, "z")])
        assert refused(lambda: copied.restored.commit(txn_id, change)) == (  # noqa: B023 - called at once
            CODE.ABORTED,
            "HISTORY_CHANGED",
        )
        renew = transaction_pb2.RenewTransactionRequest(txn_id=txn_id)
        assert refused(lambda: copied.restored.txns.RenewTransaction(renew))[1] == "HISTORY_CHANGED"  # noqa: B023
    assert refused(lambda: copied.restored.get(new_uuid7()))[1] == "TRANSACTION_UNKNOWN"
    answer = copied.stubs.commit(copied.begun_after, common_pb2.Change(table_id=copied.tables[0]))
    assert answer.WhichOneof("outcome") == "committed", "the other history goes on as before"


def test_row_ids_skip_what_the_other_history_may_have_given(copied: Copied) -> None:
    table = copied.tables[0]
    highest = max(entry.file.first_row_id for entry in copied.stubs.list_files(table))
    txn_id = new_uuid7()
    copied.restored.append(table, txn_id)
    mine = next(e.file for e in copied.restored.list_files(table) if e.file.path.startswith(txn_id))
    assert mine.first_row_id > highest + 2**47


@pytest.mark.parametrize("use_session", [True, False])
def test_a_client_that_expects_the_other_history_is_refused_everywhere(copied: Copied, use_session: bool) -> None:
    table = copied.tables[0]
    with MetaClient(copied.address, expected_epoch=copied.old_epoch, use_session=use_session) as client:
        assert client.ping(b"x") == b"x"
        assert client.get_status().history_epoch == copied.old_epoch
        client.append(table, append_request(table, (txn_id := new_uuid7())).files, txn_id=txn_id)
    calls: list[Callable[[MetaClient], object]] = [
        lambda client: client.get_status(),
        lambda client: list(client.list_files(table)),
        lambda client: list(client.list_versions(table)),
        lambda client: client.append(table, [], txn_id=new_uuid7()),
    ]
    options = {"expected_epoch": copied.old_epoch, "use_session": use_session, "retry_budget_s": 1.0}
    with MetaClient(copied.restored_address, **options) as client:  # type: ignore[arg-type]
        for call in calls:
            with pytest.raises(MetaServiceError) as caught:
                call(client)
            assert caught.value.reason == "HISTORY_CHANGED"
            assert caught.value.facts["expected"] == copied.old_epoch


def test_an_epoch_outlives_a_restart(tmp_path: Path) -> None:
    epochs = []
    for _ in range(2):
        with service(tmp_path / "db") as (_, stubs):
            status = AdminServiceStub(stubs.channel).GetStatus(admin_pb2.GetStatusRequest())
            epochs.append(status.history_epoch)
    assert epochs[0] == epochs[1]
