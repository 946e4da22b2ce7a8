"""Locations of external files: links are followed; secrets and the lake's own files are refused before any write.

The service makes the same checks for every registered path. Here they run earlier, and links can be followed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from metaservice.client import BlockedError, MetaClient, NotFoundError
from worker.base.errors import InputError
from worker.files.storage import crosses_link

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
WEB: Final = frozenset({"http", "https", "ftp", "ftps", "sftp"})
CONTAINER_AT: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})  # container@account is a place


def plain_path(path: str) -> str:
    """Return a local path, absolute and without links, or a URI without secrets."""
    if "://" not in path and not path.startswith("file:"):
        return os.path.realpath(path)
    parts = urlsplit(path)
    if parts.scheme in WEB:
        raise InputError("PATH_INVALID", f"{parts.scheme}: files are not imported from the web; copy them to storage")
    is_container = parts.scheme in CONTAINER_AT and ":" not in parts.netloc
    if ("@" in parts.netloc and not is_container) or parts.query or parts.fragment:
        raise InputError(
            "PATH_INVALID",
            f"the {parts.scheme}: path holds a user, query or fragment; name the place alone, readers bring their own "
            "rights",
        )
    if parts.scheme == "file":
        return os.path.realpath(unquote(parts.path))
    return path.rstrip("/")


def check_outside(client: MetaClient, paths: Iterable[str]) -> None:
    """Refuse a file in the folder of a table, live or dropped, and a file that appears twice."""
    are_tables: dict[str, bool] = {}
    seen: set[str] = set()
    for path in paths:
        if path in seen:
            raise InputError("PATH_TWICE", f"{path} is found twice, by a link: import it once")
        seen.add(path)
        for part in unquote(path).lower().split("/"):
            if UUID.match(part):
                if part not in are_tables:
                    are_tables[part] = _is_table(client, part)
                if are_tables[part]:
                    raise InputError(
                        "PATH_IN_LAKE",
                        f"{path} lies in the folder of table {part}, which the service purges: read that table and "
                        "insert its rows, or copy the file",
                    )


def check_no_link(files: Any, root: str, path: str) -> None:
    """Refuse to move a file through a link."""
    if link := crosses_link(files, root, path):
        raise InputError("PATH_INVALID", f"{link} is a link: nothing is moved through it; remove it")


def _is_table(client: MetaClient, table_id: str) -> bool:
    try:
        client.get_table(table_id=table_id)
    except NotFoundError:
        return False
    except BlockedError:  # dropped
        return True
    return True
