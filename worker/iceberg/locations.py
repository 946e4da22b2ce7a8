"""Locations in the form of Iceberg's readers: URIs, local ones without escapes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from worker.base.errors import InputError

S3: Final = ("s3a://", "s3n://")
ODD: Final = re.compile("[?#%]")


def location_of(path: str) -> str:
    """Return the URI of a path or URI. Readers treat escapes differently, so it has none."""
    uri = uri_of(path)
    check_path(uri)
    return uri


def uri_of(path: str) -> str:
    """Return the URI, whatever characters it has."""
    if path.startswith(S3):
        path = "s3://" + path[6:]
    elif path.startswith("file:"):
        path = "file:///" + path.removeprefix("file:").lstrip("/")
    elif "://" not in path:
        path = f"file://{Path(path).absolute()}"
    return path


def location_in(folder: str, path: str) -> str:
    """Return the URI of a path below the folder of a URI."""
    check_path(path)
    return f"{folder}/{path}"


def check_path(path: str) -> None:
    """Refuse a path that readers confuse with another."""
    if odd := ODD.search(path):
        raise InputError(
            "ICEBERG_PATH", f"{path}: Iceberg's readers take {odd[0]} in a path for a part of a URI; move the file"
        )
