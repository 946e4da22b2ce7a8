"""Quotas of a running service: each refusal says whose, what was given back can be used again, memory is counted."""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from metaservice.client import ExhaustedError, MetaClient
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.integration.service import TIMEOUT_S, Stubs, data_file, facts_of, reason_of, service

Refusal = tuple[str, str, bool]


def refusal(call: Callable[[], object]) -> Refusal | None:
    """Its reason, its limit, and whether it is the principal's own; None where there is none."""
    try:
        call()
    except grpc.RpcError as error:
        facts = facts_of(error)
        return reason_of(error), facts["most"], facts.get("principal") == "tests"
    return None


def abort(stubs: Stubs, txn_id: str) -> None:
    stubs.txns.AbortTransaction(transaction_pb2.AbortTransactionRequest(txn_id=txn_id))


def test_open_transactions_and_staged_files_have_quotas(tmp_path: Path) -> None:
    flags = ("--transactions-each", "2", "--staged-files-max", "5", "--staged-bytes-each", "5500")
    with service(tmp_path / "db", *flags) as (server, stubs):
        table_id = stubs.create("t")
        first, second = stubs.begin(table_id), stubs.begin(table_id)
        assert refusal(lambda: stubs.begin(table_id)) == ("TOO_MANY_OPEN_TRANSACTIONS", "2", True)
        stubs.register(first, table_id, data_file(first, "a"), data_file(first, "b"))
        wide = data_file(second, "x" * 900)
        assert refusal(lambda: stubs.register(second, table_id, wide)) == ("TOO_MANY_STAGED_BYTES", "5500", True)
        many = [data_file(second, str(number)) for number in range(4)]
        assert refusal(lambda: stubs.register(second, table_id, *many)) == ("TOO_MANY_STAGED_FILES", "5", False)
        abort(stubs, first)
        assert stubs.register(second, table_id, wide).registered_files == 1
        third = stubs.begin(table_id)
        server.kill()
        server.start()  # what is open, and what is staged, is counted again
        assert refusal(lambda: stubs.begin(table_id)) == ("TOO_MANY_OPEN_TRANSACTIONS", "2", True)
        assert refusal(lambda: stubs.register(third, table_id, data_file(third, "y" * 900))) is not None
        assert stubs.commit(second, common_pb2.Change(table_id=table_id)).WhichOneof("outcome") == "committed"
        assert stubs.register(third, table_id, data_file(third, "y" * 900)).registered_files == 1


@pytest.mark.parametrize("use_session", [True, False])
def test_requests_have_a_rate_on_sessions_and_off_them(tmp_path: Path, *, use_session: bool) -> None:
    with service(tmp_path / "db", "--requests-each", "2") as (server, stubs):
        table_id = stubs.create("t")
        with MetaClient(server.address, principal="etl", retry_budget_s=0, use_session=use_session) as client:

            def ask_on() -> None:
                for _ in range(500):
                    client.append(table_id, [])

            with pytest.raises(ExhaustedError) as caught:
                ask_on()
        assert (caught.value.reason, caught.value.facts["principal"]) == ("TOO_MANY_REQUESTS", "etl")
        with MetaClient(server.address, principal="other", use_session=use_session) as other:
            assert other.append(table_id, []).tables[0].version > 0


def test_the_log_goes_to_a_file_that_rotates(tmp_path: Path) -> None:
    log = tmp_path / "laketx.log"
    flags = ("--log-file", str(log), "--log-bytes-max", "2048", "--log-files-max", "3")
    with service(tmp_path / "db", *flags) as (_, stubs):
        for number in range(60):
            principal = (("x-laketx-principal", f"p{number}"),)  # whose refusals are told apart
            request = transaction_pb2.GetTransactionRequest(txn_id="none")
            with pytest.raises(grpc.RpcError):
                stubs.txns.GetTransaction(request, metadata=principal, timeout=TIMEOUT_S)
    files = sorted(path.name for path in tmp_path.glob("laketx.log*"))
    assert files == ["laketx.log", "laketx.log.1", "laketx.log.2"]
    assert all((tmp_path / name).stat().st_size <= 2048 for name in files)
