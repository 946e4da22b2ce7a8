"""Whether inlined files have their rows, and the live ones are counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from metaservice.core.table.inlined import Inlined
from metaservice.service.operate.replay import Indexed, list_indexed
from metaservice.store import keys
from metaservice.store.port import StoreCursor, prefix_end


def check_inlined(
    cursor: StoreCursor, raw_id: bytes, problem: Callable[..., None], count: Callable[[], bool]
) -> Iterator[None]:
    """Tables that never had inlined rows are not read again."""
    counted = cursor.get(keys.inlined_count_key(raw_id))
    prefix = keys.inlined_prefix(raw_id)
    if counted is None and next(iter(cursor.scan(prefix, prefix_end(prefix))), None) is None:
        return
    name = keys.uuid_text(raw_id)
    rows = size_bytes = 0
    for indexed in list_indexed(cursor, raw_id):
        if isinstance(indexed, Indexed) and indexed.entry.inlined:
            if cursor.get(keys.inlined_key(raw_id, indexed.entry.path)) is None:
                problem(
                    "INLINED_ROWS_MISSING",
                    table=name,
                    path=indexed.entry.path,
                    added=indexed.added,
                    removed=indexed.removed,
                )
            if not indexed.removed:
                rows += indexed.entry.rows
                size_bytes += indexed.entry.size_bytes
        if count():
            yield
    known = Inlined() if counted is None else Inlined(*keys.decode_counts(counted))
    if (known.rows, known.size_bytes) != (rows, size_bytes):
        problem(
            "INLINED_COUNT_WRONG", table=name, rows=rows, bytes=size_bytes, counted=f"{known.rows}/{known.size_bytes}"
        )
