"""The check of tags and cursors: each belongs to an existing table, and to a version of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from metaservice.core.retention.marks import Cursor as Mark
from metaservice.core.retention.marks import Tag
from metaservice.store import keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tags_and_cursors import decode_cursor, decode_tag

Decode = Callable[[bytes, bytes], Tag | Mark]
FAMILIES: tuple[tuple[bytes, str, Decode], ...] = (
    (keys.TAGS, "tag", decode_tag),
    (keys.CURSORS, "cursor", decode_cursor),
)


def check_marks(cursor: StoreCursor, problem: Callable[..., None], count: Callable[[], bool]) -> Iterator[None]:
    """Calls `problem` for each finding; a step ends where `count` says so."""
    for family, kind, decode in FAMILIES:
        for key, raw in cursor.scan(family, prefix_end(family)):
            _check(cursor, problem, kind, key, raw, decode)
            if count():
                yield


def _check(
    cursor: StoreCursor, problem: Callable[..., None], kind: str, key: bytes, raw: bytes, decode: Decode
) -> None:
    raw_id = keys.table_of_mark(key)
    table = keys.uuid_text(raw_id)
    try:
        mark = decode(key, raw)
    except Exception as error:  # noqa: BLE001 - bytes can be wrong in any way
        problem("RECORD_UNREADABLE", table=table, record=kind, error=error)
        return
    commits = keys.commits_prefix(raw_id)
    last = next(iter(cursor.scan_back(commits, prefix_end(commits))), None)
    if last is None:
        if cursor.get(keys.drop_begun_key(raw_id)) is None:  # else its records go, one after the other
            problem("MARK_WITHOUT_TABLE", table=table, kind=kind, name=mark.name)
        return
    _, head = keys.split_versioned(last[0])
    if mark.version > head:
        problem("MARK_BEYOND_THE_HEAD", table=table, kind=kind, name=mark.name, version=mark.version, head=head)
    elif isinstance(mark, Tag) and cursor.get(keys.commit_key(raw_id, mark.version)) is None:
        problem("TAGGED_VERSION_MISSING", table=table, name=mark.name, version=mark.version)
