"""Spans, metrics and logs at a collector that speaks OTLP: one trace from a write to the sync of its commit."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from metaservice.metrics import METRICS
from metaservice.shared import telemetry
from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.conformance.play import new_uuid7
from tests.conformance.server import ROOT
from tests.integration.collector import Collector, Span, collector
from tests.integration.service import TIMEOUT_S, Stubs, append_request, data_file, service

TXN = "laketx.v1.TransactionService"
STEPS = {"wait for the decider", "decide", "sync"}
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
WRITES = """
import sys
import pyarrow as pa
import laketx
with laketx.connect(sys.argv[1], warehouse=sys.argv[2]) as lake:
    orders = lake.create_table("orders", "id bigint, name string", properties={"write.inline.rows": "0"})
    orders.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}))
    lake.create_table("inlined", "id bigint")
    lake.table("inlined").append(pa.table({"id": [1]}))
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Stubs, Path]]:
    with collector() as found, pytest.MonkeyPatch.context() as patch:
        for name, value in settings(found).items():
            patch.setenv(name, value)
        with service(tmp_path_factory.mktemp("traced") / "db", "--metrics-listen", "127.0.0.1:0") as (running, stubs):
            yield found, stubs, running.folder


def settings(found: Collector) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{found.address}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_BLRP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }


def steps_of(found: Collector, span: Span) -> dict[str, Span]:
    found.wait_for(lambda: {each["name"] for each in found.below(span)} >= STEPS)
    return {each["name"]: each for each in found.below(span)}


def test_a_traced_call_has_the_steps_of_the_decider_below_it(traced: tuple[Collector, Stubs, Path]) -> None:
    found, stubs, _ = traced
    table_id = stubs.create("stepped")
    request = append_request(table_id, new_uuid7())
    stubs.txns.Append(request, timeout=TIMEOUT_S, metadata=(("traceparent", PARENT), ("x-request-id", "mine")))
    [span] = found.wait_for(lambda: [each for each in found.named(f"{TXN}/Append") if each["trace"] == TRACE])
    assert span["parent"] == "b7ad6b7169203331"
    assert span["service"] == "laketx"
    assert (span["laketx.table_id"], span["laketx.txn_id"]) == (table_id, request.txn_id)
    assert (span["laketx.outcome"], span["laketx.request_id"]) == ("OK", "mine")
    steps = steps_of(found, span)
    times = [steps[name][end] for name in ("wait for the decider", "decide", "sync") for end in ("from", "to")]
    assert times == sorted(times)
    assert span["from"] <= times[0]
    assert times[-1] <= span["to"]
    assert steps["sync"]["laketx.group_jobs"] >= 1
    assert steps["decide"]["laketx.txn_id"] == request.txn_id


def test_a_refusal_says_why(traced: tuple[Collector, Stubs, Path]) -> None:
    found, stubs, _ = traced
    with pytest.raises(grpc.RpcError):
        stubs.get(new_uuid7())
    [span] = found.wait_for(lambda: found.named(f"{TXN}/GetTransaction"))
    assert (span["laketx.outcome"], span["laketx.reason"]) == ("REFUSED", "TRANSACTION_UNKNOWN")
    assert span["status"] == 2


def test_a_conflict_says_the_rule(traced: tuple[Collector, Stubs, Path]) -> None:
    found, stubs, _ = traced
    keyed = stubs.create("lost", keyed=True)
    loser, winner = stubs.begin(keyed), stubs.begin(keyed)
    for txn_id in (winner, loser):
        file = data_file(txn_id, "k", common_pb2.FILE_KIND_DELTA)
        stubs.commit(txn_id, common_pb2.Change(table_id=keyed, files=[file]))
    name = f"{TXN}/CommitTransaction"
    [span] = found.wait_for(lambda: [each for each in found.named(name) if each["laketx.txn_id"] == loser])
    assert span["laketx.outcome"] == "CONFLICT"
    assert span["laketx.reason"] == "OUTCOME_TABLE"


def test_a_write_is_one_trace_from_its_rows_to_the_sync(traced: tuple[Collector, Stubs, Path], tmp_path: Path) -> None:
    found, stubs, _ = traced
    subprocess.run(
        [sys.executable, "-c", WRITES, f"laketx://{stubs.address}", str(tmp_path / "w")],
        check=True,
        cwd=ROOT,
        env=os.environ.copy(),
        timeout=60,
    )
    writes = found.wait_for(lambda: len(found.named("laketx.write")) >= 2 and found.named("laketx.write"))
    write = next(each for each in writes if each["laketx.table"] == "orders")
    assert (write["laketx.operation"], write["laketx.rows"], write["laketx.files"]) == ("insert", 3, 1)
    assert write["service"] == "laketx-client"
    assert write["laketx.outcome"] == "OK"
    below = {each["name"]: each for each in found.below(write)}
    assert {"laketx.stage", f"{TXN}/BeginTransaction", f"{TXN}/RegisterFiles", f"{TXN}/CommitTransaction"} <= set(below)
    commit = below[f"{TXN}/CommitTransaction"]
    [served] = found.wait_for(lambda: found.below(commit))
    assert (served["name"], served["service"], served["trace"]) == (commit["name"], "laketx", write["trace"])
    assert served["laketx.txn_id"] == write["laketx.txn_id"]
    steps_of(found, served)
    inlined = next(each for each in writes if each["laketx.table"] == "inlined")
    assert {each["name"] for each in found.below(inlined)} >= {f"{TXN}/Append"}


def test_metrics_are_those_of_prometheus(traced: tuple[Collector, Stubs, Path]) -> None:
    found, stubs, _ = traced
    table_id = stubs.create("counted")
    for _ in range(3):
        stubs.append(table_id)

    def inserts() -> int:
        metric = found.metrics.get("laketx_commits_total")
        points = metric.sum.data_points if metric is not None else ()
        return int(sum(each.as_int or each.as_double for each in points))

    found.wait_for(lambda: inserts() >= 3)
    assert found.metrics["laketx_commits_total"].sum.is_monotonic
    assert set(found.metrics) <= {each.name for each in METRICS}
    [histogram] = found.metrics["laketx_group_seconds"].histogram.data_points
    assert histogram.count == sum(histogram.bucket_counts) > 0
    assert found.metrics["laketx_tables"].gauge.data_points[0].as_int >= 1


def test_changes_are_logs(traced: tuple[Collector, Stubs, Path]) -> None:
    found, stubs, _ = traced
    request = catalog_pb2.CreateNamespaceRequest(name="logged", request_id=new_uuid7())
    stubs.catalog.CreateNamespace(request, timeout=TIMEOUT_S)

    def bodies() -> list[dict[str, str]]:
        return [
            {each.key: each.value.string_value for each in one.body.kvlist_value.values} for one in list(found.logs)
        ]

    [body] = found.wait_for(lambda: [each for each in bodies() if each.get("name") == "logged"])
    assert (body["method"], body["answer"]) == ("CatalogService/CreateNamespace", "OK")


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, set()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, {"traces", "metrics", "logs"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_METRICS_EXPORTER": "none"}, {"traces", "logs"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_SDK_DISABLED": "true"}, set()),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4317"}, {"traces"}),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, {"traces"}),
        ({"OTEL_TRACES_EXPORTER": "console"}, set()),
    ],
)
def test_the_environment_switches_it_on(environment: dict[str, str], wanted: set[str]) -> None:
    assert telemetry.enabled_signals(environment) == wanted


def test_nothing_is_imported_where_it_is_off() -> None:
    probe = (
        "import sys, metaservice.server.wiring, metaservice.client\n"
        "from metaservice.shared import telemetry\n"
        "print(telemetry.tracer(), [each for each in sys.modules if each.startswith('opentelemetry')])\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", probe]
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=30, capture_output=True, text=True)
    assert done.stdout.strip() == "None []"


def test_a_wrong_variable_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://[wrong")
    with service(tmp_path / "db") as (running, stubs):
        stubs.create("t")
        probe = (
            "import sys\nfrom metaservice.client import MetaClient\nprint(MetaClient(sys.argv[1]).get_table('t').name)"
        )
        command = [sys.executable, "-c", probe, running.address]
        done = subprocess.run(command, check=True, cwd=ROOT, timeout=30, capture_output=True, text=True)
        assert done.stdout.strip() == "t"
        assert "can't be set up" in done.stderr
        assert "otel_failed" in running.said()
