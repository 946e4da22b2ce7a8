"""The lease beside a store on object storage: one small object, written only over the state that was read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final, Protocol

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from metaservice.core.lease import Lease
from metaservice.shared.foreign_bytes import ForeignUnusable, build, foreign, read_object, read_whole
from metaservice.store.object_location import ObjectPlace

NAME: Final = "laketx-lease.json"
_TIMEOUT_S: Final = 2.0
_BYTES_MAX: Final = 1 << 16
MISSING: Final = ("NoSuchKey", "404")
OTHER_STATE: Final = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409", "NoSuchKey", "404")


class LeaseObject(Protocol):
    """Both raise OSError if the storage doesn't answer; a write may have happened then."""

    def read(self) -> tuple[Lease, str] | None:
        """The lease, and the tag of its state; None: there is none."""

    def write(self, lease: Lease, over: str | None) -> str | None:
        """Writes it over the state with that tag, or None: over nothing. The new tag; None: the state is another."""


class LeaseInBucket(LeaseObject):
    """By conditional PUT, with AWS's own settings of server and keys."""

    def __init__(self, place: ObjectPlace) -> None:
        self._s3 = s3_client()
        self._at = {"Bucket": place.bucket, "Key": f"{place.path}/{NAME}"}

    def read(self) -> tuple[Lease, str] | None:
        try:
            with answer_of_s3("the lease can't be read"):
                answer = self._s3.get_object(**self._at)
                raw, tag = read_whole(answer["Body"], _BYTES_MAX), str(answer["ETag"])
        except Refused as refusal:
            if refusal.code in MISSING:
                return None
            raise
        return decode_lease(raw), tag

    def write(self, lease: Lease, over: str | None) -> str | None:
        condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
        try:
            with answer_of_s3("the lease can't be written"):
                return str(self._s3.put_object(**self._at, Body=encode_lease(lease), **condition)["ETag"])
        except Refused as refusal:
            if refusal.code in OTHER_STATE:
                return None
            raise


class Refused(OSError):  # noqa: N818 - says what it is
    """S3 answers with an error; `code` is its word for it."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def answer_of_s3(failed: str) -> Iterator[None]:
    """Whatever S3 answers, or doesn't, is an OSError that says what failed."""
    try:
        with foreign(failed):
            yield
    except ForeignUnusable as error:
        cause = error.__cause__
        if isinstance(cause, ClientError):
            raise Refused(f"{failed}: {cause}", _code(cause)) from cause
        raise OSError(str(error)) from error


def s3_client(endpoint: str = "") -> Any:
    """It gives up soon, and repeats nothing. Threads may share it. Raises OSError."""
    config = Config(
        connect_timeout=_TIMEOUT_S,
        read_timeout=_TIMEOUT_S,
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path"},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    try:
        return botocore.session.get_session().create_client("s3", endpoint_url=endpoint or None, config=config)
    except BotoCoreError as error:
        raise OSError(f"S3 can't be used: {error}") from error


def encode_lease(lease: Lease) -> bytes:
    return json.dumps(asdict(lease)).encode()


def decode_lease(raw: bytes) -> Lease:
    """Decode a lease. Raises OSError for anything else."""
    try:
        document = read_object(raw, _BYTES_MAX)
        return build(Lease, {name: document[name] for name in Lease.__dataclass_fields__})
    except (ForeignUnusable, KeyError) as error:
        raise OSError(f"the lease can't be read: {error}") from error


def _code(error: ClientError) -> str:
    response: dict[str, Any] = error.response
    return str(response.get("Error", {}).get("Code", ""))
