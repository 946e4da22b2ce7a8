"""Temporary credentials of S3's token service (STS), limited to the files of one table."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.storage_scope import TableFolder, partition_of, session_name, session_policy
from metaservice.shared.foreign_bytes import ForeignUnusable, foreign

CONNECT_S: Final = 2.0
READ_S: Final = 5.0
KNOWN_MAX: Final = 10_000

Key = tuple[str, TableFolder, bool]


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Where tokens come from, and what clients are told of the store. Empty: what AWS's own settings say."""

    role: str
    valid_s: int
    sts_endpoint: str
    endpoint: str
    region: str


@dataclass(frozen=True, slots=True)
class StorageCredentials:
    """A temporary key. Its secrets are in no text of it."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_us: int


class StorageTokens:
    """Asks STS, and gives a key out again until half of its time is over. Threads share it."""

    def __init__(self, settings: TokenSettings, now_us: Callable[[], int]) -> None:
        self.settings = settings
        self._now_us = now_us
        self._cached: OrderedDict[Key, StorageCredentials] = OrderedDict()
        self._lock = Lock()
        asking = Config(connect_timeout=CONNECT_S, read_timeout=READ_S, retries={"total_max_attempts": 2})
        try:
            self._sts = botocore.session.get_session().create_client(
                "sts", region_name=settings.region or None, endpoint_url=settings.sts_endpoint or None, config=asking
            )
        except BotoCoreError as error:
            raise RuntimeError(f"--storage-role: {error}") from error

    def credentials(self, principal: str, folder: TableFolder, *, write: bool) -> StorageCredentials:
        key = session_name(principal), folder, write
        with self._lock:
            cached = self._cached.get(key)
        if cached is None or cached.expires_us - self._now_us() < self.settings.valid_s * 500_000:
            cached = self._request(*key)
            with self._lock:
                self._cached[key] = cached
                while len(self._cached) > KNOWN_MAX:
                    self._cached.popitem(last=False)
        return cached

    def _request(self, name: str, folder: TableFolder, write: bool) -> StorageCredentials:
        role = self.settings.role
        policy = session_policy(folder, write=write, partition=partition_of(role))
        try:
            with foreign("S3's token service gives no credentials"):
                answer: dict[str, Any] = self._sts.assume_role(
                    RoleArn=role,
                    RoleSessionName=name,
                    Policy=json.dumps(policy, separators=(",", ":")),
                    DurationSeconds=self.settings.valid_s,
                )["Credentials"]
                key = answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"]
                expires_us = int(answer["Expiration"].timestamp() * 1_000_000)
                if not all(isinstance(part, str) and part for part in key):
                    raise ForeignUnusable("S3's token service answers no key")
        except ForeignUnusable as error:
            raise MetaError(ErrorKind.UNAVAILABLE, "STORAGE_TOKENS_UNREACHABLE", str(error)) from error
        return StorageCredentials(*key, expires_us)
