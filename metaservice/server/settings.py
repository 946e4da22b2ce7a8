"""Settings, read once from the command line and the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from metaservice.core import limits, quotas
from metaservice.core.access import grantee_of
from metaservice.core.errors import MetaError
from metaservice.core.quotas import Quota
from metaservice.core.table.external import Location, locate
from metaservice.rpc.observe.audit import AuditSettings
from metaservice.rpc.pipeline.open_streams import StreamLimits
from metaservice.service.operate.backup_schedule import BackupRhythm
from metaservice.service.retention.housekeeping import Keeping
from metaservice.shared.addresses import is_local
from metaservice.shared.log import Logging
from metaservice.store.backups.objects import folder_of
from metaservice.store.formats import FIRST, LOG_ELSEWHERE, NEWEST
from metaservice.store.object_location import CACHE_BYTES, LogPlace, ObjectPlace

CACHE_BYTES_MIN = 64 << 20
PORT_MAX: Final = 65_535
STORAGE_VALID_S_MIN, STORAGE_VALID_S_MAX = 900, 43_200  # what STS takes
ANYWHERE: Final = "any"
SET_QUOTAS: Final = tuple(name for name in quotas.DEFAULTS if name != quotas.CHECKS)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. Each flag has an environment variable: --lease-ms is LAKETX_LEASE_MS."""

    data: Path
    store: str
    store_log: str
    store_log_endpoint: str
    advertise: str
    listen: str
    lease_ms: int
    outcome_keep_ms: int
    store_bytes_max: int
    store_cache_bytes: int
    store_format: int
    reserve_bytes: int
    inlined_bytes_max: int
    grace_s: float
    threads: int
    metrics_listen: str
    console: str
    console_server: str
    backup_root: str
    backup_to: str
    backup_every_s: float
    backup_keep: int
    backup_verify_every_s: float
    adopt_grace_ms: int
    clock_tolerance_ms: int
    purge_delay_ms: int
    idle_exit_s: float
    schedule_ms: int
    tasks_max: int
    task_backoff_ms: int
    stream_idle_s: float
    stream_deadline_s: float
    reflection: bool
    log_file: str
    log_bytes_max: int
    log_files_max: int
    audit_file: str
    audit_bytes_max: int
    audit_files_max: int
    audit_reads: bool
    audit_required: bool
    external_locations: str
    tokens: bool
    oidc_issuer: str
    oidc_audience: str
    oidc_ca: str
    oidc_name_claim: str
    oidc_groups_claim: str
    admins: str
    policy_url: str
    policy_keep_s: float
    storage_role: str
    storage_valid_s: int
    storage_sts_endpoint: str
    storage_endpoint: str
    storage_region: str
    tls_cert: str
    tls_key: str
    tls_client_ca: str
    insecure: bool
    quotas: Mapping[str, Quota]

    @property
    def logging(self) -> Logging:
        return Logging(self.log_file, self.log_bytes_max, self.log_files_max)

    @property
    def audit(self) -> AuditSettings:
        to = Logging(self.audit_file, self.audit_bytes_max, self.audit_files_max)
        return AuditSettings(to, self.audit_reads, self.audit_required)

    @property
    def patience(self) -> StreamLimits:
        return StreamLimits(self.stream_idle_s, self.stream_deadline_s)

    @property
    def has_identity(self) -> bool:
        """Whether callers have to say who they are."""
        return self.tokens or bool(self.oidc_issuer or self.tls_client_ca)

    @property
    def external_places(self) -> tuple[Location, ...] | None:
        """Where files can be imported from; None: from anywhere except the lake itself."""
        if self.external_locations == ANYWHERE or not (self.external_locations or self.has_identity):
            return None
        return tuple(locate(place.strip()) for place in self.external_locations.split(",") if place.strip())

    @property
    def place(self) -> ObjectPlace | None:
        """The store's place, if it is in a bucket."""
        return ObjectPlace.of(self.store) if self.store else None

    @property
    def log_place(self) -> LogPlace:
        """Where a new store gets its log; an old one must have it there, or nothing is said."""
        return LogPlace.of(self.store_log, self.store_log_endpoint) or LogPlace(endpoint=self.store_log_endpoint)

    @property
    def rhythm(self) -> BackupRhythm:
        every_ms, verify_every_ms = int(self.backup_every_s * 1000), int(self.backup_verify_every_s * 1000)
        return BackupRhythm(self.backup_to, every_ms, self.backup_keep, verify_every_ms)

    @property
    def exposed(self) -> str:
        """A sentence on what the listening address lacks; empty for nothing."""
        if self.insecure or is_local(self.listen) or (self.tls_cert and self.has_identity):
            return ""
        missing = [] if self.tls_cert else ["TLS (--tls-cert, --tls-key)"]
        missing += [] if self.has_identity else ["a way to know who calls (--tls-client-ca, --oidc-issuer, --tokens)"]
        return (
            f"--listen {self.listen} is reached from other machines: it needs {' and '.join(missing)}, "
            "or --insecure true on a network whose every machine may do everything"
        )

    @property
    def keeping(self) -> Keeping:
        return Keeping(self.outcome_keep_ms, self.adopt_grace_ms, self.clock_tolerance_ms, self.purge_delay_ms)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    parser = build_parser(environment)
    parsed = parser.parse_args(arguments)
    given = vars(parsed)
    limits_given = {name: _quota(parser, given, name) for name in SET_QUOTAS}
    _check_bounds(parser, parsed)
    _check_addresses(parser, parsed)
    _check_identity(parser, parsed)
    _check_storage(parser, parsed)
    settings = Settings(**given, quotas={**quotas.DEFAULTS, **limits_given})
    _check_store(parser, settings)
    _check_tls(parser, settings)
    _check_console(parser, settings)
    _check_backups(parser, settings)
    _check_places(parser, settings)
    return settings


def log_endpoint(environment: Mapping[str, str] = os.environ) -> str:
    """--store-log-endpoint, for a process that has no other setting."""
    return environment.get("LAKETX_STORE_LOG_ENDPOINT", "")


def _check_store(parser: argparse.ArgumentParser, settings: Settings) -> None:
    if settings.store.startswith("file:"):
        parser.error("--store file:// would lose commits with the machine: use --data for a folder, s3://bucket/path")
    if settings.store and settings.place is None:
        parser.error(f"--store {settings.store} is no s3://bucket/path")
    if settings.store and settings.listen.startswith("unix:"):
        parser.error("--store needs --listen host:port, where others find the leader")
    if settings.store_cache_bytes < CACHE_BYTES_MIN:
        parser.error(f"--store-cache-bytes must be at least {CACHE_BYTES_MIN}")
    if settings.advertise and not settings.store:
        parser.error("--advertise is for a service with --store")
    if (settings.store_log or settings.store_log_endpoint) and not settings.store:
        parser.error("--store-log and --store-log-endpoint are for a service with --store")
    if settings.store_log and not LogPlace.of(settings.store_log, ""):
        parser.error(f"--store-log {settings.store_log} is no s3://bucket: the log has the path of --store in it")
    if settings.store_log and settings.store_format < LOG_ELSEWHERE:
        parser.error(f"--store-log needs a --store-format of at least {LOG_ELSEWHERE}")
    if settings.store_log_endpoint and not settings.store_log_endpoint.startswith(("http://", "https://")):
        parser.error("--store-log-endpoint is an http or https address")


def _check_backups(parser: argparse.ArgumentParser, settings: Settings) -> None:
    if settings.backup_to and not (folder_of(settings.backup_to) or ObjectPlace.of(settings.backup_to)):
        parser.error(f"--backup-to {settings.backup_to} is neither s3://bucket/path nor file:///folder")
    if min(settings.backup_every_s, settings.backup_keep, settings.backup_verify_every_s) < 0:
        parser.error("--backup-every-s, --backup-keep and --backup-verify-every-s must not be negative")


def _check_places(parser: argparse.ArgumentParser, settings: Settings) -> None:
    try:
        _ = settings.external_places
    except MetaError as error:
        parser.error(f"--external-locations: {error.message}")


def _check_bounds(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    if not FIRST <= parsed.store_format <= NEWEST:
        parser.error(f"--store-format must be {FIRST} to {NEWEST}")
    if parsed.threads < 1:
        parser.error("--threads must be positive")
    if parsed.log_bytes_max < 1024 or parsed.log_files_max < 2:
        parser.error("--log-bytes-max must be at least 1024, --log-files-max at least 2")
    if parsed.audit_bytes_max < 1024 or parsed.audit_files_max < 2:
        parser.error("--audit-bytes-max must be at least 1024, --audit-files-max at least 2")
    if parsed.audit_required and not parsed.audit_file:
        parser.error("--audit-required needs --audit-file")
    if min(parsed.stream_idle_s, parsed.stream_deadline_s) <= 0:
        parser.error("--stream-idle-s and --stream-deadline-s must be positive")
    if parsed.lease_ms < 100 or parsed.outcome_keep_ms < 1000:
        parser.error("--lease-ms must be at least 100, --outcome-keep-ms at least 1000")
    if min(parsed.adopt_grace_ms, parsed.clock_tolerance_ms, parsed.purge_delay_ms) < 0:
        parser.error("--adopt-grace-ms, --clock-tolerance-ms and --purge-delay-ms must not be negative")
    if parsed.idle_exit_s < 0:
        parser.error("--idle-exit-s must not be negative")
    if parsed.schedule_ms < 0 or parsed.tasks_max < 1 or parsed.task_backoff_ms < 1:
        parser.error("--schedule-ms must not be negative, --tasks-max and --task-backoff-ms must be positive")


def _check_addresses(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    if not (parsed.listen.startswith("unix:") or _has_port(parsed.listen)):
        parser.error(f"--listen must be host:port or unix:path, with a port up to {PORT_MAX}")
    if parsed.metrics_listen and not _has_port(parsed.metrics_listen):
        parser.error(f"--metrics-listen must be host:port, with a port up to {PORT_MAX}")


def _has_port(address: str) -> bool:
    _, colon, port = address.rpartition(":")
    return bool(colon) and port.isdecimal() and len(port) <= len(str(PORT_MAX)) and int(port) <= PORT_MAX


def _check_identity(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    if bool(parsed.oidc_issuer) != bool(parsed.oidc_audience):
        parser.error("--oidc-issuer and --oidc-audience belong together")
    if parsed.policy_keep_s < 0 or (parsed.policy_url and not parsed.policy_url.startswith(("http://", "https://"))):
        parser.error("--policy-url is an http or https address, --policy-keep-s must not be negative")
    wrong = [grantee for grantee in parsed.admins.split(",") if grantee.strip() and grantee_of(grantee.strip()) is None]
    if wrong:
        parser.error(f"--admins: {wrong[0]!r} is neither a user nor group:NAME")


def _check_storage(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    if not STORAGE_VALID_S_MIN <= parsed.storage_valid_s <= STORAGE_VALID_S_MAX:
        parser.error(f"--storage-valid-s must be between {STORAGE_VALID_S_MIN} and {STORAGE_VALID_S_MAX}")
    for flag, url in (("sts-endpoint", parsed.storage_sts_endpoint), ("endpoint", parsed.storage_endpoint)):
        if url and not url.startswith(("http://", "https://")):
            parser.error(f"--storage-{flag} is an http or https address")


def _check_tls(parser: argparse.ArgumentParser, settings: Settings) -> None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        parser.error("--tls-cert and --tls-key belong together")
    if settings.tls_client_ca and not settings.tls_cert:
        parser.error("--tls-client-ca needs --tls-cert and --tls-key")
    if settings.tls_cert and settings.listen.startswith("unix"):
        parser.error("--tls-cert is for host:port: a socket is protected by its folder's rights")
    if settings.exposed:
        parser.error(settings.exposed)


def _check_console(parser: argparse.ArgumentParser, settings: Settings) -> None:
    if settings.console_server and not settings.console:
        parser.error("--console-server needs --console")
    if not settings.console:
        return
    if not _has_port(settings.console):
        parser.error(f"--console must be host:port, with a port up to {PORT_MAX}")
    if settings.tls_client_ca:
        parser.error("--console shows the service tokens, and no certificate: it can't be used with --tls-client-ca")
    if not is_local(settings.console) and not (settings.tls_cert and settings.has_identity):
        parser.error(
            f"--console {settings.console} is reached from other machines: it needs TLS (--tls-cert, --tls-key) and "
            "a way to know who calls (--oidc-issuer, --tokens)"
        )


def _quota(parser: argparse.ArgumentParser, given: dict[str, Any], name: str) -> Quota:
    quota = Quota(given.pop(f"{name}_max"), given.pop(f"{name}_each"))
    if min(quota.most, quota.each) < 0:
        parser.error(f"{quotas.flag(name)}-max and {quotas.flag(name)}-each must not be negative")
    return quota


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError("true or false")
    return text.lower() == "true"


def build_parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Every setting; docs/settings.md is made from it."""
    parser = argparse.ArgumentParser(
        prog="laketx serve",
        usage="%(prog)s [OPTIONS]; `%(prog)s --help` lists them",
        description="Runs MetaService.",
        epilog="Example: laketx serve --data data --listen 127.0.0.1:7070",
    )

    def add(flag: str, default: object, kind: Callable[[Any], object], text: str) -> None:
        name = "LAKETX_" + flag.strip("-").replace("-", "_").upper()
        parser.add_argument(
            flag, type=kind, default=kind(environment.get(name, default)), help=f"{text} ({name}; default {default})"
        )

    add("--data", "./laketx-data", Path, "folder of the metadata store; with --store, of this process's own files")
    add("--store", "", str, "store in a bucket, s3://bucket/path, for several processes; empty: in --data")
    add("--store-log", "", str, "bucket of a new store's write-ahead log, s3://bucket; empty: the bucket of --store")
    add("--store-log-endpoint", "", str, "S3 server of the log's bucket; empty: that of --store")
    add("--advertise", "", str, "host:port where clients reach this process, with --store; empty: as --listen")
    add("--listen", "127.0.0.1:7070", str, "address to listen on, host:port or unix:path; port 0 picks a free one")
    add("--lease-ms", limits.LEASE_MS, int, "how long a transaction lives without renewal")
    add("--outcome-keep-ms", limits.OUTCOME_KEEP_MS, int, "how long outcomes are kept")
    add("--store-bytes-max", 0, int, "maximum size of the store in bytes; 0: limited only by the disk")
    add("--store-cache-bytes", CACHE_BYTES, int, "memory for reads from a store in a bucket, in bytes")
    add(
        "--store-format",
        NEWEST,
        int,
        "highest format that the store may get; a lower one lets an earlier release open it",
    )
    add("--reserve-bytes", 96 * 1024 * 1024, int, "free space in bytes below which new work is refused")
    add("--inlined-bytes-max", limits.INLINED_BYTES_MAX, int, "bytes of inlined rows that wait for compactions")
    add("--grace-s", 10.0, float, "how long a stop waits for calls under way")
    add("--threads", 64, int, "threads that serve unary calls; streams have separate threads")
    add("--adopt-grace-ms", limits.ADOPT_GRACE_MS, int, "how long the staged files of a lost race can be adopted")
    add("--clock-tolerance-ms", limits.CLOCK_TOLERANCE_MS, int, "largest jump of the wall clock that is still trusted")
    add("--purge-delay-ms", limits.PURGE_DELAY_MS, int, "how long after a start nothing is retired")
    add("--metrics-listen", "", str, "address that serves metrics to Prometheus; port 0 picks a free one; empty: none")
    add(
        "--console",
        "",
        str,
        "address of the web console, in a process beside the service; port 0 picks a free one; empty: none",
    )
    add("--console-server", "", str, "addresses where the console reaches the service; empty: --advertise or --listen")
    add("--backup-root", "", str, "folder that contains backups; empty: the data folder's name with -backups")
    add("--backup-to", "", str, "repository of scheduled backups, s3://bucket/path or file:///folder; empty: none")
    add("--backup-every-s", 3600.0, float, "interval of scheduled backups; 0: only on request")
    add("--backup-keep", 48, int, "number of backups kept in the repository; 0: all")
    add("--backup-verify-every-s", 86_400.0, float, "interval of restoring the newest backup to verify it; 0: never")
    add("--idle-exit-s", 0.0, float, "stop after this time without a call or an open transaction; 0: never")
    add("--schedule-ms", limits.SCHEDULE_MS, int, "interval of planning table services; 0: only on request")
    add("--tasks-max", limits.TASKS_CLAIMED_MAX, int, "maximum number of tasks of all tables that run at a time")
    add(
        "--task-backoff-ms",
        limits.TASK_BACKOFF_MS,
        int,
        "wait after a task's first failure; each further failure doubles it",
    )
    add("--stream-idle-s", 300.0, float, "how long a stream, or a call without its request, can be idle")
    add("--stream-deadline-s", 86_400.0, float, "how long a stream can last; clients open another")
    add("--reflection", "false", _switch, "true: serve gRPC reflection, which describes the calls")
    add("--log-file", "", str, "log file, which rotates; empty: stderr")
    add("--log-bytes-max", 64 << 20, int, "size at which the log file rotates")
    add("--log-files-max", 5, int, "number of log files kept, including the current one")
    add("--audit-file", "", str, "file of the audit, which rotates: who changed what; empty: none")
    add("--audit-bytes-max", 64 << 20, int, "size at which the file of the audit rotates")
    add("--audit-files-max", 10, int, "number of files of the audit kept, including the current one")
    add("--audit-reads", "false", _switch, "true: the audit has reads and renewals too")
    add("--audit-required", "false", _switch, "true: refuse changes while the audit can't be written")
    for name in SET_QUOTAS:
        quota = quotas.DEFAULTS[name]
        add(f"{quotas.flag(name)}-max", quota.most, int, f"{quotas.SAYS[name]}, for all principals together")
        add(f"{quotas.flag(name)}-each", quota.each, int, f"{quotas.SAYS[name]}, for each principal")
    add("--tokens", "false", _switch, "true: callers send service tokens (laketx token create); see docs/security.md")
    add("--oidc-issuer", "", str, "OpenID Connect provider whose tokens callers send")
    add("--oidc-audience", "", str, "audience that the provider's tokens must name")
    add("--oidc-ca", "", str, "PEM file of authorities that may sign the provider's certificate; empty: the system's")
    add("--oidc-name-claim", "sub", str, "claim with the principal")
    add("--oidc-groups-claim", "groups", str, "claim with the groups")
    add("--admins", "", str, "users and groups (group:NAME), separated by commas, that are admins of the service")
    add("--policy-url", "", str, "server of an external policy that decides roles instead of grants; docs/security.md")
    add("--policy-keep-s", 10.0, float, "how long the policy's answers are kept")
    add("--storage-role", "", str, "role of S3 for temporary keys of tables' readers and writers; empty: none")
    add("--storage-valid-s", 3600, int, "how long such a key is valid, 900 to 43200 seconds")
    add("--storage-sts-endpoint", "", str, "S3's token service; empty: Amazon's of the region")
    add("--storage-endpoint", "", str, "S3 server that clients use; empty: Amazon's of the region")
    add("--storage-region", "", str, "region of that S3 server; empty: from AWS's own settings")
    add(
        "--external-locations",
        "",
        str,
        "folders and URIs, separated by commas, that imports may read, or any; empty: any, or none with authentication",
    )
    add("--tls-cert", "", str, "PEM file of the certificate and its chain; read again when it changes; empty: no TLS")
    add("--tls-key", "", str, "PEM file of the certificate's key; read again when it changes")
    add("--tls-client-ca", "", str, "PEM file of authorities; clients must have a certificate that one of them signed")
    add("--insecure", "false", _switch, "true: listen beyond this machine without TLS or without authentication")
    return parser
