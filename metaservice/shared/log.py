"""The log: events, one JSON object per line on stderr or in a file. Only this module names them."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO, Final, cast

from metaservice.shared.terminal import LineFormatter

STARTED = "started"
STOPPED = "stopped"
IDLE = "idle"
OWNER_SOCKET_LEFT_OUT = "owner_socket_left_out"
SOCKET_GONE = "socket_gone"
BROKEN = "broken_invariant"
REFUSED = "refused"
REOPEN_FAILED = "store_reopen_failed"
METRICS_LISTEN = "metrics_listen"
BACKUP_MADE = "backup_made"
BACKUP_FAILED = "backup_failed"
BACKUP_SCHEDULE_FAILED = "backup_schedule_failed"
BACKUP_PRUNED = "backup_pruned"
BACKUP_VERIFIED = "backup_verified"
BACKUP_VERIFY_FAILED = "backup_verify_failed"
RESTORED = "restored"
PURGE_RELEASED = "purge_released"
CLOCKS_DISAGREE = "clocks_disagree"
CLOCKS_AGREE = "clocks_agree"
CLOCK_CONFIRMED = "clock_confirmed"
COMMIT_TIMES_AHEAD = "commit_times_ahead"
LEASES_RENEWED = "leases_renewed"
HOUSEKEEPING_FAILED = "housekeeping_failed"
TASK_ALARM = "task_alarm"
SCHEDULE_FAILED = "schedule_failed"
AUDIT_FAILED = "audit_failed"
AUDIT_WORKS = "audit_works"
OTEL_MISSING = "otel_missing"
OTEL_FAILED = "otel_failed"
CERTIFICATE_TAKEN = "certificate_taken"
CERTIFICATE_REFUSED = "certificate_refused"
LEASE_TAKEN = "lease_taken"
LEASE_RELEASED = "lease_released"
LEASE_LOST = "lease_lost"
LEASE_UNREACHABLE = "lease_unreachable"
FENCED = "fenced"
STORE_SILENT = "store_silent"
STORE_ANSWERS = "store_answers"
STANDING_BY = "standing_by"
CONSOLE_STARTED = "console_started"
CONSOLE_LOG = "console_log"
CONSOLE_ENDED = "console_ended"

EVENTS: Final[Mapping[str, str]] = {
    STARTED: "The service takes calls: address, data folder.",
    STOPPED: "The service has stopped on request; everything is durable.",
    BROKEN: "The service found a contradiction in its state, or its data folder is gone (see the error); exit code 70.",
    REFUSED: "A call was refused: method, request id, reason, facts.",
    REOPEN_FAILED: "The store failed and can't be reopened yet; the service retries every half second.",
    METRICS_LISTEN: "Metrics are served: address.",
    BACKUP_MADE: "A backup is complete: path, bytes, uploaded bytes, pause of the decider.",
    BACKUP_FAILED: "A backup failed: path, error. Its folder was removed; a repository does not list it.",
    BACKUP_SCHEDULE_FAILED: "A scheduled backup, or the deletion of old backups, failed: error, time of the next "
    "attempt.",
    BACKUP_PRUNED: "Old backups were deleted: number of backups, number and bytes of the files that no other backup "
    "uses.",
    BACKUP_VERIFIED: "A backup was restored into a temporary folder and is intact: its id.",
    BACKUP_VERIFY_FAILED: "A backup can't be restored, or could not be verified: its id, the error.",
    RESTORED: "A store was restored from a backup: both paths, the epoch before and after.",
    IDLE: "The service stops because no client used it for --idle-exit-s.",
    SOCKET_GONE: "The service's socket was removed, as cleaners of /tmp do: it stops; the next call starts another.",
    OWNER_SOCKET_LEFT_OUT: "The data folder's path is too long for a socket: its owner needs a token like everybody "
    "else.",
    CLOCKS_DISAGREE: "The wall clock jumped since the last run or during this run: by how much. The service forgets, "
    "retires and purges nothing until the clock is right again or confirmed. Repeated every hour.",
    CLOCKS_AGREE: "The clock is right again.",
    CLOCK_CONFIRMED: "The clock is trusted again: an operator confirmed it, or the service has run for a day with it.",
    COMMIT_TIMES_AHEAD: "Commit times are ahead of the wall clock, because they never decrease: by how much. Repeated "
    "every hour.",
    LEASES_RENEWED: "The process was suspended: for how long. Transactions, pins and tasks get full leases again.",
    HOUSEKEEPING_FAILED: "Housekeeping found an unreadable record; it tries again later.",
    TASK_ALARM: "A task has failed repeatedly: task, table, last error. It is still retried, but rarely.",
    SCHEDULE_FAILED: "A round of planning failed: the error. The next round tries again.",
    AUDIT_FAILED: "The audit can't be written: file, error. The service tries again every second; the number of "
    "waiting records is limited.",
    AUDIT_WORKS: "The audit is written again: number of records lost in between.",
    OTEL_MISSING: "OTEL_… variables switch OpenTelemetry on, but its packages are not installed: laketx[otel].",
    OTEL_FAILED: "OpenTelemetry can't be set up with its variables, so nothing is exported: the error.",
    PURGE_RELEASED: "An operator released the purge: the reason why it had waited.",
    CERTIFICATE_TAKEN: "The service uses this certificate from now on, after its start or a change: file, expiry.",
    STANDING_BY: "The service listens and waits for the lease: address, store.",
    LEASE_TAKEN: "The service leads from now on and opens the store: the lease's epoch, the previous leader.",
    LEASE_RELEASED: "The service has released the lease: another process may lead at once.",
    LEASE_LOST: "The service no longer leads: the reason. It exits with code 75; its supervisor restarts it as a "
    "standby.",
    LEASE_UNREACHABLE: "The lease, or a standby's record, can't be read or written: the request, the error. The "
    "service tries again soon.",
    STORE_SILENT: "A write to the store in the bucket, or its opening, waits for an answer: for how long. Commits "
    "wait, too. After 60 s the process exits with code 75.",
    STORE_ANSWERS: "The store in the bucket answers again.",
    CONSOLE_STARTED: "The web console was started beside the service: address, process id. It prints its "
    "address when it listens.",
    CONSOLE_LOG: "A line of the console's log.",
    CONSOLE_ENDED: "The console's process ended, or can't be started: exit code, or the error, and when it is started "
    "again. The service goes on.",
    FENCED: "Another process has opened the store: this process stops answering and exits with code 75.",
    CERTIFICATE_REFUSED: "The certificate's files changed, but can't be used: the reason. The service keeps the "
    "previous certificate.",
}


@dataclass(frozen=True, slots=True)
class Logging:
    """The destination of the log; without a file, stderr."""

    file: str = ""
    bytes_max: int = 64 << 20
    files_max: int = 5


class RotatingLines:
    """Whole lines in a file that rotates like the log. Not for several threads at a time."""

    def __init__(self, to: Logging) -> None:
        self._path = to.file
        self._bytes_max = to.bytes_max
        self._rotation = RotatingFileHandler(
            to.file, maxBytes=to.bytes_max, backupCount=to.files_max - 1, encoding="utf-8", delay=True
        )
        self._open_file: BinaryIO | None = None

    def write(self, waiting: deque[bytes], *, sync: bool) -> None:
        """Takes the lines that it has written out of the queue. Raises OSError; a line is written as a whole or not."""
        while waiting:
            file = self._file()
            size = os.fstat(file.fileno()).st_size
            if size and size + len(waiting[0]) > self._bytes_max:
                self.close()
                self._rotation.doRollover()
                continue
            part = self._fitting(waiting, self._bytes_max - size)
            try:
                if file.write(b"".join(part)) != sum(map(len, part)):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)
                if sync:
                    os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(size)
                raise
            for _ in part:
                waiting.popleft()

    def close(self) -> None:
        file, self._open_file = self._open_file, None
        if file is not None:
            file.close()

    def _file(self) -> BinaryIO:
        if self._open_file is None or not Path(self._path).exists():  # an operator may have moved it away
            self.close()
            self._open_file = cast(BinaryIO, Path(self._path).open("ab", buffering=0))  # noqa: SIM115 - it stays open
        return self._open_file

    def _fitting(self, waiting: deque[bytes], room: int) -> list[bytes]:
        """At least one: a line longer than a file has one of its own."""
        part: list[bytes] = []
        for line in waiting:
            room -= len(line)
            if part and room < 0:
                break
            part.append(line)
        return part


def set_up_logging(to: Logging) -> None:
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if to.file:
        handler = RotatingFileHandler(to.file, maxBytes=to.bytes_max, backupCount=to.files_max - 1, encoding="utf-8")
    handler.setFormatter(LineFormatter())
    root = logging.getLogger("laketx")
    root.addHandler(handler)
    root.setLevel(logging.INFO)


def event(name: str, **facts: object) -> None:
    logging.getLogger("laketx").info(json.dumps({"event": name, **facts}, default=str))
