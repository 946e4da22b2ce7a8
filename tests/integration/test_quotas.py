"""Quotas of a running service: each refusal says whose, what was given back can be used again, memory is counted."""

import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
import pytest

from metaservice.client import ExhaustedError, MetaClient
from metaservice.core import quotas
from protos.laketx.v1 import admin_pb2, common_pb2, read_pb2, transaction_pb2
from tests.conformance.play import new_uuid7
from tests.integration.service import (
    TIMEOUT_S,
    Stubs,
    append_request,
    data_file,
    facts_of,
    free_address,
    reason_of,
    service,
)
from tests.integration.terminal import Shell

SESSION = "/laketx.v1.TransactionService/Session"
Refusal = tuple[str, str, bool]


def refusal(call: Callable[[], object]) -> Refusal | None:
    """Its reason, its limit, and whether it is the principal's own; None where there is none."""
    try:
        call()
    except grpc.RpcError as error:
        facts = facts_of(error)
        return reason_of(error), facts["most"], facts.get("principal") == "tests"
    return None


def scrape(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=TIMEOUT_S) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


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


@pytest.mark.parametrize(("use_session", "method"), [(True, "Session"), (False, "Append")])
def test_requests_have_a_rate_on_sessions_and_off_them(tmp_path: Path, *, use_session: bool, method: str) -> None:
    metrics = free_address()
    with service(tmp_path / "db", "--requests-each", "2", "--metrics-listen", metrics) as (server, stubs):
        table_id = stubs.create("t")
        with MetaClient(server.address, principal="etl", retry_budget_s=0, use_session=use_session) as client:

            def ask_on() -> None:
                for _ in range(500):
                    client.append(table_id, [])

            with pytest.raises(ExhaustedError) as caught:
                ask_on()
        assert (caught.value.reason, caught.value.facts["principal"]) == ("TOO_MANY_REQUESTS", "etl")
        path = f"/laketx.v1.TransactionService/{method}"
        counted = f'laketx_call_errors_total{{method="{path}",reason="TOO_MANY_REQUESTS"}}'
        assert scrape(metrics)[counted] == 1
        with MetaClient(server.address, principal="other", use_session=use_session) as other:
            assert other.append(table_id, []).tables[0].version > 0


def test_a_frame_that_comes_too_fast_counts_each_of_its_calls_as_refused(tmp_path: Path) -> None:
    metrics = free_address()
    with service(tmp_path / "db", "--requests-each", "2", "--metrics-listen", metrics) as (_, stubs):
        table_id = stubs.create("t")
        frames = [transaction_pb2.SessionRequest() for _ in range(2)]
        for call_id in range(1, 501):  # the first frame overdraws what two seconds allow, by minutes
            frames[0].calls.add(call_id=call_id).ping.payload = b"p"
        for call_id in range(501, 504):
            frames[1].calls.add(call_id=call_id, append=append_request(table_id, new_uuid7()))
        frames[1].calls.add(call_id=504).ping.payload = b"p"
        metadata = (("x-laketx-principal", "etl"),)
        answers = stubs.txns.Session(iter(frames), timeout=TIMEOUT_S, metadata=metadata)
        replies = {reply.call_id: reply.WhichOneof("reply") for answer in answers for reply in answer.replies}
        assert [call_id for call_id, kind in replies.items() if kind == "error"] == [501, 502, 503, 504]
        counted = f'laketx_call_errors_total{{method="{SESSION}",reason="TOO_MANY_REQUESTS"}}'
        assert scrape(metrics)[counted] == 4


def test_every_quota_is_shown_with_what_is_used_of_it(tmp_path: Path) -> None:
    metrics = free_address()
    flags = ("--transactions-max", "9", "--transactions-each", "5", "--watchers-max", "7", "--watchers-each", "6")
    with service(tmp_path / "db", *flags, "--metrics-listen", metrics) as (server, stubs):
        table_id = stubs.create("t")
        first = stubs.begin(table_id)
        stubs.begin(table_id)
        stubs.register(first, table_id, data_file(first, "a"), data_file(first, "b"))
        with MetaClient(server.address, principal="ana") as client:
            watch = client.watch(table_id, after_version=-1)
            assert next(watch).version == 0
            pin = client.pin([read_pb2.TableVersion(table_id=table_id)])
            samples = scrape(metrics)
            shown = Shell(server.address).run("status")
            status = client.get_status()
            client.unpin(pin.pin_id)
        uses = {one.quota: one for one in status.quotas}
        assert list(uses) == list(quotas.DEFAULTS)
        open_ones = uses[quotas.TRANSACTIONS]
        assert (open_ones.used, open_ones.limit, open_ones.principal_used, open_ones.principal_limit) == (2, 9, 2, 5)
        assert open_ones.principal == "tests"
        assert (uses[quotas.STAGED_FILES].used, uses[quotas.PINS].used, uses[quotas.PINS].principal) == (2, 1, "ana")
        watching = uses[quotas.WATCHERS]
        assert (watching.used, watching.limit, watching.principal) == (1, 7, "ana")
        for name, use in uses.items():
            check_samples(samples, name, use)
        rows = [line.split() for line in shown.lines()]
        assert ["transactions", "2", "9", "2", "5", "tests"] in rows
        assert ["watchers", "1", "7", "1", "6", "ana"] in rows
        samples = scrape(metrics)
        assert samples['laketx_quota_used{by="all",quota="pins"}'] == 0
        assert samples['laketx_quota_used{by="principal",quota="transactions"}'] == 2


def check_samples(samples: Mapping[str, float], name: str, use: admin_pb2.QuotaUse) -> None:
    """The metrics say the same; what was asked in the last second is another second's."""
    limits = [samples[f'laketx_quota_limit{{by="{by}",quota="{name}"}}'] for by in ("all", "principal")]
    assert limits == [use.limit, use.principal_limit]
    used = [samples[f'laketx_quota_used{{by="{by}",quota="{name}"}}'] for by in ("all", "principal")]
    assert name == quotas.REQUESTS or used == [use.used, use.principal_used]


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
