"""Metrics over HTTP after known traffic; the status beside them."""

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from metaservice.metrics import HIGH_AVAILABILITY, METRICS
from protos.laketx.v1 import admin_pb2, catalog_pb2, common_pb2, read_pb2, transaction_pb2
from protos.laketx.v1.admin_pb2_grpc import AdminServiceStub
from tests.conformance.play import new_uuid7
from tests.integration.service import PRINCIPAL, TIMEOUT_S, Stubs, append_request, data_file, free_address, service

SAMPLE = re.compile(
    r'(?P<name>[a-z_:][a-z0-9_:]*)(?:\{(?P<labels>(?:[a-z_]+="[^"]*",?)+)\})? (?P<value>-?[0-9.e+-]+)\Z'
)
APPENDS = 5
GET_TRANSACTION = "/laketx.v1.TransactionService/GetTransaction"
Samples = dict[str, float]


class Scraped:
    """A service with known traffic behind it."""

    def __init__(self, address: str, stubs: Stubs) -> None:
        self.address = address
        self.stubs = stubs
        self.admin = AdminServiceStub(stubs.channel)

    def text(self) -> str:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=TIMEOUT_S) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return str(answer.read().decode())

    def samples(self) -> Samples:
        found: Samples = {}
        for line in self.text().splitlines():
            if not line.startswith("#"):
                match = SAMPLE.match(line)
                assert match is not None, line
                found[line.rpartition(" ")[0]] = float(match["value"])
        return found


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    address = free_address()
    with service(tmp_path_factory.mktemp("metrics") / "db", "--metrics-listen", address) as (_, stubs):
        make_traffic(stubs)
        yield Scraped(address, stubs)


def make_traffic(stubs: Stubs) -> None:
    """Five appends, one lost race with a rule, one rebased compaction, one open transaction, two refusals."""
    table = stubs.create("t")
    for _ in range(APPENDS):
        stubs.append(table)
    keyed = stubs.create("keyed", keyed=True)
    loser, winner = stubs.begin(keyed), stubs.begin(keyed)
    for txn_id in (winner, loser):
        kind = common_pb2.FILE_KIND_DELTA
        stubs.commit(txn_id, common_pb2.Change(table_id=keyed, files=[data_file(txn_id, "k", kind)]))
    over = stubs.begin(table, operation=common_pb2.OPERATION_OVERWRITE)
    stubs.append(table)
    scope = common_pb2.Scope(all=True)
    stubs.commit(over, common_pb2.Change(table_id=table, files=[data_file(over)], scope=scope))
    stubs.begin(table)
    pin = read_pb2.PinVersionsRequest(pin_id=new_uuid7(), tables=[read_pb2.TableVersion(table_id=table)])
    stubs.reads.PinVersions(pin)
    for _ in range(2):
        with pytest.raises(grpc.RpcError):
            stubs.get(new_uuid7())


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ('laketx_commits_total{operation="INSERT"}', APPENDS + 2),
        ('laketx_commits_total{operation="OVERWRITE"}', 1),
        ('laketx_transactions_total{state="COMMITTED"}', APPENDS + 3),
        ('laketx_transactions_total{state="CONFLICT"}', 1),
        ('laketx_conflicts_total{rule="OUTCOME_TABLE"}', 1),
        ("laketx_rebased_commits_total", 1),
        ("laketx_rebased_over_total", 1),
        ('laketx_decider_refusals_total{reason="TRANSACTION_UNKNOWN"}', 2),
        (f'laketx_call_errors_total{{method="{GET_TRANSACTION}",reason="TRANSACTION_UNKNOWN"}}', 2),
        ('laketx_call_seconds_count{method="/laketx.v1.TransactionService/Append"}', APPENDS + 1),
        ("laketx_tables", 2),
        ("laketx_open_transactions", 1),
        ("laketx_pins", 1),
        ("laketx_read_only", 0),
        ("laketx_purge_held", 0),
        ("laketx_clocks_disagree", 0),
        ("laketx_tags", 0),
        ("laketx_cursors", 0),
        ("laketx_stalest_cursor_seconds", 0),
        ("laketx_branches", 0),
        ("laketx_oldest_branch_seconds", 0),
        ("laketx_forks", 0),
        ("laketx_periodic_tasks", 0),
        ("laketx_periodic_late_seconds", 0),
    ],
)
def test_known_traffic_gives_known_numbers(scraped: Scraped, sample: str, value: float) -> None:
    assert scraped.samples()[sample] == value


def test_every_metric_is_exposed_with_its_help(scraped: Scraped) -> None:
    text = scraped.text()
    for metric in METRICS:
        assert f"# HELP {metric.name} {metric.says}\n# TYPE {metric.name} {metric.kind}\n" in text
    names = {sample.partition("{")[0] for sample in scraped.samples()}
    for metric in set(METRICS) - set(HIGH_AVAILABILITY):
        wanted = {f"{metric.name}{end}" for end in ("_bucket", "_sum", "_count")}
        assert metric.name in names or wanted <= names or metric.labels, metric.name


def test_histograms_add_up(scraped: Scraped) -> None:
    samples = scraped.samples()
    for name in ("laketx_group_jobs", "laketx_group_seconds"):
        buckets = [value for sample, value in samples.items() if sample.startswith(f"{name}_bucket")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == samples[f"{name}_count"] > 0
        assert samples[f"{name}_sum"] > 0
    assert samples["laketx_group_jobs_sum"] == samples["laketx_decider_jobs_total"]


def test_sizes_and_ages_are_measured(scraped: Scraped) -> None:
    samples = scraped.samples()
    for name in (
        "laketx_store_bytes",
        "laketx_store_log_bytes",
        "laketx_store_room_bytes",
        "laketx_oldest_open_transaction_seconds",
        "laketx_oldest_pin_seconds",
        "laketx_start_time_seconds",
    ):
        assert samples[name] > 0, name


def test_session_streams_are_counted(scraped: Scraped) -> None:
    sample = 'laketx_streams{method="/laketx.v1.TransactionService/Session"}'
    over = threading.Event()

    def frames() -> Iterator[transaction_pb2.SessionRequest]:
        request = transaction_pb2.SessionRequest()
        request.calls.add().ping.payload = b"x"
        yield request
        over.wait(TIMEOUT_S)

    answers = scraped.stubs.txns.Session(frames())
    assert next(answers).replies[0].ping.payload == b"x"
    assert scraped.samples()[sample] == 1
    assert scraped.admin.GetStatus(admin_pb2.GetStatusRequest()).sessions == 1
    over.set()
    assert list(answers) == []
    assert scraped.samples()[sample] == 0


def test_nothing_but_metrics_is_served(scraped: Scraped) -> None:
    for path in ("", "/", "/metrics/x", "/favicon.ico"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://{scraped.address}{path}", timeout=TIMEOUT_S)
        assert caught.value.code == 404


def test_the_status_says_the_same(scraped: Scraped) -> None:
    status = scraped.admin.GetStatus(admin_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
    oldest = next(txn for txn in scraped.stubs.list_txns() if txn.state == transaction_pb2.TRANSACTION_STATE_OPEN)
    assert (status.tables, status.open_transactions) == (2, 1)
    assert (status.oldest_open_txn_id, status.oldest_open_begin_time_us) == (oldest.txn_id, oldest.begin_time_us)
    assert status.jobs >= status.groups > 0
    assert (status.read_only_reason, status.purge_hold_reason) == ("", "")
    assert status.store_format == 1
    assert status.store_bytes > status.log_bytes > 0
    assert status.free_bytes > status.reserve_bytes > 0
    assert status.start_time_us > 0


def test_a_full_store_says_that_it_is_read_only(tmp_path: Path) -> None:
    with service(tmp_path / "db", "--store-bytes-max", "1000000", "--reserve-bytes", "1000000") as (_, stubs):
        status = AdminServiceStub(stubs.channel).GetStatus(admin_pb2.GetStatusRequest(), timeout=TIMEOUT_S)
        assert status.read_only_reason == "DISK_FULL"
        table = catalog_pb2.Table(name="t", columns=[catalog_pb2.Column(name="i", type="int")])
        request = catalog_pb2.CreateTableRequest(request_id=new_uuid7(), table=table, principal=PRINCIPAL)
        table_id = stubs.catalog.CreateTable(request, timeout=TIMEOUT_S).table.table_id
        append = append_request(table_id, new_uuid7())
        append.files[0].ClearField("partition")
        with pytest.raises(grpc.RpcError):
            stubs.txns.Append(append, timeout=TIMEOUT_S)
