"""Tags and cursors: named versions, and named positions of incremental readers. Runs on the decider's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from metaservice.core import limits
from metaservice.core.commit.transaction import HISTORY_CHANGED
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.retention.marks import Cursor, CursorMove, Tag
from metaservice.core.table.model import Principal
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.retention import encode_cursor, encode_tag

Mark = TypeVar("Mark", Tag, Cursor)


@dataclass(frozen=True, slots=True)
class MarkRequest:
    """A request for a tag or a cursor; a version that is None is the head."""

    table_id: str
    name: str
    version: int | None
    principal: Principal
    comment: str = ""
    keep_ms: int = 0


class Marks:
    """The use cases of tags and cursors."""

    def __init__(self, decider: Decider, clocks: Clocks, check_room: Callable[[], None]) -> None:
        self._decider = decider
        self._clocks = clocks
        self._check_room = check_room

    @property
    def _state(self) -> State:
        return self._decider.state

    # -- tags ----------------------------------------------------------------------------------------------------------

    def create_tag(self, request: MarkRequest, *, move: bool) -> Tag:
        """Creates a tag; an existing tag of the same version is returned unchanged."""
        state = self._state
        state.get_table(request.table_id)
        known = state.marks.tags.get((request.table_id, request.name))
        version = self._version(request)
        if known is not None and known.version == version:
            return known
        if known is not None and not move:
            facts = {"table_id": request.table_id, "name": request.name, "version": known.version}
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TAG_EXISTS", **facts)
        self._check_room()
        if known is None:
            book = state.marks
            _check_count("TOO_MANY_TAGS", book.count_tags(request.table_id), limits.TAGS_PER_TABLE_MAX)
            _check_count("TOO_MANY_TAGS", len(book.tags), limits.TAGS_MAX)
        now_us = max(self._clocks.now_us(), 0)
        tag = Tag(request.table_id, request.name, version, request.comment, request.principal, now_us)
        state.batch.put(keys.tag_key(keys.uuid_bytes(tag.table_id), tag.name), encode_tag(tag))
        state.marks.put_tag(tag)
        return tag

    def drop_tag(self, table_id: str, name: str) -> bool:
        """Drops a tag; returns whether there was one."""
        if (table_id, name) not in self._state.marks.tags:
            return False
        self._state.marks.drop_tag(table_id, name)
        self._state.batch.delete(keys.tag_key(keys.uuid_bytes(table_id), name))
        return True

    def tagged_version(self, table_id: str, name: str) -> int:
        tag = self._state.marks.tags.get((table_id, name))
        if tag is None:
            raise MetaError(ErrorKind.NOT_FOUND, "TAG_UNKNOWN", table_id=table_id, name=name)
        return tag.version

    def list_tags(self, table_id: str, after: tuple[str, str], count: int) -> list[Tag]:
        return _page(self._state.marks.tags, table_id, after, count)

    # -- cursors -------------------------------------------------------------------------------------------------------

    def create_cursor(self, request: MarkRequest, *, must_exist: bool) -> tuple[Cursor, bool]:
        """Returns the cursor, and whether it is new."""
        state = self._state
        state.get_table(request.table_id)
        known = state.marks.cursors.get((request.table_id, request.name))
        if known is not None:
            return check_epoch(state, known), False
        if must_exist:
            raise _unknown(request.table_id, request.name)
        version = self._version(request, tags_count=False)
        self._check_room()
        _check_count("TOO_MANY_CURSORS", state.marks.count_cursors(request.table_id), limits.CURSORS_PER_TABLE_MAX)
        _check_count("TOO_MANY_CURSORS", len(state.marks.cursors), limits.CURSORS_MAX)
        now_us, keep_ms = max(self._clocks.now_us(), 0), request.keep_ms or limits.CURSOR_KEEP_MS
        place = (request.table_id, request.name, version, keep_ms)
        cursor = Cursor(*place, request.principal, now_us, now_us, epoch=state.history.epoch)
        _put(state, cursor)
        return cursor, True

    def advance(self, move: CursorMove) -> Cursor:
        """Advances a cursor; a repeat of the last step returns its first answer."""
        state = self._state
        known = state.marks.cursors.get((move.table_id, move.name))
        if known is not None and move.request_id and known.request_id == move.request_id:
            return known
        check_moves(state, [move])
        return apply_moves(state, [move], self._clocks.now_us())[0]

    def drop_cursor(self, table_id: str, name: str) -> bool:
        """Drops a cursor; returns whether there was one."""
        if (table_id, name) not in self._state.marks.cursors:
            return False
        self._state.marks.drop_cursor(table_id, name)
        self._state.batch.delete(keys.cursor_key(keys.uuid_bytes(table_id), name))
        return True

    def list_cursors(self, table_id: str, after: tuple[str, str], count: int) -> list[tuple[Cursor, int]]:
        """Cursors, each with its remaining time; a cursor of another history keeps nothing."""
        found = _page(self._state.marks.cursors, table_id, after, count)
        return [(cursor, self.left_ms(cursor)) for cursor in found]

    def left_ms(self, cursor: Cursor) -> int:
        is_ours = cursor.epoch == self._state.history.epoch
        return cursor.left_ms(self._clocks.now_us()) if is_ours else 0

    def _version(self, request: MarkRequest, *, tags_count: bool = True) -> int:
        """A version at or above the horizon, or one that a tag holds."""
        table = self._state.get_table(request.table_id)
        version = table.head if request.version is None else request.version
        if version > table.head:
            raise invalid("VERSION_IN_FUTURE", table_id=request.table_id, version=version, head=table.head)
        tagged = self._state.marks.tagged(request.table_id) if tags_count else ()
        if version < table.oldest and version not in tagged:
            oldest, table_id = table.oldest, request.table_id
            raise MetaError(ErrorKind.GONE, "VERSION_RETIRED", table_id=table_id, version=version, oldest=oldest)
        return version


def check_moves(state: State, moves: Iterable[CursorMove]) -> None:
    """Refuses moves of cursors that are elsewhere, or moves to an impossible version; changes nothing."""
    seen: set[tuple[str, str]] = set()
    for move in moves:
        table = state.get_table(move.table_id)
        cursor = state.marks.cursors.get((move.table_id, move.name))
        if cursor is None:
            raise _unknown(move.table_id, move.name)
        check_epoch(state, cursor)
        if (move.table_id, move.name) in seen:
            raise invalid("CURSOR_TWICE", table_id=move.table_id, name=move.name)
        seen.add((move.table_id, move.name))
        if cursor.version != move.expected:
            facts = {"name": move.name, "expected": move.expected, "version": cursor.version}
            raise MetaError(ErrorKind.STALE, "CURSOR_MOVED", **facts)
        if move.version < move.expected:
            raise invalid(
                "RANGE_INVALID",
                "a cursor can't move back: drop it and create it at a version",
                after=move.expected,
                to=move.version,
            )
        if move.version > table.head:
            raise invalid("VERSION_IN_FUTURE", table_id=move.table_id, version=move.version, head=table.head)
        if move.version < table.oldest:
            oldest, table_id = table.oldest, move.table_id
            raise MetaError(ErrorKind.GONE, "VERSION_RETIRED", table_id=table_id, version=move.version, oldest=oldest)


def apply_moves(state: State, moves: Iterable[CursorMove], now_us: int) -> list[Cursor]:
    """Applies moves that were checked."""
    moved = []
    for move in moves:
        known = state.marks.cursors[move.table_id, move.name]
        used_us = max(now_us, known.used_us)
        cursor = replace(known, version=move.version, used_us=used_us, request_id=move.request_id)
        _put(state, cursor)
        moved.append(cursor)
    return moved


def check_epoch(state: State, cursor: Cursor) -> Cursor:
    if cursor.epoch != state.history.epoch:
        facts = {"table_id": cursor.table_id, "name": cursor.name, "epoch": state.history.epoch}
        raise MetaError(
            ErrorKind.STALE,
            HISTORY_CHANGED,
            "the cursor belongs to another history: drop it and create a new one",
            **facts,
        )
    return cursor


def _put(state: State, cursor: Cursor) -> None:
    state.batch.put(keys.cursor_key(keys.uuid_bytes(cursor.table_id), cursor.name), encode_cursor(cursor))
    state.marks.put_cursor(cursor)


def _unknown(table_id: str, name: str) -> MetaError:
    return MetaError(ErrorKind.NOT_FOUND, "CURSOR_UNKNOWN", table_id=table_id, name=name)


def _check_count(reason: str, there: int, most: int) -> None:
    if there >= most:
        raise MetaError(ErrorKind.EXHAUSTED, reason, most=most)


def _page(marks: Mapping[tuple[str, str], Mark], table_id: str, after: tuple[str, str], count: int) -> list[Mark]:
    places: Sequence[tuple[str, str]] = sorted(
        place for place in marks if place > after and (not table_id or place[0] == table_id)
    )
    return [marks[place] for place in places[:count]]
