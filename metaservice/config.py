"""Settings, read once from the command line and the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from metaservice.core import limits
from metaservice.service.housekeeping import Keeping


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set. Each flag has an environment variable: --lease-ms is LAKETX_LEASE_MS."""

    data: Path
    listen: str
    lease_ms: int
    outcome_keep_ms: int
    store_bytes_max: int
    reserve_bytes: int
    grace_s: float
    threads: int
    sessions_max: int
    metrics_listen: str
    backup_root: str
    adopt_grace_ms: int
    clock_tolerance_ms: int
    purge_delay_ms: int
    watchers_max: int
    idle_exit_s: float
    schedule_ms: int
    tasks_max: int
    task_backoff_ms: int

    @property
    def keeping(self) -> Keeping:
        return Keeping(self.outcome_keep_ms, self.adopt_grace_ms, self.clock_tolerance_ms, self.purge_delay_ms)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    parser = build_parser(environment)
    found = parser.parse_args(arguments)
    if found.sessions_max >= found.threads:
        parser.error("--threads must exceed --sessions-max")
    if found.lease_ms < 100 or found.outcome_keep_ms < 1000:
        parser.error("--lease-ms must be at least 100, --outcome-keep-ms at least 1000")
    if min(found.adopt_grace_ms, found.clock_tolerance_ms, found.purge_delay_ms) < 0:
        parser.error("--adopt-grace-ms, --clock-tolerance-ms and --purge-delay-ms must not be negative")
    if found.watchers_max < 0 or found.idle_exit_s < 0:
        parser.error("--watchers-max and --idle-exit-s must not be negative")
    if found.schedule_ms < 0 or found.tasks_max < 1 or found.task_backoff_ms < 1:
        parser.error("--schedule-ms must not be negative, --tasks-max and --task-backoff-ms must be positive")
    if found.metrics_listen and not found.metrics_listen.rpartition(":")[2].isdecimal():
        parser.error("--metrics-listen must be host:port")
    return Settings(**vars(found))


def build_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Every setting there is; docs/settings.md is made from it."""
    parser = argparse.ArgumentParser(prog="laketx serve", description="Runs MetaService.")

    def add(flag: str, default: object, kind: type, text: str) -> None:
        name = "LAKETX_" + flag.strip("-").replace("-", "_").upper()
        parser.add_argument(
            flag, type=kind, default=kind(environment.get(name, default)), help=f"{text} ({name}; default {default})"
        )

    add("--data", "./laketx-data", Path, "folder of the metadata store")
    add("--listen", "127.0.0.1:7070", str, "address, host:port or unix:path; port 0 picks a free one")
    add("--lease-ms", limits.LEASE_MS, int, "how long a transaction lives without renewal")
    add("--outcome-keep-ms", limits.OUTCOME_KEEP_MS, int, "how long outcomes are kept")
    add("--store-bytes-max", 0, int, "most bytes of the store; 0: as much as the disk has")
    add("--reserve-bytes", 96 * 1024 * 1024, int, "room below which new work is refused")
    add("--grace-s", 10.0, float, "how long a stop waits for calls under way")
    add("--threads", 64, int, "threads that serve calls")
    add("--sessions-max", 40, int, "session streams at a time; each holds a thread")
    add("--adopt-grace-ms", limits.ADOPT_GRACE_MS, int, "how long the staged files of a lost race may be taken over")
    add("--clock-tolerance-ms", limits.CLOCK_TOLERANCE_MS, int, "a jump of the wall clock that is not believed")
    add("--purge-delay-ms", limits.PURGE_DELAY_MS, int, "how long after a start nothing is retired")
    add("--metrics-listen", "", str, "address that serves metrics to Prometheus, port 0 picks a free one; empty: none")
    add("--backup-root", "", str, "folder below which backups are made; empty: the data folder's name and -backups")
    add("--watchers-max", 256, int, "watches at a time; each holds a thread beside --threads")
    add("--idle-exit-s", 0.0, float, "end after so long without a call or an open transaction; 0: never")
    add("--schedule-ms", limits.SCHEDULE_MS, int, "how often table services are planned; 0: only operators plan")
    add("--tasks-max", limits.TASKS_CLAIMED_MAX, int, "tasks of all tables that run at a time")
    add("--task-backoff-ms", limits.TASK_BACKOFF_MS, int, "wait after a task's first failure; each one more doubles it")
    return parser
