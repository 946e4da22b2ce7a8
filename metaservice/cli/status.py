"""`laketx status`: the service in numbers, what is used of its quotas, and what waits for an operator."""

from __future__ import annotations

from metaservice.cli.command import command
from metaservice.cli.output import Column, Session
from metaservice.cli.values import duration_text, size_text, when
from metaservice.client.credentials import Address
from protos.laketx.v1 import admin_pb2

AHEAD_SHOWN_MS = 60_000
STANDBY = "standby"
QUOTAS = (
    Column("quota"),
    Column("used", right=True),
    Column("limit", rank=1, right=True),
    Column("most by one", rank=2, right=True),
    Column("limit of each", rank=3, right=True),
    Column("who", rank=4),
)


@command("status")
def run(session: Session) -> None:
    """Show the service's figures, the use of its quotas, and conditions that need an operator.

    laketx status --server meta:7070
    For each quota it shows the use of all principals together, and of the largest user. Requests are counted
    over the last second.

    For a service of several processes it asks the leader, if the leader's address is given, and shows the lease and the
    standbys; otherwise it asks the process at the address, which reports its last known state.
    """
    status = _ask(session)
    if session.as_json:
        session.show_json(status)
        return
    oldest, ahead = status.oldest_open_txn_id, status.commit_times_ahead_ms
    per_group = f", {status.jobs / status.groups:.1f} a sync" if status.groups else ""
    if status.role == STANDBY:
        _show_standby(session, status)
        return
    session.show_pairs(
        [
            ("service", session.settings.place),
            ("release", f"{status.version}, store format {status.store_format}"),
            ("started", f"{when(status.start_time_us)} UTC, {duration_text(status.uptime_ms)} ago"),
            ("role", status.role),
            ("leader", status.leader or ("nobody leads" if status.role else "")),
            ("lease", _lease_text(status)),
            ("last take-over", _take_over_text(status)),
            ("standbys", _standbys_text(status)),
            ("history", status.history_epoch),
            ("restored", when(status.history_time_us)),
            ("tables", status.tables),
            ("transactions", f"{status.open_transactions} open"),
            ("oldest open", f"{oldest}, since {when(status.oldest_open_begin_time_us)} UTC" if oldest else ""),
            ("connected", f"{status.sessions} sessions, {status.watchers} watchers"),
            ("workers", workers_text(status)),
            ("jobs", f"{status.jobs}{per_group}"),
            ("store", f"{size_text(status.store_bytes)}, log {size_text(status.log_bytes)}"),
            ("inlined", f"{size_text(status.inlined_bytes)} of rows" if status.inlined_bytes else ""),
            ("room", f"{size_text(status.free_bytes)}, {size_text(status.reserve_bytes)} of them kept back"),
            ("backup", _backup_text(status.backup)),
            ("BACKUP FAILED", _backup_failure(status.backup)),
            ("BACKUP DAMAGED", status.backup.verify_problem),
            ("READ-ONLY", status.read_only_reason),
            ("PURGE WAITS", status.purge_hold_reason),
            ("CLOCK JUMPED", status.clock_hold_reason),
            ("COMMIT TIMES", f"{duration_text(ahead)} ahead of the clock" if ahead > AHEAD_SHOWN_MS else ""),
        ]
    )
    if status.quotas:  # a service of an earlier release says none
        session.say("")
        session.show_rows(QUOTAS, [_quota_row(quota) for quota in status.quotas])


def _ask(session: Session) -> admin_pb2.GetStatusResponse:
    """The leader's answer, where its address is among several."""
    status = session.client.get_status()
    address = Address.of(session.settings.server)
    if status.role != STANDBY or session.settings.folder or status.leader not in address.targets:
        return status
    with session.connect(server=str(Address(status.leader, address.has_tls))) as client:
        return client.get_status()


def _show_standby(session: Session, status: admin_pb2.GetStatusResponse) -> None:
    session.show_pairs(
        [
            ("service", session.settings.place),
            ("release", status.version),
            ("role", status.role),
            ("leader", status.leader or "nobody leads"),
            ("lease", _lease_text(status)),
            ("last take-over", _take_over_text(status)),
        ]
    )


def _lease_text(status: admin_pb2.GetStatusResponse) -> str:
    if not status.lease_epoch:
        return ""
    seen = "seen to change" if status.role == STANDBY else "renewed"
    left = f", {status.lease_left_ms / 1000:.1f} s left" if status.lease_left_ms else ""
    return f"epoch {status.lease_epoch}, {seen} {status.lease_age_ms / 1000:.1f} s ago{left}"


def _take_over_text(status: admin_pb2.GetStatusResponse) -> str:
    if not status.lease_epoch:
        return ""
    before = f" from {status.leader_before}" if status.leader_before else ""
    took = f", took {status.take_over_ms / 1000:.1f} s" if status.take_over_ms else ""
    return f"{when(status.take_over_time_us)} UTC{before}{took}"


def _standbys_text(status: admin_pb2.GetStatusResponse) -> str:
    if not status.role:
        return ""
    if not any(standby.alive for standby in status.standbys):
        return ", ".join(["NONE: nobody goes on when the leader ends", *map(_standby_text, status.standbys)])
    return ", ".join(map(_standby_text, status.standbys))


def _standby_text(standby: admin_pb2.Standby) -> str:
    if standby.alive:
        return standby.address
    return f"{standby.address} GONE for {duration_text(standby.seen_ago_ms)}"


def workers_text(status: admin_pb2.GetStatusResponse) -> str:
    """Empty where the service doesn't know."""
    if not status.HasField("workers"):
        return ""
    if status.workers:
        return f"{status.workers}, {status.tasks_queued} tasks wait"
    waits = f": {status.tasks_queued} tasks wait; `laketx worker` starts one" if status.tasks_queued else ""
    return f"{'NONE' if waits else 'none'}{waits}"


def _backup_text(backup: admin_pb2.BackupStatus) -> str:
    """The newest backup in the service's repository; empty: it has no repository."""
    if not backup.repository:
        return ""
    if not backup.backup_id:
        return f"none yet in {backup.repository}"
    verified = f", verified {when(backup.verify_time_us)} UTC" if backup.verify_time_us else ", never verified"
    made = f"{when(backup.begin_time_us)} UTC, {size_text(backup.bytes)} in {backup.repository}"
    return made + ("" if backup.verify_problem else verified)


def _backup_failure(backup: admin_pb2.BackupStatus) -> str:
    return f"{backup.failures} times since: {backup.error}" if backup.failures else ""


def _quota_row(use: admin_pb2.QuotaUse) -> tuple[str, ...]:
    amount = size_text if use.quota.endswith("_bytes") else str
    return (
        use.quota.replace("_", " "),
        amount(use.used),
        amount(use.limit),
        amount(use.principal_used),
        amount(use.principal_limit),
        use.principal,
    )
