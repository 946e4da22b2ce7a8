"""Temporary keys from the service for the files of tables on S3, instead of the process's own keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyarrow import fs

from metaservice.client import DeniedError, MetaClient
from protos.laketx.v1 import access_pb2

SECOND_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class _Opened:
    """A file system, and the time of its replacement."""

    files: Any
    renew_us: int


class StorageKeys:
    """File systems of tables. A key is renewed when half of its time is over, for files that are opened later."""

    def __init__(self, client: MetaClient, now_us: Callable[[], int] = lambda: int(time.time() * SECOND_US)) -> None:
        self._client = client
        self._now_us = now_us
        self._opened: dict[str, _Opened] = {}
        self._lock = threading.Lock()

    def files(self, table_id: str) -> Any:
        """Return the file system of a table, with the right to write for writers."""
        with self._lock:
            opened = self._opened.get(table_id)
            now_us = self._now_us()
            if opened is None or opened.renew_us <= now_us:
                key = self._key(table_id)
                opened = _Opened(file_system(key), (now_us + key.expire_time_us) // 2)
                self._opened[table_id] = opened
            return opened.files

    def _key(self, table_id: str) -> access_pb2.GetStorageCredentialsResponse:
        try:
            return self._client.storage_credentials(table_id, write=True)
        except DeniedError:
            return self._client.storage_credentials(table_id)


def file_system(key: access_pb2.GetStorageCredentialsResponse) -> Any:
    scheme, _, place = key.endpoint.rpartition("://")
    given = {
        "access_key": key.access_key_id,
        "secret_key": key.secret_access_key,
        "session_token": key.session_token,
        "region": key.region or None,
        "endpoint_override": place or None,
        "scheme": scheme or None,
        "allow_delayed_open": True,
    }
    return fs.S3FileSystem(**{name: value for name, value in given.items() if value is not None})
