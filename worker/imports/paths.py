"""Places of files, in the one spelling that tables have for them."""

from __future__ import annotations

import os
import posixpath
from typing import Final

LOCAL: Final = "file:"


def plain_file(path: str) -> str:
    """A file's path without links, or its URI. A `file:` URI stands for the path that it spells: nothing is decoded."""
    if path.startswith(LOCAL):
        rest = path.removeprefix(LOCAL)
        path = "/" + (rest.removeprefix("//").partition("/")[2] if rest.startswith("//") else rest.lstrip("/"))
    scheme, mark, rest = path.partition("://")
    if not mark:
        return os.path.realpath(path)
    place, _, inside = rest.partition("/")
    return f"{scheme.lower()}://{place}{posixpath.normpath('/' + inside.lstrip('/'))}"
