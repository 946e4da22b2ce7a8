"""The audit of a real service: what it contains, in what order, and what happens when it can't be written."""

import json
import resource
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import grpc
import pytest

from metaservice.client import ConflictError, MetaClient
from metaservice.core.errors import ErrorKind, MetaError
from metaservice.rpc.observe.audit import CHANGES, READS, WAITING_MAX, Audit, AuditSettings
from metaservice.rpc.observe.call_records import Caller, Record
from metaservice.rpc.server import SERVICES
from metaservice.shared.call_attributes import Subject
from metaservice.shared.log import Logging
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.service import (
    PRINCIPAL,
    TIMEOUT_S,
    Stubs,
    append_request,
    data_file,
    reason_of,
    service,
    wait_until,
)

SECRET = "correct-horse"


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rotated(path: Path) -> list[Path]:
    """The oldest first."""
    return sorted(path.parent.glob(f"{path.name}*"), key=lambda each: -int(each.name.removeprefix(path.name)[1:] or 0))


def changes_of(path: Path, method: str) -> list[dict[str, Any]]:
    return [each for each in read(path) if each["method"] == method]


def test_every_call_of_the_wire_is_in_the_table() -> None:
    pool = catalog_pb2.DESCRIPTOR.pool
    methods = {f"/{name}/{method.name}" for name in SERVICES for method in pool.FindServiceByName(name).methods}
    assert methods == CHANGES | READS
    assert not CHANGES & READS


def test_a_change_says_who_did_what_and_what_came_of_it(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with service(tmp_path / "db", "--audit-file", str(file)) as (_, stubs):
        table_id = stubs.create("orders")
        metadata = (
            ("x-laketx-principal", "ana%20b"),
            ("x-request-id", "r-1"),
            ("authorization", f"Bearer {SECRET}"),
        )
        txn_id = new_uuid7()
        stubs.txns.Append(append_request(table_id, txn_id, SECRET), timeout=TIMEOUT_S, metadata=metadata)
        stubs.list_versions(table_id)
        with pytest.raises(grpc.RpcError):
            stubs.create("orders")
        wait_until(lambda: len(read(file)) >= 3)
        created, appended, refused = read(file)
    assert (created["method"], created["name"], created["answer"]) == ("CatalogService/CreateTable", "orders", "OK")
    assert created["declared"] == PRINCIPAL.name
    assert appended["method"] == "TransactionService/Append"
    assert appended["tables"] == [{"id": table_id, "name": "orders"}]
    assert (appended["transaction"], appended["request"], appended["declared"]) == (txn_id, "r-1", "ana b")
    assert appended["peer"].startswith("ipv4:127.0.0.1:")
    assert "principal" not in appended, "nobody has proven who he is"
    assert refused["answer"] == "TABLE_EXISTS"
    assert SECRET not in file.read_text(encoding="utf-8")


def test_calls_of_a_session_are_recorded_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with service(tmp_path / "db", "--audit-file", str(file)) as (running, stubs):
        keyed = stubs.create("keyed", keyed=True)
        with MetaClient(running.address, principal="ana") as client:
            intent = transaction_pb2.TableIntent(table_id=keyed, operation=common_pb2.OPERATION_INSERT)
            loser, winner = client.begin([intent]), client.begin([intent])
            for txn in (winner, loser):
                data = data_file(txn.txn_id, "k", common_pb2.FILE_KIND_DELTA)
                txn.register(keyed, [data])
                with pytest.raises(ConflictError) if txn is loser else nullcontext():
                    txn.commit([common_pb2.Change(table_id=keyed)])
        wait_until(lambda: len(changes_of(file, "TransactionService/CommitTransaction")) == 2)
        lines = read(file)
    told = [(each["method"].partition("/")[2], each.get("transaction"), each["answer"]) for each in lines[1:]]
    assert told[:2] == [("BeginTransaction", loser.txn_id, "OK"), ("BeginTransaction", winner.txn_id, "OK")]
    assert ("CommitTransaction", winner.txn_id, "OK") in told
    assert ("CommitTransaction", loser.txn_id, "CONFLICT") in told
    assert len({each["request"] for each in lines}) == len(lines)
    assert {each["declared"] for each in lines[1:]} == {"ana"}


def test_a_batch_is_recorded_append_by_append(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with service(tmp_path / "db", "--audit-file", str(file)) as (_, stubs):
        table_id = stubs.create("t")
        appends = [append_request(table_id, new_uuid7()), append_request(new_uuid7(), new_uuid7())]
        stubs.txns.CommitBatch(transaction_pb2.CommitBatchRequest(appends=appends), timeout=TIMEOUT_S)
        wait_until(lambda: len(changes_of(file, "TransactionService/CommitBatch")) == 1)
        told = [(each["transaction"], each["answer"]) for each in changes_of(file, "TransactionService/Append")]
    assert [each[0] for each in told] == [each.txn_id for each in appends]
    assert told[0][1] == "OK"
    assert told[1][1] not in ("OK", "REFUSED")


def test_a_batch_of_branches_is_recorded_branch_by_branch(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with service(tmp_path / "db", "--audit-file", str(file)) as (_, stubs):
        asked = [catalog_pb2.CreateBranchRequest(request_id=new_uuid7(), name=name) for name in ("etl", "etl")]
        stubs.catalog.CreateBranches(catalog_pb2.CreateBranchesRequest(branches=asked), timeout=TIMEOUT_S)
        wait_until(lambda: len(changes_of(file, "CatalogService/CreateBranches")) == 1)
        told = [(each["name"], each["answer"]) for each in changes_of(file, "CatalogService/CreateBranch")]
    assert told == [("etl", "OK"), ("etl", "BRANCH_EXISTS")]


def test_reads_are_recorded_if_wanted(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    with service(tmp_path / "db", "--audit-file", str(file), "--audit-reads", "true") as (_, stubs):
        table_id = stubs.create("t")
        stubs.list_files(table_id)
        wait_until(lambda: len(read(file)) == 2)
    assert changes_of(file, "ReadService/ListFiles")[0]["tables"] == [{"id": table_id, "name": "t"}]


def test_the_file_rotates_and_keeps_the_order(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    flags = ("--audit-file", str(file), "--audit-bytes-max", "4096", "--audit-files-max", "100")
    with service(tmp_path / "db", *flags) as (_, stubs):
        table_id = stubs.create("t")
        ids = [stubs.append(table_id).committed.tables[0].version for _ in range(60)]
        wait_until(lambda: sum(len(read(each)) for each in rotated(file)) == 61)
        lines = [line for each in rotated(file) for line in read(each)]
        assert len(rotated(file)) > 3
        assert all(each.stat().st_size <= 4096 for each in rotated(file))
    times = [each["time"] for each in lines]
    assert times == sorted(times)
    assert len(ids) == 60


def test_an_audit_that_is_required_refuses_changes_while_it_fails(tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    file = folder / "audit.jsonl"
    with service(
        tmp_path / "db", "--audit-file", str(file), "--audit-required", "true", "--metrics-listen", "127.0.0.1:0"
    ) as (_, stubs):
        table_id = stubs.create("t")
        wait_until(lambda: len(read(file)) == 1)
        folder.rename(tmp_path / "away")
        stubs.append(table_id)  # the one that finds out
        wait_until(lambda: refused_with(stubs, table_id) == "AUDIT_FAILED")
        stubs.list_versions(table_id)
        (tmp_path / "away").rename(folder)
        wait_until(lambda: refused_with(stubs, table_id) == "")
        wait_until(lambda: len(changes_of(file, "TransactionService/Append")) >= 2)
    answers = [each["answer"] for each in changes_of(file, "TransactionService/Append")]
    assert answers[0] == "OK", "the call that was under way when it failed"
    assert set(answers) == {"OK", "AUDIT_FAILED"}


def refused_with(stubs: Stubs, table_id: str) -> str:
    try:
        stubs.append(table_id)
    except grpc.RpcError as error:
        return reason_of(error)
    return ""


def test_a_full_disk_loses_nothing_that_has_room_to_wait(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk: a write beyond it fails in the middle of a line."""
    file = tmp_path / "audit.jsonl"
    audit = Audit(AuditSettings(Logging(str(file), 1 << 20, 5)), lambda _: "")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    audit.start()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
        for number in range(50):
            audit.put(record(number))
        wait_until(lambda: audit.failing)
        assert all(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()), "whole lines only"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    wait_until(lambda: not audit.failing)
    audit.stop()
    assert [each["name"] for each in read(file)] == [str(number) for number in range(50)]
    assert (audit.written, audit.lost) == (50, 0)


def test_what_finds_no_room_is_counted(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "audit.jsonl"
    audit = Audit(AuditSettings(Logging(str(missing), 1 << 20, 5), required=True), lambda _: "")
    assert audit.failing, "told at the start"
    for number in range(WAITING_MAX + 3):
        audit.put(record(number))
    assert audit.lost == 3
    with pytest.raises(MetaError, match="AUDIT_FAILED"):
        audit.check(min(CHANGES))
    audit.check(min(READS))


def test_refusals_for_rights_are_recorded_for_reads_too(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit = Audit(AuditSettings(Logging(str(file), 1 << 20, 5)), lambda _: "")
    audit.start()
    one = record(1)
    one.method = min(READS)
    one.result = MetaError(ErrorKind.DENIED, "PERMISSION_MISSING")
    audit.put(one)
    other = record(2)
    other.method = min(READS)
    audit.put(other)
    audit.stop()
    assert [each["answer"] for each in read(file)] == ["PERMISSION_MISSING"]


def record(number: int) -> Record:
    caller = Caller("", "ana", "ipv4:127.0.0.1:1", {})
    return Record(min(CHANGES), f"r{number}", caller, Subject(name=str(number)), 1, 1, 2)
