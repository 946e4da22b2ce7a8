"""Objects of a repository of backups: in a bucket of S3, or files below a folder such as a mount.

Both raise FileNotFoundError for an object that isn't there, and OSError if the storage doesn't answer: a bucket raises
RepositoryUnreachable. A put is whole or not at all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from metaservice.core.errors import invalid
from metaservice.shared.foreign_bytes import read_whole
from metaservice.store.backups.folders import PARTIAL, sync_path
from metaservice.store.object_location import S3, ObjectPlace

FILE: Final = "file://"
READ_BYTES_MAX: Final = 256 << 20  # of an object that is read at once: a manifest, which names all tables
_CHUNK_BYTES: Final = 1 << 20
_CONNECT_TIMEOUT_S: Final = 5.0
_TRANSFER_TIMEOUT_S, _TRANSFER_ATTEMPTS_MAX = 60.0, 5  # of a file, or of many deletions
_ANSWER_TIMEOUT_S, _ANSWER_ATTEMPTS_MAX = 10.0, 3  # of the rest, which is soon done
_DELETED_AT_ONCE: Final = 1000  # S3 takes no more in one request
_MISSING: Final = ("NoSuchKey", "404")


class RepositoryUnreachable(OSError):  # noqa: N818 - says what it is
    """The bucket doesn't answer, or refuses: an object, and why."""


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object in a listing."""

    name: str
    size_bytes: int
    written_s: float


class Objects(Protocol):
    """Threads may share it."""

    def put(self, name: str, source: Path | bytes) -> None: ...

    def get(self, name: str) -> bytes: ...

    def fetch(self, name: str, target: Path) -> None:
        """Writes the object's bytes to a file."""

    def list(self, prefix: str) -> Iterator[ListedObject]:
        """The objects whose names begin with it, by name."""

    def delete(self, names: Iterable[str]) -> None:
        """One that isn't there is no error."""


def is_repository(text: str) -> bool:
    """Whether a text names a repository, right or wrong, and not a folder."""
    return "://" in text


def objects_at(text: str) -> Objects:
    """The objects of a repository: s3://bucket/path or file:///folder. Raises MetaError, OSError."""
    folder = folder_of(text)
    if folder is not None:
        return FolderObjects(folder)
    place = ObjectPlace.of(text) if text.startswith(S3) else None
    if place is None:
        raise invalid("BACKUP_REPOSITORY_INVALID", repository=text)
    return BucketObjects(place)


def folder_of(text: str) -> Path | None:
    """The folder that file:///folder names; None: it is no such text."""
    parts = urlsplit(text) if text.startswith(FILE) else None
    if parts is None or parts.netloc or not parts.path.startswith("/") or parts.query or parts.fragment:
        return None
    return Path(unquote(parts.path)).resolve()


class BucketObjects(Objects):
    """With AWS's own settings of server and keys."""

    def __init__(self, place: ObjectPlace) -> None:
        try:
            import botocore.session  # noqa: PLC0415 - an optional package
            from botocore.config import Config  # noqa: PLC0415
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        except ImportError as error:
            missing = "a repository in a bucket needs more packages: pip install 'laketx[s3]'"
            raise invalid("BACKUP_REPOSITORY_INVALID", missing, repository=place) from error
        self._bucket, self._path = place.bucket, place.path
        self._refused = ClientError
        self._unanswered = BotoCoreError  # some of them are errors of the system, too

        def client(timeout_s: float, attempts_max: int) -> Any:
            config = Config(
                connect_timeout=_CONNECT_TIMEOUT_S,
                read_timeout=timeout_s,
                retries={"total_max_attempts": attempts_max, "mode": "standard"},
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            return botocore.session.get_session().create_client("s3", config=config)

        with self._errors_of(str(place)):
            self._transfers = client(_TRANSFER_TIMEOUT_S, _TRANSFER_ATTEMPTS_MAX)
            self._s3 = client(_ANSWER_TIMEOUT_S, _ANSWER_ATTEMPTS_MAX)

    def put(self, name: str, source: Path | bytes) -> None:
        with self._errors_of(name):
            if isinstance(source, bytes):
                self._s3.put_object(**self._at(name), Body=source)
                return
            with source.open("rb") as body:
                self._transfers.put_object(**self._at(name), Body=body)

    def get(self, name: str) -> bytes:
        with self._errors_of(name):
            return read_whole(self._s3.get_object(**self._at(name))["Body"], READ_BYTES_MAX)

    def fetch(self, name: str, target: Path) -> None:
        with self._errors_of(name):
            body = self._transfers.get_object(**self._at(name))["Body"]
            with target.open("wb") as file:
                for chunk in body.iter_chunks(_CHUNK_BYTES):
                    file.write(chunk)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        with self._errors_of(prefix):
            pages = self._s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._path}/{prefix}"):
                for content in page.get("Contents", ()):
                    name = content["Key"].removeprefix(f"{self._path}/")
                    yield ListedObject(name, content["Size"], content["LastModified"].timestamp())

    def delete(self, names: Iterable[str]) -> None:
        waiting = list(names)
        for start in range(0, len(waiting), _DELETED_AT_ONCE):
            part = waiting[start : start + _DELETED_AT_ONCE]
            s3 = self._s3 if len(part) == 1 else self._transfers
            keys = [{"Key": f"{self._path}/{name}"} for name in part]
            with self._errors_of(part[0]):
                done = s3.delete_objects(Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True})
            for wrong in done.get("Errors", ()):
                raise OSError(f"{wrong.get('Key')} can't be deleted: {wrong.get('Message')}")

    def _at(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._path}/{name}"}

    @contextlib.contextmanager
    def _errors_of(self, name: str) -> Iterator[None]:
        try:
            yield
        except self._refused as error:
            if str(error.response.get("Error", {}).get("Code", "")) in _MISSING:
                raise FileNotFoundError(name) from error
            raise RepositoryUnreachable(f"{name}: {error}") from error
        except self._unanswered as error:
            raise RepositoryUnreachable(f"{name}: {error}") from error
        except OSError:
            raise
        except Exception as error:  # its library's, and those of an answer that is none
            raise RepositoryUnreachable(f"{name}: {type(error).__name__}: {error}"[:500]) from error


class FolderObjects(Objects):
    """Files below a folder, which must exist: a mount that is missing is no empty repository."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, source: Path | bytes) -> None:
        if not self._root.is_dir():
            raise OSError(f"the folder {self._root} does not exist")
        path = self._root / name
        path.parent.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(PARTIAL, dir=path.parent)
        partial = Path(name)
        try:
            with os.fdopen(handle, "wb") as target:
                for chunk in _chunks(source):
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        sync_path(path.parent)

    def get(self, name: str) -> bytes:
        return (self._root / name).read_bytes()

    def fetch(self, name: str, target: Path) -> None:
        with target.open("wb") as file:
            for chunk in _chunks(self._root / name):
                file.write(chunk)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        if not self._root.is_dir():
            raise OSError(f"the folder {self._root} does not exist")
        for path in sorted((self._root / prefix).glob("*")):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                status = path.stat()
                if path.is_file():
                    yield ListedObject(f"{prefix}{path.name}", status.st_size, status.st_mtime)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self._root / name).unlink(missing_ok=True)


def _chunks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
