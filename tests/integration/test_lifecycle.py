"""The life of the service and of transactions, over the wire."""

import shutil
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from metaservice.client import add_column, comment_column
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.fixtures.make_data import CONTENTS, FIXTURES, read_all
from tests.integration.service import (
    PRINCIPAL,
    TIMEOUT_S,
    Service,
    Stubs,
    append_request,
    code_of,
    data_file,
    reason_of,
    service,
    wait_until,
)

EXIT_UNUSABLE = 74
SERVICES = {"TransactionService", "CatalogService", "ReadService", "MaintenanceService", "AdminService"}
CODE = grpc.StatusCode


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stubs]:
    with service(tmp_path_factory.mktemp("lifecycle") / "db") as (_, found):
        yield found


def check_refused(call: Callable[[], object], code: grpc.StatusCode, reason: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert (code_of(caught.value), reason_of(caught.value)) == (code, reason)


def files(table_id: str, *found: common_pb2.DataFile) -> common_pb2.Change:
    return common_pb2.Change(table_id=table_id, files=found)


def delta(txn_id: str, name: str = "f") -> common_pb2.DataFile:
    return data_file(txn_id, name, common_pb2.FILE_KIND_DELTA)


def test_health_says_serving(stubs: Stubs) -> None:
    health: Any = health_pb2_grpc.HealthStub(stubs.channel)
    for name in ("", *(f"laketx.v1.{each}" for each in SERVICES)):
        answer = health.Check(health_pb2.HealthCheckRequest(service=name), timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def list_services(stubs: Stubs) -> reflection_pb2.ServerReflectionResponse:
    reflection: Any = reflection_pb2_grpc.ServerReflectionStub(stubs.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = reflection.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_S)
    assert isinstance(answer, reflection_pb2.ServerReflectionResponse)
    return answer


def test_reflection_is_off_unless_asked_for(stubs: Stubs) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list_services(stubs)
    assert code_of(caught.value) is CODE.UNIMPLEMENTED


def test_reflection_lists_the_services(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--reflection", "true") as (_, stubs):
        answer = list_services(stubs)
    names = {each.name for each in answer.list_services_response.service}
    assert {f"laketx.v1.{each}" for each in SERVICES} <= names


def test_sigterm_drains_and_ends_with_0(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs):
        table_id = stubs.create("t")
        calls = [stubs.txns.Append.future(append_request(table_id, new_uuid7())) for _ in range(200)]
        calls[0].result(TIMEOUT_S)
        process = server.running()
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
        acked = []
        for call in calls:
            try:
                acked.append(call.result(TIMEOUT_S).committed.tables[0].version)
            except grpc.RpcError as error:
                code = code_of(error)
                assert code in (CODE.UNAVAILABLE, CODE.CANCELLED)  # gRPC cancels what it never dispatched
        assert acked
        server.start()
        versions = {each.version for each in stubs.list_versions(table_id)}
        assert set(acked) <= versions


def test_a_second_server_on_the_folder_is_refused(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs):
        second = server.spawn("127.0.0.1:0")
        assert second.wait(TIMEOUT_S) == EXIT_UNUSABLE
        assert second.stdout is not None
        assert "listening" not in second.stdout.read()
        second.stdout.close()
        assert "STORE_LOCKED: another process has this store open; end it, or name another folder" in server.said()
        assert stubs.create("t")


def test_an_address_that_another_program_has_is_said_in_a_sentence(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, _):
        other = Service(tmp_path / "other")
        second = other.spawn(server.address)
        assert second.wait(TIMEOUT_S) == EXIT_UNUSABLE
        assert second.stdout is not None
        second.stdout.close()
        assert f"nobody can listen on {server.address}: another program does" in other.said()
        assert "GRPC_VERBOSITY" not in other.said()


def test_a_lease_that_runs_out_ends_the_transaction(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--lease-ms", "300") as (_, stubs):
        table_id = stubs.create("t")
        kept, left = stubs.begin(table_id), stubs.begin(table_id)

        def left_expired() -> bool:
            stubs.txns.RenewTransaction(transaction_pb2.RenewTransactionRequest(txn_id=kept), timeout=TIMEOUT_S)
            return stubs.get(left).state == transaction_pb2.TRANSACTION_STATE_EXPIRED

        wait_until(left_expired)
        commit = files(table_id, data_file(left))
        check_refused(lambda: stubs.commit(left, commit), CODE.ABORTED, "TRANSACTION_EXPIRED")
        assert stubs.commit(kept, files(table_id, data_file(kept))).WhichOneof("outcome") == "committed"


def test_renewing_tells_a_transaction_that_is_doomed(stubs: Stubs) -> None:
    table_id = stubs.create("doomed", keyed=True)
    txn = stubs.begin(table_id)
    stubs.register(txn, table_id, delta(txn))
    request = transaction_pb2.RenewTransactionRequest(txn_id=txn)
    assert not stubs.txns.RenewTransaction(request, timeout=TIMEOUT_S).HasField("doomed")
    stubs.alter(table_id, "zstd")
    doomed = stubs.txns.RenewTransaction(request, timeout=TIMEOUT_S).doomed
    assert doomed.rule == common_pb2.CONFLICT_RULE_METADATA_CHANGED
    seen = stubs.txns.GetTransaction(transaction_pb2.GetTransactionRequest(txn_id=txn), timeout=TIMEOUT_S).transaction
    assert seen.doomed == doomed
    assert seen.lease_left_ms > 0
    assert stubs.commit(txn, files(table_id)).conflict == doomed
    ended = stubs.txns.GetTransaction(transaction_pb2.GetTransactionRequest(txn_id=txn), timeout=TIMEOUT_S).transaction
    assert not ended.HasField("doomed")
    assert not ended.HasField("lease_left_ms")


@pytest.mark.parametrize("profile", ["maxcompute", "delta_write_serializable", "row_level"])
def test_the_begin_says_that_a_transaction_at_an_older_version_is_doomed(stubs: Stubs, profile: str) -> None:
    table_id = stubs.create(f"doomed_{profile}", profile=profile)
    everything = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))

    def begun(at: int) -> tuple[str, transaction_pb2.BeginTransactionResponse]:
        intent = transaction_pb2.TableIntent(
            table_id=table_id, operation=common_pb2.OPERATION_DELETE, read_version=at, reads=[everything]
        )
        request = transaction_pb2.BeginTransactionRequest(txn_id=new_uuid7(), tables=[intent])
        answer = stubs.txns.BeginTransaction(request, timeout=TIMEOUT_S)
        assert stubs.txns.BeginTransaction(request, timeout=TIMEOUT_S) == answer
        return request.txn_id, answer

    assert not begun(0)[1].HasField("doomed")
    stubs.append(table_id)
    assert begun(0)[1].HasField("doomed") is (profile == "maxcompute"), "others may follow a blind append"
    stubs.alter(table_id, "zstd")
    late, answer = begun(1)
    assert answer.doomed.winner_version == 2
    assert stubs.commit(late, common_pb2.Change(table_id=table_id, reads=[everything])).conflict == answer.doomed
    assert not begun(2)[1].HasField("doomed")


def test_an_id_names_one_content(stubs: Stubs) -> None:
    table_id = stubs.create("reused")
    txn = new_uuid7()
    first = stubs.append(table_id, txn)
    assert stubs.append(table_id, txn) == first
    check_refused(lambda: stubs.append(table_id, txn, "other"), CODE.INVALID_ARGUMENT, "TRANSACTION_ID_REUSED")
    check_refused(lambda: stubs.begin(table_id, txn_id=txn), CODE.INVALID_ARGUMENT, "TRANSACTION_ID_REUSED")
    begun = stubs.begin(table_id)
    answer = stubs.commit(begun, files(table_id, data_file(begun)))
    assert stubs.commit(begun, files(table_id, data_file(begun))) == answer
    other = files(table_id, data_file(begun, "g"))
    check_refused(lambda: stubs.commit(begun, other), CODE.INVALID_ARGUMENT, "TRANSACTION_ID_REUSED")


@pytest.mark.parametrize(("shift_days", "reason"), [(-8, "TRANSACTION_ID_TOO_OLD"), (2, "TRANSACTION_ID_IN_FUTURE")])
def test_an_id_far_from_now_is_refused(stubs: Stubs, shift_days: int, reason: str) -> None:
    txn = str(uuid.UUID(int=uuid.UUID(new_uuid7()).int + (shift_days * 86_400_000 << 80)))
    table_id = stubs.create(f"age_{reason.lower()}")
    check_refused(lambda: stubs.begin(table_id, txn_id=txn), CODE.INVALID_ARGUMENT, reason)
    check_refused(lambda: stubs.append(table_id, txn), CODE.INVALID_ARGUMENT, reason)


def lose_insert(stubs: Stubs, table_id: str) -> str:
    """A blind INSERT into a partition that another INSERT reached first."""
    loser, winner = stubs.begin(table_id), stubs.begin(table_id)
    stubs.register(loser, table_id, delta(loser, "registered"))
    stubs.commit(winner, files(table_id, delta(winner)))
    lost = stubs.commit(loser, files(table_id, delta(loser, "inline")))
    assert lost.conflict.rule == common_pb2.CONFLICT_RULE_OUTCOME_TABLE
    assert lost.conflict.advice == common_pb2.ADVICE_RESUBMIT
    return loser


def test_files_of_a_lost_insert_are_adopted_once(stubs: Stubs) -> None:
    table_id = stubs.create("adopted", keyed=True)
    loser = lose_insert(stubs, table_id)
    heir = stubs.begin(table_id, adopt_from=loser)
    check_refused(lambda: stubs.begin(table_id, adopt_from=loser), CODE.FAILED_PRECONDITION, "ALREADY_ADOPTED")
    assert stubs.get(loser).adopted_by == heir
    lost = stubs.get(loser).lost
    assert (lost.files, lost.rows, lost.bytes > 0) == (2, 20, True), "registered, and given with the commit"
    committed = stubs.commit(heir, files(table_id)).committed
    added = [e.file.path for e in stubs.list_files(table_id) if e.added_version == committed.tables[0].version]
    assert sorted(added) == [f"{loser}/inline", f"{loser}/registered"]


@pytest.mark.parametrize("beside", [common_pb2.OPERATION_ALTER, common_pb2.OPERATION_UPDATE])
def test_an_insert_that_can_not_be_adopted_is_not_advised_to_be_resubmitted(stubs: Stubs, beside: int) -> None:
    """Beside an ALTER, or an UPDATE that read nothing, it is blind all the same."""
    mine, other = stubs.create(f"mine_{beside}", keyed=True), stubs.create(f"beside_{beside}", keyed=True)
    intents = [
        transaction_pb2.TableIntent(table_id=mine, operation=common_pb2.OPERATION_INSERT),
        transaction_pb2.TableIntent(table_id=other, operation=beside),  # type: ignore[arg-type]
    ]
    loser, winner = stubs.begin_with(intents), stubs.begin(mine)
    stubs.commit(winner, files(mine, delta(winner)))
    change = common_pb2.Change(table_id=other)
    if beside == common_pb2.OPERATION_ALTER:
        change.alteration.set_properties["write.compression"] = "zstd"
    lost = stubs.commit(loser, files(mine, delta(loser)), change)
    assert lost.conflict.advice == common_pb2.ADVICE_RERUN
    heir = [transaction_pb2.TableIntent(table_id=each, operation=common_pb2.OPERATION_INSERT) for each in (mine, other)]
    adopting = lambda: stubs.begin_with(heir, adopt_from=loser)  # noqa: E731
    check_refused(adopting, CODE.FAILED_PRECONDITION, "NOT_ADOPTABLE")


def test_files_written_under_other_settings_are_not_adopted(stubs: Stubs) -> None:
    table_id = stubs.create("altered", keyed=True)
    loser = lose_insert(stubs, table_id)
    stubs.alter(table_id, "zstd")
    check_refused(lambda: stubs.begin(table_id, adopt_from=loser), CODE.ABORTED, "METADATA_CHANGED")
    assert stubs.get(loser).adopted_by == ""


def test_an_insert_that_lost_to_an_alter_is_told_so_where_it_is_adopted(stubs: Stubs) -> None:
    table_id = stubs.create("lost_to_alter", keyed=True)
    loser = stubs.begin(table_id)
    stubs.alter(table_id, "zstd")
    lost = stubs.commit(loser, files(table_id, delta(loser)))
    assert lost.conflict.rule == common_pb2.CONFLICT_RULE_METADATA_CHANGED
    check_refused(lambda: stubs.begin(table_id, adopt_from=loser), CODE.ABORTED, "METADATA_CHANGED")
    check_refused(lambda: stubs.begin(table_id, adopt_from=new_uuid7()), CODE.NOT_FOUND, "TRANSACTION_UNKNOWN")


def test_tables_of_one_transaction_commit_together(stubs: Stubs) -> None:
    tables = [stubs.create(f"together_{number}", keyed=True) for number in range(2)]
    txn = stubs.begin(*tables)
    committed = stubs.commit(txn, *(files(each, delta(txn, each)) for each in tables)).committed
    newest = [stubs.list_versions(each)[-1] for each in tables]
    assert [(each.txn_id, each.commit_time_us) for each in newest] == [(txn, committed.commit_time_us)] * 2
    loser, winner = stubs.begin(*tables), stubs.begin(tables[1])
    stubs.commit(winner, files(tables[1], delta(winner)))
    answer = stubs.commit(loser, *(files(each, delta(loser, each)) for each in tables))
    assert answer.conflict.table_id == tables[1]
    assert [stubs.list_versions(each)[-1].txn_id for each in tables] == [txn, winner]


def test_a_dropped_table_ends_its_transactions(stubs: Stubs) -> None:
    table_id, other = stubs.create("dropped"), stubs.create("not_dropped")
    txn, both = stubs.begin(table_id), stubs.begin(table_id, other)
    dry = catalog_pb2.DropTableRequest(table_id=table_id, validate_only=True)
    assert stubs.catalog.DropTable(dry, timeout=TIMEOUT_S).ended_transactions == 2
    assert stubs.get(txn).state == transaction_pb2.TRANSACTION_STATE_OPEN
    request = catalog_pb2.DropTableRequest(table_id=table_id)
    assert stubs.catalog.DropTable(request, timeout=TIMEOUT_S).ended_transactions == 2
    check_refused(lambda: stubs.commit(txn, files(table_id, data_file(txn))), CODE.FAILED_PRECONDITION, "TABLE_DROPPED")
    renew = transaction_pb2.RenewTransactionRequest(txn_id=both)
    check_refused(
        lambda: stubs.txns.RenewTransaction(renew, timeout=TIMEOUT_S), CODE.FAILED_PRECONDITION, "TABLE_DROPPED"
    )
    check_refused(lambda: stubs.append(table_id), CODE.FAILED_PRECONDITION, "TABLE_DROPPED")
    assert stubs.append(other).WhichOneof("outcome") == "committed"


def test_an_append_is_answered_again_when_its_table_is_gone(stubs: Stubs) -> None:
    table_id, txn_id = stubs.create("appended_and_dropped"), new_uuid7()
    first = stubs.append(table_id, txn_id)
    stubs.catalog.DropTable(catalog_pb2.DropTableRequest(table_id=table_id), timeout=TIMEOUT_S)
    assert stubs.append(table_id, txn_id) == first
    batch = transaction_pb2.CommitBatchRequest(appends=[append_request(table_id, txn_id)])
    assert stubs.txns.CommitBatch(batch, timeout=TIMEOUT_S).items[0].committed == first.committed
    other = "another message under the same id"
    check_refused(lambda: stubs.append(table_id, txn_id, other), CODE.FAILED_PRECONDITION, "TABLE_DROPPED")


def test_an_application_version_is_applied_once(stubs: Stubs) -> None:
    table_id = stubs.create("pipeline")

    def change(txn: str, **versions: int) -> common_pb2.Change:
        written = [common_pb2.AppVersion(app_id=name, version=version) for name, version in versions.items()]
        return common_pb2.Change(table_id=table_id, files=[data_file(txn)], app_versions=written)

    def commit(**versions: int) -> tuple[int, bool]:
        txn = stubs.begin(table_id)
        request = change(txn, **versions)
        answer = stubs.commit(txn, request)
        assert stubs.commit(txn, request) == answer
        assert stubs.get(txn).state == transaction_pb2.TRANSACTION_STATE_COMMITTED
        (done,) = answer.committed.tables
        return done.version, done.already_applied

    def append(**versions: int) -> tuple[int, bool]:
        txn = new_uuid7()
        request = append_request(table_id, txn)
        request.app_versions.extend(change(txn, **versions).app_versions)
        (done,) = stubs.txns.Append(request, timeout=TIMEOUT_S).committed.tables
        return done.version, done.already_applied

    assert commit(stream=7) == (1, False)
    assert commit(stream=7) == (1, True)
    assert append(stream=6) == (1, True)
    assert append(stream=7, other=1) == (2, False), "one of the two is new"
    assert commit(stream=7, other=1) == (2, True)
    assert append(stream=8) == (3, False)
    assert commit(other=1) == (3, True)
    assert len(stubs.list_versions(table_id)) == 4
    assert len(stubs.list_files(table_id)) == 3


def test_explaining_tells_the_answer_and_changes_nothing(stubs: Stubs) -> None:
    table_id = stubs.create("explained", keyed=True)
    txn = stubs.begin(table_id)
    request = transaction_pb2.ExplainTransactionRequest(txn_id=txn, changes=[files(table_id, delta(txn))])
    told = stubs.txns.ExplainTransaction(request, timeout=TIMEOUT_S).committed
    assert [(each.version, each.rebased_over) for each in told.tables] == [(1, 0)]
    assert len(stubs.list_versions(table_id)) == 1
    winner = stubs.begin(table_id)
    done = stubs.commit(winner, files(table_id, delta(winner))).committed
    assert done.tables[0].version == told.tables[0].version
    lost = stubs.txns.ExplainTransaction(request, timeout=TIMEOUT_S).conflict
    assert stubs.get(txn).state == transaction_pb2.TRANSACTION_STATE_OPEN
    assert stubs.commit(txn, *request.changes).conflict == lost


def test_a_commit_without_all_its_files_is_refused(stubs: Stubs) -> None:
    table_id = stubs.create("counted")
    txn = stubs.begin(table_id)
    answer = stubs.register(txn, table_id, data_file(txn, "a"), data_file(txn, "b"))
    assert (answer.registered_files, answer.registered_rows) == (2, 20)
    assert stubs.register(txn, table_id, data_file(txn, "a")).registered_files == 2
    for count, rows in ((3, 20), (2, 19)):
        change = common_pb2.Change(table_id=table_id, registered_files=count, registered_rows=rows)
        check_refused(lambda c=change: stubs.commit(txn, c), CODE.INVALID_ARGUMENT, "REGISTRATION_INCOMPLETE")  # type: ignore[misc]
    change = common_pb2.Change(table_id=table_id, registered_files=2, registered_rows=20)
    assert stubs.commit(txn, change).committed.tables[0].version == 1


def test_a_time_that_was_answered_stays_answered(stubs: Stubs) -> None:
    table_id = stubs.create("timed")
    stubs.append(table_id)
    far = read_pb2.ResolveVersionRequest(table_id=table_id, time_us=2**62)
    first = stubs.reads.ResolveVersion(far, timeout=TIMEOUT_S)
    assert (first.version, first.cut) == (1, True)
    later = stubs.append(table_id).committed.commit_time_us
    assert later > first.time_read_us
    again = read_pb2.ResolveVersionRequest(table_id=table_id, time_us=first.time_read_us)
    assert stubs.reads.ResolveVersion(again, timeout=TIMEOUT_S).version == 1
    at = read_pb2.ResolveVersionRequest(table_id=table_id, time_us=later)
    assert stubs.reads.ResolveVersion(at, timeout=TIMEOUT_S).version == 2


def test_a_time_answered_before_a_kill_stays_answered(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (server, stubs):
        table_id = stubs.create("timed")
        request = read_pb2.ResolveVersionRequest(table_id=table_id, time_us=2**62)
        answered = stubs.reads.ResolveVersion(request, timeout=TIMEOUT_S)
        server.kill()
        server.start()
        after = Stubs(server.address)
        assert after.append(table_id).committed.commit_time_us > answered.time_read_us
        again = read_pb2.ResolveVersionRequest(table_id=table_id, time_us=answered.time_read_us)
        assert after.reads.ResolveVersion(again, timeout=TIMEOUT_S).version == answered.version
        after.channel.close()


@pytest.mark.parametrize("name", CONTENTS)
def test_a_folder_of_the_first_format_is_read(tmp_path: Path, name: str) -> None:
    shutil.copytree(FIXTURES / name, tmp_path / "db")
    server = Service(tmp_path / "db", "--lease-ms", "600000")
    with service(server.folder, *server.flags) as (_, stubs):
        assert read_all(stubs) == (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")


def test_versions_say_which_commits_changed_metadata(stubs: Stubs) -> None:
    table_id = stubs.create("flagged")
    harmless = [
        common_pb2.Alteration(comment="words", schema_changes=[comment_column("id", "a number")]),
        common_pb2.Alteration(set_properties={"data.retain.hours": "24", "user.owner": "ann"}),
    ]
    metadata = [
        common_pb2.Alteration(set_properties={"write.compression": "gzip"}),
        common_pb2.Alteration(remove_properties=["write.compression"]),
        common_pb2.Alteration(add_features=["delete_sets"]),
        common_pb2.Alteration(remove_features=["delete_sets"]),
        common_pb2.Alteration(profile="row_level"),
        common_pb2.Alteration(schema_changes=[add_column("w", "int")]),
    ]
    for change in harmless + metadata:
        request = catalog_pb2.AlterTableRequest(
            txn_id=new_uuid7(), table_id=table_id, alteration=change, principal=PRINCIPAL
        )
        stubs.catalog.AlterTable(request, timeout=TIMEOUT_S)
    flags = [one.metadata_changed for one in stubs.list_versions(table_id)]
    assert flags == [False] * (1 + len(harmless)) + [True] * len(metadata)
