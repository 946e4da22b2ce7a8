"""Paths of files that lie outside the warehouse, in one spelling.

    canonical   what is stored, and what readers open: `file:/a//b/../c%20d` becomes `/a/c d`
    identity    what tells one file from another, however it is spelled: `s3a://b/x` and `S3N://b//x` have the same

Only a `file:` URI is decoded. In every other path `%20` stands for itself, as readers take it; two paths that differ by
such a code alone still have one identity, so that a second spelling of a file is found whatever its reader does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from metaservice.core.errors import MetaError, invalid

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)\Z", re.DOTALL)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
WEB: Final = frozenset({"http", "https", "ftp", "ftps", "sftp", "data", "jar"})
ONE_STORE: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasbs": "wasb"}
CONTAINER_AT: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})  # container@account names a place, nobody's secret
DECODINGS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Location:
    """`scheme` is empty for the local file system."""

    scheme: str
    authority: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        path = "/" + "/".join(self.parts)
        return f"{self.scheme}://{self.authority}{path}" if self.scheme else path

    @property
    def identity(self) -> str:
        scheme = ONE_STORE.get(self.scheme, self.scheme)
        return str(Location(scheme, self.authority.lower(), _decoded(self.parts)))

    @property
    def table_ids(self) -> tuple[str, ...]:
        """The parts that look like a table's id, however they are spelled."""
        decoded = (part.lower() for part in _decoded(self.parts))
        return tuple(part for part in decoded if _UUID.match(part))

    def inside(self, table_id: str) -> str:
        """The part of the path after a table's folder; empty: the path isn't in one."""
        parts = _decoded(self.parts)
        for at in range(len(parts) - 1, -1, -1):
            if parts[at].lower() == table_id:
                return "/".join(parts[at + 1 :])
        return ""

    def lies_in(self, other: Location) -> bool:
        """Return whether this location is in the other, or equal to it."""
        own, theirs = self.identity.rstrip("/"), other.identity.rstrip("/")
        return own == theirs or own.startswith(f"{theirs}/")


def locate(path: str) -> Location:
    """A path or URI, checked. A refusal never repeats text that may be a secret."""
    if not path or _CONTROL.search(path) or "\\" in path:
        raise invalid("PATH_INVALID", "the path is empty, or contains a control character or backslash")
    if path.startswith("/"):
        return Location("", "", _resolved(path, path))
    uri = _URI.match(path)
    if uri is None:
        raise invalid("PATH_INVALID", "an external file needs an absolute path: /folder/file or s3://bucket/file")
    scheme, rest = uri[1].lower(), uri[2]
    if scheme in WEB:
        raise invalid("PATH_INVALID", "a file on the web can't be imported: copy it to storage first", scheme=scheme)
    authority, path_there = "", rest
    if rest.startswith("//"):
        authority, slash, path_there = rest[2:].partition("/")
        path_there = slash + path_there
    if "@" in authority and not (scheme in CONTAINER_AT and authority.count("@") == 1 and ":" not in authority):
        raise invalid(
            "PATH_INVALID", "a path must not contain a user or password: readers have their own", scheme=scheme
        )
    if "?" in rest or "#" in rest:
        raise invalid(
            "PATH_INVALID",
            "a path must not contain a query or fragment: signed links expire and are secrets",
            scheme=scheme,
        )
    if not path_there.startswith("/") and (path_there or not authority):
        raise invalid("PATH_INVALID", "an external file needs an absolute path: scheme://place/file", scheme=scheme)
    if scheme == "file":
        if authority.lower() not in ("", "localhost"):
            raise invalid(
                "PATH_INVALID",
                "a file: path must not name a host: use a form like file:///folder/file",
                path=path[:128],
            )
        return locate(unquote(path_there))
    if not authority:
        raise invalid(
            "PATH_INVALID", "the path lacks a bucket or host: use a form like s3://bucket/file", path=path[:128]
        )
    return Location(scheme, authority, _resolved(path_there, path))


def _resolved(path: str, whole: str) -> tuple[str, ...]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise invalid(
                    "PATH_INVALID", "the path leaves its root through ..: name the file directly", path=whole[:128]
                )
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def _decoded(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts of the path as any decoder would read it, however often it decodes."""
    text = "/".join(parts)
    for _ in range(DECODINGS_MAX):
        if "%" not in text or (plain := unquote(text)) == text:
            break
        text = plain
    normalized: list[str] = []
    for part in text.split("/"):
        if part == "..":
            del normalized[-1:]
        elif part not in ("", "."):
            normalized.append(part)
    return tuple(normalized)


def canonical_file(path: str) -> str:
    """Return a file's path as it is stored."""
    location = locate(path)
    if not location.parts or path.endswith("/"):
        raise invalid("PATH_INVALID", "the path names a folder: name a file", path=path[:128])
    return str(location)


def identity_of(path: str) -> str:
    """The identity of a path, also of one that an earlier release stored, whatever its spelling."""
    try:
        return locate(path).identity
    except MetaError:
        return path
