"""Tags and cursors on a branch, and what a merge or a refresh makes of them. Pure.

A fork shows the tags of its base as far as it has their versions. It has a cursor of the base from its first use
on the branch: at its position then, or where the fork began if that is less. `Cursor.inherited` is this position.
"""

from __future__ import annotations

from dataclasses import replace

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.retention.marks import Cursor, Tag


def tag_on(table_id: str, base: int, tag: Tag) -> Tag | None:
    """A tag of the base as the fork shows it, if the fork has its version."""
    return replace(tag, table_id=table_id) if tag.version <= base else None


def cursor_on(table_id: str, base: int, cursor: Cursor, holds: str) -> Cursor:
    """A cursor of the base as the fork finds it. `holds`: the table whose versions it needs until it moves."""
    version = min(cursor.version, base)
    return replace(cursor, table_id=table_id, version=version, inherited=version, holds=holds, request_id="")


def merged_cursor(own: Cursor, theirs: Cursor | None, base: int, *, is_forward: bool) -> bool:
    """Whether a cursor of a fork changes its base's in a merge. Raises MetaError if it would lose changes.

    Its position is a version that both have, unless the commits of the branch were rebased: then there are commits of
    the parent below it that its reader has not seen.
    """
    if own.inherited == own.version:
        return False
    if theirs is not None and own.inherited < 0:
        raise MetaError(ErrorKind.ALREADY_EXISTS, "CURSOR_EXISTS", name=own.name, version=theirs.version)
    position = -1 if theirs is None else theirs.version
    if position != own.inherited:
        raise MetaError(ErrorKind.STALE, "CURSOR_MOVED", name=own.name, expected=own.inherited, version=position)
    if own.version > base and not is_forward:
        raise MetaError(ErrorKind.BLOCKED, "CURSOR_PAST_PARENT", name=own.name, version=own.version, base=base)
    return True


def merged_tag(own: Tag, theirs: Tag | None, base: int, *, is_forward: bool) -> bool:
    """Whether a tag of a fork becomes one of its base in a merge. Raises MetaError if that has the name already.

    A version of the branch whose commits were rebased is no version of the base.
    """
    if own.version > base and not is_forward:
        return False
    if theirs is not None and theirs.version != own.version:
        raise MetaError(ErrorKind.ALREADY_EXISTS, "TAG_EXISTS", name=own.name, version=theirs.version)
    return theirs is None
