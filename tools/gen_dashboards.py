"""Generates a Grafana dashboard, Prometheus alert rules and their table in docs/runbooks.md, from the code's metrics.

Panels and alerts name metrics as constants of `metaservice.metrics`, so none can name one that there isn't. `--check`
compares instead of writing.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaservice import metrics
from metaservice.metrics import METRICS, Metric
from tools.generated import fill, table, wants_check, write_or_check
from tools.wire import ROOT

DASHBOARD = "deploy/grafana/laketx.json"
ALERTS = "deploy/prometheus/laketx-alerts.yml"
WIDTH = 24
PANEL = (8, 7)
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RANGE = "$__rate_interval"
RUNBOOKS = "docs/runbooks.md"
QUOTA_SHARE = f"{metrics.QUOTA_USED.name} / {metrics.QUOTA_LIMIT.name}"


@dataclass(frozen=True)
class Panel:
    """A graph: its queries, by legend."""

    title: str
    queries: tuple[tuple[str, str], ...]
    says: str
    unit: str = "short"


@dataclass(frozen=True)
class Alert:
    """A rule: fires when the expression has held for this long."""

    name: str
    expression: str
    lasts: str
    severity: str
    says: str
    todo: str


def rate(metric: Metric, label: str = "", window: str = RANGE) -> str:
    by = f" by ({label})" if label else ""
    return f"sum{by} (rate({metric.name}[{window}]))"


def quantile(share: float, metric: Metric, label: str = "") -> str:
    by = f"le, {label}" if label else "le"
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric.name}_bucket[{RANGE}])))"


def panel(title: str, metric: Metric, label: str = "", unit: str = "short") -> Panel:
    """A metric as it is, or the rate of a counter."""
    query = rate(metric, label) if metric.kind == "counter" else metric.name
    return Panel(title, ((query, f"{{{{{label}}}}}" if label else metric.name),), metric.says, unit)


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Commits",
        (
            panel("Commits", metrics.COMMITS, "operation", "ops"),
            panel("Transactions that ended", metrics.TRANSACTIONS, "state", "ops"),
            panel("Lost races", metrics.CONFLICTS, "rule", "ops"),
            Panel(
                "Rebased",
                ((rate(metrics.REBASED), "commits rebased"), (rate(metrics.REBASED_OVER), "commits rebased over")),
                metrics.REBASED.says,
                "ops",
            ),
            panel("Open transactions", metrics.OPEN_TRANSACTIONS),
            panel("Oldest open transaction", metrics.OLDEST_TRANSACTION_SECONDS, unit="s"),
        ),
    ),
    (
        "Service",
        (
            Panel(
                "From a job to its durable answer",
                tuple((quantile(share, metrics.GROUP_SECONDS), f"p{share * 100:g}") for share in (0.5, 0.99)),
                metrics.GROUP_SECONDS.says,
                "s",
            ),
            Panel(
                "Jobs made durable by one sync",
                ((f"{rate(metrics.JOBS)} / sum (rate({metrics.GROUP_JOBS.name}_count[{RANGE}]))", "jobs a group"),),
                metrics.GROUP_JOBS.says,
            ),
            Panel(
                "Calls, p99",
                ((quantile(0.99, metrics.CALL_SECONDS, "method"), "{{method}}"),),
                metrics.CALL_SECONDS.says,
                "s",
            ),
            panel("Calls refused", metrics.CALL_ERRORS, "reason", "ops"),
            panel("Jobs refused", metrics.REFUSALS, "reason", "ops"),
            Panel("Streams", ((metrics.STREAMS.name, "{{method}}"),), metrics.STREAMS.says),
            Panel(
                "Quotas",
                ((QUOTA_SHARE, "{{quota}}, {{by}}"),),
                "The share of each quota that is used, by all principals and by the one that uses most of it.",
                "percentunit",
            ),
            panel("Tables", metrics.TABLES),
            Panel("Uptime", ((f"time() - {metrics.START_SECONDS.name}", "uptime"),), metrics.START_SECONDS.says, "s"),
        ),
    ),
    (
        "What is kept",
        (
            Panel(
                "Pins, tags, cursors, branches",
                tuple((one.name, one.name) for one in (metrics.PINS, metrics.TAGS, metrics.CURSORS, metrics.BRANCHES)),
                "How many hold versions.",
            ),
            Panel(
                "Oldest holders",
                tuple(
                    (one.name, one.name)
                    for one in (
                        metrics.OLDEST_PIN_SECONDS,
                        metrics.OLDEST_BRANCH_SECONDS,
                        metrics.STALEST_CURSOR_SECONDS,
                    )
                ),
                "What holds versions for longest.",
                "s",
            ),
            Panel(
                "Purge waits",
                ((metrics.PURGE_HELD.name, "for an operator"), (metrics.CLOCKS_OFF.name, "for the clocks")),
                "1 while nothing is deleted.",
            ),
        ),
    ),
    (
        "Store",
        (
            Panel(
                "Bytes",
                (
                    (metrics.STORE_BYTES.name, "store"),
                    (metrics.LOG_BYTES.name, "write-ahead log"),
                    (metrics.INLINED_BYTES.name, "inlined rows"),
                ),
                metrics.STORE_BYTES.says,
                "bytes",
            ),
            panel("Room", metrics.ROOM_BYTES, unit="bytes"),
            panel("Read-only", metrics.READ_ONLY),
            Panel(
                "Age of the backup",
                ((metrics.BACKUP_AGE_SECONDS.name, "made"), (metrics.BACKUP_VERIFY_AGE_SECONDS.name, "verified")),
                metrics.BACKUP_AGE_SECONDS.says,
                "s",
            ),
            Panel(
                "Audit",
                ((rate(metrics.AUDIT_RECORDS), "written"), (rate(metrics.AUDIT_LOST), "lost")),
                "Records of the audit.",
                "ops",
            ),
        ),
    ),
    (
        "High availability",
        (
            Panel("Leader", ((metrics.LEADER_IS.name, "{{instance}}"),), metrics.LEADER_IS.says),
            Panel(
                "Since the lease was renewed",
                ((metrics.LEASE_AGE_SECONDS.name, "{{instance}}"),),
                metrics.LEASE_AGE_SECONDS.says,
                "s",
            ),
            panel("Failed requests for the lease", metrics.LEASE_FAILURES, "request", "ops"),
            Panel("Take-overs", ((f"max ({metrics.TAKE_OVERS.name})", "since the start"),), metrics.TAKE_OVERS.says),
            panel("Standbys", metrics.STANDBYS_ALIVE),
            panel("Requests to the bucket", metrics.BUCKET_REQUESTS, "request", "ops"),
            panel("Failed requests to the bucket", metrics.BUCKET_ERRORS, "request", "ops"),
            Panel(
                "PUT to the bucket",
                tuple((quantile(share, metrics.BUCKET_PUT_SECONDS), f"p{share * 100:g}") for share in (0.5, 0.99)),
                metrics.BUCKET_PUT_SECONDS.says,
                "s",
            ),
        ),
    ),
)

ALERT_RULES: tuple[Alert, ...] = (
    Alert(
        "LakeTXDown",
        f"absent({metrics.START_SECONDS.name} or {metrics.LEADER_IS.name})",
        "2m",
        "critical",
        "No MetaService can be scraped.",
        "Check whether the service runs, and the end of its log; a start replays the write-ahead log.",
    ),
    Alert(
        "LakeTXNoLeader",
        f"max ({metrics.LEADER_IS.name}) == 0",
        "30s",
        "critical",
        "Standbys run and none leads: no commit, plan or new read is possible.",
        "Look for lease_unreachable in the standbys' logs: usually the bucket does not answer, or refuses the keys.",
    ),
    Alert(
        "LakeTXLeaseNotRenewed",
        f'increase({metrics.LEASE_FAILURES.name}{{request="renewal"}}[5m]) > 3',
        "0m",
        "critical",
        "The leader can't renew its lease: after 4 seconds it refuses calls, after 10 it ends.",
        "Check the bucket and the network to it; the event lease_unreachable has the error.",
    ),
    Alert(
        "LakeTXNoStandby",
        f"{metrics.STANDBYS_ALIVE.name} == 0",
        "5m",
        "warning",
        "There is no standby: if the leader ends, no process takes over until one is started.",
        "Start the missing process; laketx status shows which processes are gone.",
    ),
    Alert(
        "LakeTXTakeOversOften",
        f"max (increase({metrics.TAKE_OVERS.name}[1h])) > 3",
        "0m",
        "warning",
        "The lease was taken more than three times within an hour.",
        "Find in the logs why each leader ended: lease_lost, fenced, stopped, or a crash.",
    ),
    Alert(
        "LakeTXBucketFails",
        f'sum (increase({metrics.BUCKET_ERRORS.name}{{request!~"get|head"}}[5m])) > 10',
        "5m",
        "warning",
        "The bucket refuses requests of the store, which repeats them: commits wait.",
        "Check the bucket's own monitoring: throttling (503), rights, quota.",
    ),
    Alert(
        "LakeTXAuditFails",
        f"{metrics.AUDIT_FAILING.name} == 1 or increase({metrics.AUDIT_LOST.name}[15m]) > 0",
        "0m",
        "critical",
        "The audit can't be written, or records were lost.",
        "Make room, or check the folder of --audit-file.",
    ),
    Alert(
        "LakeTXReadOnly",
        f"{metrics.READ_ONLY.name} == 1",
        "1m",
        "critical",
        "The disk is nearly full: new work is refused with DISK_FULL, reads continue.",
        "Make room; no restart is needed.",
    ),
    Alert(
        "LakeTXRoomEndsSoon",
        f"predict_linear({metrics.ROOM_BYTES.name}[6h], 24 * 3600) < 0",
        "30m",
        "warning",
        "At this pace the store's disk is full within a day.",
        "Make room, or find the readers that keep old versions: laketx pins list.",
    ),
    Alert(
        "LakeTXRestartsOften",
        f"changes({metrics.START_SECONDS.name}[1h]) > 3",
        "0m",
        "critical",
        "The service was started more than three times within an hour.",
        "Look for the event broken_invariant or store_reopen_failed in the log.",
    ),
    Alert(
        "LakeTXSlowToDurable",
        f"histogram_quantile(0.99, sum by (le) (rate({metrics.GROUP_SECONDS.name}_bucket[5m]))) > 1",
        "10m",
        "warning",
        "One commit in a hundred waits for more than a second.",
        "Check the disk's sync latency and other load on the machine.",
    ),
    Alert(
        "LakeTXRacesLost",
        f"{rate(metrics.CONFLICTS, window='15m')} > 0.5 * {rate(metrics.TRANSACTIONS, window='15m')}",
        "15m",
        "warning",
        "More than half of the transactions lose a race.",
        "laketx txn list, laketx why TXN: another profile, smaller partitions, fewer writers.",
    ),
    Alert(
        "LakeTXTransactionOpenForLong",
        f"{metrics.OLDEST_TRANSACTION_SECONDS.name} > 6 * 3600",
        "10m",
        "warning",
        "A transaction has been open for more than six hours; its read version keeps history from being retired.",
        "laketx txn list --state open, then abort it.",
    ),
    Alert(
        "LakeTXPinHeldForLong",
        f"{metrics.OLDEST_PIN_SECONDS.name} > 24 * 3600",
        "10m",
        "warning",
        "A reader has pinned a version for more than a day.",
        "laketx pins list shows the reader.",
    ),
    Alert(
        "LakeTXBranchHeldForLong",
        f"{metrics.OLDEST_BRANCH_SECONDS.name} > 14 * 24 * 3600",
        "1h",
        "warning",
        "A branch left its parent more than two weeks ago, and keeps all versions since.",
        "laketx branch list shows the branch and its owner: merge, refresh or drop it.",
    ),
    Alert(
        "LakeTXCursorForgotten",
        f"{metrics.STALEST_CURSOR_SECONDS.name} > 3 * 24 * 3600",
        "1h",
        "warning",
        "A cursor that keeps versions has not been used for three days.",
        "laketx cursor list; drop it, or check its reader.",
    ),
    Alert(
        "LakeTXPeriodicRunFailed",
        f'increase({metrics.PERIODIC_RUNS.name}{{outcome="failed"}}[1h]) > 0',
        "0m",
        "warning",
        "A run of a periodic task has failed in the last hour, after its last attempt.",
        "laketx periodic list shows the task, laketx periodic history the reason; ten in succession suspend it.",
    ),
    Alert(
        "LakeTXPeriodicTaskLate",
        f"{metrics.PERIODIC_LATE_SECONDS.name} > 15 * 60",
        "5m",
        "warning",
        "A run of a periodic task has been due for a quarter of an hour.",
        "laketx status says whether a worker runs: laketx worker starts one.",
    ),
    Alert(
        "LakeTXQuotaNearlyUsed",
        f"{QUOTA_SHARE} > 0.9",
        "5m",
        "warning",
        "Nine tenths of a quota are used, by all principals or by one; at the limit calls are refused.",
        "laketx status shows the quota and the principal: stop a runaway client, or raise the setting.",
    ),
    Alert(
        "LakeTXBackupLate",
        f"{metrics.BACKUP_AGE_SECONDS.name} > 2 * {metrics.BACKUP_EVERY_SECONDS.name} + 600 "
        f"and {metrics.BACKUP_EVERY_SECONDS.name} > 0",
        "5m",
        "critical",
        "The newest backup is older than two intervals: later commits are only in the store.",
        "laketx status shows the error; laketx backup make tries it now.",
    ),
    Alert(
        "LakeTXBackupDamaged",
        f"{metrics.BACKUP_DAMAGED.name} == 1",
        "0m",
        "critical",
        "The most recent verification found a backup that can't be restored.",
        "laketx status shows the damage; the next backup uploads everything again.",
    ),
    Alert(
        "LakeTXBackupUnverified",
        f"{metrics.BACKUP_VERIFY_AGE_SECONDS.name} > 2 * {metrics.BACKUP_VERIFY_EVERY_SECONDS.name} + 3600 "
        f"and {metrics.BACKUP_VERIFY_EVERY_SECONDS.name} > 0",
        "5m",
        "warning",
        "No backup has been verified for two intervals.",
        "The event backup_verify_failed has the error; laketx backup verify can run on any machine.",
    ),
    Alert(
        "LakeTXPurgeHeld",
        f"{metrics.PURGE_HELD.name} == 1",
        "1h",
        "warning",
        "The store was restored from a backup: nothing is purged until an operator releases the purge.",
        "Check the restored tables, then run laketx purge release.",
    ),
    Alert(
        "LakeTXClocksDisagree",
        f"{metrics.CLOCKS_OFF.name} == 1",
        "5m",
        "warning",
        "The wall clock jumped: nothing is forgotten, retired or purged.",
        "Check the machine's clock; when it is right, run laketx clock confirm.",
    ),
    Alert(
        "LakeTXCommitTimesAhead",
        f"{metrics.AHEAD_SECONDS.name} > 60",
        "5m",
        "warning",
        "Commit times are ahead of the wall clock: the clock ran ahead, and commit times never go back.",
        "Check the machine's clock.",
    ),
    Alert(
        "LakeTXCertificateExpires",
        f"{metrics.CERTIFICATE_LEFT_SECONDS.name} < 3 * 24 * 3600",
        "10m",
        "critical",
        "The service's certificate expires within three days, or has expired; then clients refuse the service.",
        "Renew the certificate and its key; the service loads changed files without a restart.",
    ),
)


def dashboard() -> str:
    """Grafana's model, schema version 39."""
    found = {
        "title": "LakeTX",
        "uid": "laketx",
        "tags": ["laketx"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": list(panels()),
    }
    return json.dumps(found, indent=2) + "\n"


def rows() -> Iterator[tuple[str, tuple[Panel, ...]]]:
    """The panels above, and one of the remaining metrics."""
    yield from ROWS
    asked = " ".join(query for _, row in ROWS for one in row for query, _ in one.queries)
    others = tuple(plain_panel(metric) for metric in METRICS if metric.name not in asked)
    if others:
        yield "Other", others


def plain_panel(metric: Metric) -> Panel:
    title = metric.name.removeprefix("laketx_").removesuffix("_total").replace("_", " ").capitalize()
    if metric.kind == "histogram":
        return Panel(title, ((quantile(0.99, metric), "p99"),), metric.says)
    return panel(title, metric, metric.labels[0] if metric.labels else "")


def panels() -> Iterator[dict[str, object]]:
    number, top = 0, 0
    wide, high = PANEL
    for title, row in rows():
        number += 1
        place = {"x": 0, "y": top, "w": WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        for at, one in enumerate(row):
            number += 1
            down, across = divmod(at * wide, WIDTH)
            yield graph(number, one, {"x": across, "y": top + down * high, "w": wide, "h": high})
        top += -(-len(row) * wide // WIDTH) * high


def graph(number: int, one: Panel, place: dict[str, int]) -> dict[str, object]:
    targets = [
        {"refId": chr(ord("A") + at), "expr": query, "legendFormat": legend, "datasource": DATA_SOURCE}
        for at, (query, legend) in enumerate(one.queries)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": one.title,
        "description": one.says,
        "datasource": DATA_SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0 if one.unit != "bytes" else None}, "overrides": []},
        "targets": targets,
    }


def runbook(one: Alert) -> str:
    """The section about an alarm."""
    return f"{RUNBOOKS}#{one.name.lower()}"


def alerts() -> str:
    lines = ["# Generated by `make docs` from tools/gen_dashboards.py; changes belong there.", "groups:"]
    lines += ["  - name: laketx", "    rules:"]
    for one in ALERT_RULES:
        lines += [
            f"      - alert: {one.name}",
            f"        expr: {json.dumps(one.expression)}",
            f"        for: {one.lasts}",
            "        labels:",
            f"          severity: {one.severity}",
            "        annotations:",
            f"          summary: {json.dumps(one.says)}",
            f"          description: {json.dumps(one.todo)}",
            f"          runbook: {runbook(one)}",
        ]
    return "\n".join(lines) + "\n"


def alarm_table() -> str:
    rows = [(f"[`{one.name}`](#{one.name.lower()})", one.severity, one.says, one.todo) for one in ALERT_RULES]
    return table(("alarm", "severity", "what it means", "what to do first"), rows)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    check = wants_check(arguments, __doc__)
    runbooks = fill((root / RUNBOOKS).read_text(encoding="utf-8"), {"alarms": alarm_table})
    if not check:
        for name in (DASHBOARD, ALERTS):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
    return write_or_check({DASHBOARD: dashboard(), ALERTS: alerts(), RUNBOOKS: runbooks}, root, check=check)


if __name__ == "__main__":
    sys.exit(main())
