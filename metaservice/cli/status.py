"""`laketx status`: the service in numbers, and what waits for an operator."""

from __future__ import annotations

from metaservice.cli.command import Arguments, Command
from metaservice.cli.output import Session
from metaservice.cli.values import duration_text, size_text, when

AHEAD_SHOWN_MS = 60_000


def run(session: Session, args: Arguments) -> None:
    del args
    status = session.client.get_status()
    if session.as_json:
        session.show_json(status)
        return
    oldest, ahead = status.oldest_open_txn_id, status.commit_times_ahead_ms
    per_group = f", {status.jobs / status.groups:.1f} a sync" if status.groups else ""
    session.show_pairs(
        [
            ("service", session.settings.place),
            ("release", f"{status.version}, store format {status.store_format}"),
            ("started", f"{when(status.start_time_us)} UTC, {duration_text(status.uptime_ms)} ago"),
            ("history", status.history_epoch),
            ("restored", when(status.history_time_us)),
            ("tables", status.tables),
            ("transactions", f"{status.open_transactions} open"),
            ("oldest open", f"{oldest}, since {when(status.oldest_open_begin_time_us)} UTC" if oldest else ""),
            ("connected", f"{status.sessions} sessions, {status.watchers} watchers"),
            ("jobs", f"{status.jobs}{per_group}"),
            ("store", f"{size_text(status.store_bytes)}, log {size_text(status.log_bytes)}"),
            ("room", f"{size_text(status.free_bytes)}, {size_text(status.reserve_bytes)} of them kept back"),
            ("READ-ONLY", status.read_only_reason),
            ("PURGE WAITS", status.purge_hold_reason),
            ("CLOCK JUMPED", status.clock_hold_reason),
            ("COMMIT TIMES", f"{duration_text(ahead)} ahead of the clock" if ahead > AHEAD_SHOWN_MS else ""),
        ]
    )


COMMAND = Command("status", "Show the service in numbers, and whether something waits for an operator.", run)
