"""Counting: what ended is counted once, text is escaped, a commit costs little."""

from prometheus_client import generate_latest

from metaservice.core.commit.transaction import TableOutcome, Txn, TxnState, TxnTable
from metaservice.core.table.model import Operation, Principal
from metaservice.metrics import METRICS, DeciderMetrics, Histogram, Metrics
from metaservice.rpc.observe.prometheus import Collector


def committed(*, rebased_over: int = 0, already_applied: bool = False) -> Txn:
    table = TxnTable("t", Operation.INSERT, 0, 1)
    outcome = TableOutcome("t", 1, True, rebased_over, already_applied)
    return Txn("x", {"t": table}, Principal(), "", {}, 0, b"", state=TxnState.COMMITTED, outcomes=(outcome,))


def test_commits_and_rebases_are_counted_by_operation() -> None:
    metrics = DeciderMetrics()
    metrics.count_group(3, [committed(), committed(rebased_over=4), committed(already_applied=True)], 0.001)
    assert metrics.commits == {Operation.INSERT: 2}
    assert (metrics.rebased, metrics.rebased_over, metrics.jobs) == (1, 4, 3)
    assert metrics.states == {TxnState.COMMITTED: 3}
    assert 'laketx_commits_total{operation="INSERT"} 2.0' in exposed(Metrics(metrics))


def test_an_adopted_transaction_had_ended_before() -> None:
    metrics = DeciderMetrics()
    adopted = committed()
    adopted.adopted_by = "y"
    metrics.count_group(1, [adopted], 0.001)
    assert (metrics.commits, metrics.states) == ({}, {})


def test_a_value_on_a_bound_counts_below_it() -> None:
    histogram = Histogram((1, 2, 4))
    for value in (1, 2, 2, 5):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([1, 2, 0, 1], 10)


def test_labels_are_escaped() -> None:
    metrics = Metrics(DeciderMetrics())
    metrics.calls.count_error('a"b\\c\nd', "R")
    assert 'laketx_call_errors_total{method="a\\"b\\\\c\\nd",reason="R"} 1.0' in exposed(metrics)


def test_a_histogram_is_exposed_as_a_running_sum() -> None:
    metrics = Metrics(DeciderMetrics())
    for jobs in (1, 2, 2, 5_000):
        metrics.decider.group_jobs.observe(jobs)
    lines = [
        line.removeprefix("laketx_group_jobs") for line in exposed(metrics) if line.startswith("laketx_group_jobs")
    ]
    assert lines[:2] == ['_bucket{le="1"} 1.0', '_bucket{le="2"} 3.0']
    assert lines[-4:] == ['_bucket{le="1024"} 3.0', '_bucket{le="+Inf"} 4.0', "_count 4.0", "_sum 5005.0"]


def exposed(metrics: Metrics) -> list[str]:
    """As scraped, from a service whose gauges all stand at 0."""
    metrics.readings |= {metric: lambda: 0 for metric in METRICS if metric not in metrics.readings}
    collector = Collector()
    collector.readings = metrics.readings
    return generate_latest(collector).decode().splitlines()
