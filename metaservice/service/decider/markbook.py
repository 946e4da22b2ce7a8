"""The tags and cursors of a state. The decider's thread changes it; any thread can read it."""

from __future__ import annotations

from metaservice.core.retention.marks import Cursor, Tag
from metaservice.store import keys
from metaservice.store.port import StoreCursor as StoreCursor
from metaservice.store.port import prefix_end
from metaservice.store.records.tags_and_cursors import decode_cursor, decode_tag


class MarkBook:
    """Tags and cursors by table and name."""

    def __init__(self, store: StoreCursor) -> None:
        self.tags: dict[tuple[str, str], Tag] = {}
        self.cursors: dict[tuple[str, str], Cursor] = {}
        self._tags_of: dict[str, dict[str, int]] = {}
        self._cursors_of: dict[str, dict[str, Cursor]] = {}
        for key, raw in store.scan(keys.TAGS, prefix_end(keys.TAGS)):
            self.put_tag(decode_tag(key, raw))
        for key, raw in store.scan(keys.CURSORS, prefix_end(keys.CURSORS)):
            self.put_cursor(decode_cursor(key, raw))

    def put_tag(self, tag: Tag) -> None:
        self.tags[tag.table_id, tag.name] = tag
        self._tags_of.setdefault(tag.table_id, {})[tag.name] = tag.version

    def drop_tag(self, table_id: str, name: str) -> None:
        del self.tags[table_id, name]
        del self._tags_of[table_id][name]

    def put_cursor(self, cursor: Cursor) -> None:
        self.cursors[cursor.table_id, cursor.name] = cursor
        self._cursors_of.setdefault(cursor.table_id, {})[cursor.name] = cursor

    def drop_cursor(self, table_id: str, name: str) -> None:
        del self.cursors[table_id, name]
        del self._cursors_of[table_id][name]

    def count_tags(self, table_id: str) -> int:
        return len(self._tags_of.get(table_id, ()))

    def count_cursors(self, table_id: str) -> int:
        return len(self._cursors_of.get(table_id, ()))

    def tagged(self, table_id: str) -> set[int]:
        """Versions that tags hold."""
        return set(self._tags_of.get(table_id, {}).values())

    def held_from(self, table_id: str, now_us: int, epoch: str) -> int | None:
        """The first version that a cursor needs; it needs all later ones too."""
        cursors = self._cursors_of.get(table_id)
        if not cursors:
            return None
        needed = [cursor.version for cursor in cursors.values() if cursor.epoch == epoch and cursor.left_ms(now_us)]
        return min(needed, default=None)

    def forget(self, table_id: str) -> None:
        """Removes a table that is permanently gone."""
        for name in list(self._tags_of.pop(table_id, ())):
            del self.tags[table_id, name]
        for name in list(self._cursors_of.pop(table_id, ())):
            del self.cursors[table_id, name]
