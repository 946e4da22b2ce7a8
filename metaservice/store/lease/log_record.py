"""Where a store in a bucket has its log: a record that is written before the store is made, and never changes.

SlateDB opens a store without the bucket of its log, or with another one, and says nothing. Then all commits are missing
that are only in the log, and the process that writes there is not fenced. So whoever opens a store reads the record
beside it first. If the log is in another bucket, the same record is there too, under another name: buckets of two
servers can have the same name.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Final

from metaservice.shared.foreign_bytes import ForeignUnusable, build, read_object, read_whole
from metaservice.store.lease.lease_object import MISSING, OTHER_STATE, Refused, answer_of_s3, s3_client
from metaservice.store.object_location import LogPlace, ObjectPlace
from metaservice.store.port import (
    STORE_LOG_FOREIGN,
    STORE_LOG_OTHER,
    STORE_LOG_UNFENCED,
    STORE_LOG_UNREACHABLE,
    STORE_UNREACHABLE,
    StoreUnusable,
)

NAME: Final = "laketx-log.json"
NAME_AT_LOG: Final = "laketx-log-owner.json"
OPENING_S: Final = 10.0  # for buckets to answer; an opening is not given up for one lost answer
AS_RECORDED: Final = LogPlace()
_PAUSE_S: Final = 0.5
_BYTES_MAX: Final = 1 << 16
_NO_ANSWER: Final = (STORE_UNREACHABLE, STORE_LOG_UNREACHABLE)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The store, the bucket of its log (empty: the store's own), and what tells it from one of the same names."""

    store: str
    log: str
    log_id: str


def find_log(
    place: ObjectPlace, requested: LogPlace = AS_RECORDED, *, new_id: str = "", patience_s: float = 0.0
) -> LogPlace | None:
    """Where the store's log is; None: in the store's bucket.

    `new_id`: of the record that is made of what is asked for, if there is none. Raises StoreUnusable if the log is
    elsewhere than asked for, or can't be used.
    """
    until_s = time.monotonic() + patience_s
    while True:
        try:
            return _find(place, requested, new_id)
        except StoreUnusable as error:
            if error.reason not in _NO_ANSWER or time.monotonic() >= until_s:
                raise
        time.sleep(_PAUSE_S)


def _find(place: ObjectPlace, requested: LogPlace, new_id: str) -> LogPlace | None:
    beside = _Beside(place)
    record = beside.read()
    if record is None:
        is_old = beside.has("manifest/")  # made before there were records
        if requested.bucket and is_old:
            raise StoreUnusable(STORE_LOG_OTHER, path=str(place), log=str(place), requested=str(requested))
        if not new_id:
            return None
        made = LogRecord(str(place), requested.bucket, new_id)
        beside.create(_make_log(place, requested, made) if requested.bucket else made)
        record = beside.read()
        if record is None:
            raise StoreUnusable(STORE_UNREACHABLE, path=str(place), found=f"{NAME} was removed")
    if requested.bucket and requested.bucket != record.log:
        where = str(LogPlace(record.log)) if record.log else str(place)
        raise StoreUnusable(STORE_LOG_OTHER, path=str(place), log=where, requested=str(requested))
    if not record.log:
        return None
    log = LogPlace(record.log, requested.endpoint)
    if record.store != str(place):
        raise _foreign(place, log, f"the log of {record.store}")
    _check_log(place, log, record)
    return log


def _make_log(place: ObjectPlace, log: LogPlace, made: LogRecord) -> LogRecord:
    """The record in the log's bucket, which an interrupted start may have made. It comes first."""
    beside_log = _Beside(place, log)
    if beside_log.has("wal/"):
        raise _foreign(place, log, "the log of another store, at the same path")
    beside_log.create(made)
    owner = beside_log.read()
    if owner is None or (owner.store, owner.log) != (made.store, made.log):
        raise _foreign(place, log, owner.store if owner is not None else "nothing")
    return owner


def _check_log(place: ObjectPlace, log: LogPlace, record: LogRecord) -> None:
    beside_log = _Beside(place, log)
    owner = beside_log.read()
    if owner != record:
        raise _foreign(place, log, f"the log of {owner.store}" if owner is not None else f"no {NAME_AT_LOG}")
    if beside_log.create(record):  # a fence is a PUT that must not replace anything, as this one
        raise StoreUnusable(STORE_LOG_UNFENCED, path=str(place), log=str(log))


def _foreign(place: ObjectPlace, log: LogPlace, content: str) -> StoreUnusable:
    return StoreUnusable(STORE_LOG_FOREIGN, path=str(place), log=str(log), found=content)


class _Beside:
    """What is at the store's path in one of its buckets. All calls raise StoreUnusable where that doesn't answer."""

    def __init__(self, place: ObjectPlace, log: LogPlace | None = None) -> None:
        self._place = place
        self._log = log
        self._bucket = log.bucket if log is not None else place.bucket
        self._key = f"{place.path}/{NAME_AT_LOG if log is not None else NAME}"
        try:
            self._s3 = s3_client(log.endpoint if log is not None else "")
        except OSError as error:
            raise self._unusable(error) from error

    def read(self) -> LogRecord | None:
        try:
            with answer_of_s3("the record of the log can't be read"):
                raw = read_whole(self._s3.get_object(Bucket=self._bucket, Key=self._key)["Body"], _BYTES_MAX)
            return _decode(raw)
        except Refused as refusal:
            if refusal.code in MISSING:
                return None
            raise self._unusable(refusal) from refusal
        except OSError as error:
            raise self._unusable(error) from error

    def create(self, record: LogRecord) -> bool:
        """False: there is one already."""
        body = json.dumps(asdict(record)).encode()
        try:
            with answer_of_s3("the record of the log can't be written"):
                self._s3.put_object(Bucket=self._bucket, Key=self._key, Body=body, IfNoneMatch="*")
        except Refused as refusal:
            if refusal.code in OTHER_STATE:
                return False
            raise self._unusable(refusal) from refusal
        except OSError as error:
            raise self._unusable(error) from error
        return True

    def has(self, folder: str) -> bool:
        try:
            with answer_of_s3("the bucket can't be listed"):
                prefix = f"{self._place.path}/{folder}"
                return bool(self._s3.list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=1).get("Contents"))
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StoreUnusable:
        if self._log is not None:
            return StoreUnusable(STORE_LOG_UNREACHABLE, path=str(self._place), log=str(self._log), found=str(error))
        return StoreUnusable(STORE_UNREACHABLE, path=str(self._place), found=str(error))


def _decode(raw: bytes) -> LogRecord:
    """Raises OSError for what is no record."""
    try:
        fields = read_object(raw, _BYTES_MAX)
        return build(LogRecord, {name: fields[name] for name in LogRecord.__dataclass_fields__})
    except (ForeignUnusable, KeyError) as error:
        raise OSError(f"the record of the log can't be read: {error}") from error
