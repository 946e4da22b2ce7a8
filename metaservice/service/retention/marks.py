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
from metaservice.service.decider.branch_marks import (
    cursors_of,
    find_cursor,
    find_tag,
    fork_on_branch,
    put_cursor,
    put_tag,
    tagged,
    tags_of,
)
from metaservice.service.decider.clocks import Clocks
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.state import State
from metaservice.store import keys

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
        present = find_tag(state, request.table_id, request.name)
        version = self._version(request)
        if present is not None and present.version == version:
            return present
        if present is not None and not move:
            facts = {"table_id": request.table_id, "name": request.name, "version": present.version}
            raise MetaError(ErrorKind.ALREADY_EXISTS, "TAG_EXISTS", **facts)
        self._check_room()
        if (request.table_id, request.name) not in state.marks.tags:
            book = state.marks
            _check_count("TOO_MANY_TAGS", book.count_tags(request.table_id), limits.TAGS_PER_TABLE_MAX)
            _check_count("TOO_MANY_TAGS", len(book.tags), limits.TAGS_MAX)
        now_us = max(self._clocks.now_us(), 0)
        tag = Tag(request.table_id, request.name, version, request.comment, request.principal, now_us)
        put_tag(state, tag)
        return tag

    def drop_tag(self, table_id: str, name: str) -> bool:
        """Drops a tag; returns whether there was one."""
        if (table_id, name) not in self._state.marks.tags:
            return self._check_here(table_id, name, find_tag(self._state, table_id, name))
        self._state.marks.drop_tag(table_id, name)
        self._state.batch.delete(keys.tag_key(keys.uuid_bytes(table_id), name))
        return True

    def tagged_version(self, table_id: str, name: str) -> int:
        tag = find_tag(self._state, table_id, name)
        if tag is None:
            raise MetaError(ErrorKind.NOT_FOUND, "TAG_UNKNOWN", table_id=table_id, name=name)
        return tag.version

    def list_tags(self, table_id: str, after: tuple[str, str], count: int) -> list[Tag]:
        if fork_on_branch(self._state, table_id) is None:
            return _page(self._state.marks.tags, table_id, after, count)
        shown = tags_of(self._state, table_id).values()
        return _page({(table_id, tag.name): tag for tag in shown}, table_id, after, count)

    # -- cursors -------------------------------------------------------------------------------------------------------

    def create_cursor(self, request: MarkRequest, *, must_exist: bool) -> tuple[Cursor, bool]:
        """Returns the cursor, and whether it is new."""
        state = self._state
        state.get_table(request.table_id)
        present = find_cursor(state, request.table_id, request.name)
        if present is not None:
            check_epoch(state, present)
            self._take_over(present)
            return present, False
        if must_exist:
            raise _unknown(request.table_id, request.name)
        version = self._version(request, tags_count=False)
        self._check_room()
        _check_count("TOO_MANY_CURSORS", state.marks.count_cursors(request.table_id), limits.CURSORS_PER_TABLE_MAX)
        _check_count("TOO_MANY_CURSORS", len(state.marks.cursors), limits.CURSORS_MAX)
        now_us, keep_ms = max(self._clocks.now_us(), 0), request.keep_ms or limits.CURSOR_KEEP_MS
        place = (request.table_id, request.name, version, keep_ms)
        cursor = Cursor(*place, request.principal, now_us, now_us, epoch=state.history.epoch)
        put_cursor(state, cursor)
        return cursor, True

    def advance(self, move: CursorMove) -> Cursor:
        """Advances a cursor; a repeat of the last step returns its first answer."""
        state = self._state
        present = find_cursor(state, move.table_id, move.name)
        if present is not None and move.request_id and present.request_id == move.request_id:
            return present
        if present is not None:
            self._take_over(present)
        check_moves(state, [move])
        return apply_moves(state, [move], self._clocks.now_us())[0]

    def drop_cursor(self, table_id: str, name: str) -> bool:
        """Drops a cursor; returns whether there was one."""
        if (table_id, name) not in self._state.marks.cursors:
            return self._check_here(table_id, name, find_cursor(self._state, table_id, name))
        self._state.marks.drop_cursor(table_id, name)
        self._state.batch.delete(keys.cursor_key(keys.uuid_bytes(table_id), name))
        return True

    def list_cursors(self, table_id: str, after: tuple[str, str], count: int) -> list[tuple[Cursor, int]]:
        """Lists cursors, each with its remaining time; a cursor of another history keeps nothing."""
        if fork_on_branch(self._state, table_id) is None:
            page = _page(self._state.marks.cursors, table_id, after, count)
        else:
            shown = cursors_of(self._state, table_id).values()
            page = _page({(table_id, cursor.name): cursor for cursor in shown}, table_id, after, count)
        return [(cursor, self.left_ms(cursor)) for cursor in page]

    def _take_over(self, cursor: Cursor) -> None:
        """Writes a cursor of the parent that is used on a branch for the first time."""
        if (cursor.table_id, cursor.name) not in self._state.marks.cursors:
            self._check_room()
            put_cursor(self._state, cursor)

    def _check_here(self, table_id: str, name: str, shown: Tag | Cursor | None) -> bool:
        """Refuses to drop what the parent's table has: the branch only shows it."""
        if shown is not None:
            raise MetaError(ErrorKind.BLOCKED, "MARK_OF_PARENT", table_id=table_id, name=name)
        return False

    def left_ms(self, cursor: Cursor) -> int:
        is_ours = cursor.epoch == self._state.history.epoch
        return cursor.left_ms(self._clocks.now_us()) if is_ours else 0

    def _version(self, request: MarkRequest, *, tags_count: bool = True) -> int:
        """A version at or above the horizon, or one that a tag holds."""
        table = self._state.get_table(request.table_id)
        version = table.head if request.version is None else request.version
        if version > table.head:
            raise invalid("VERSION_IN_FUTURE", table_id=request.table_id, version=version, head=table.head)
        held = tagged(self._state, request.table_id) if tags_count else ()
        if version < table.oldest and version not in held:
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
    """Apply moves that were checked."""
    moved = []
    for move in moves:
        before = state.marks.cursors[move.table_id, move.name]
        used_us = max(now_us, before.used_us)
        cursor = replace(before, version=move.version, used_us=used_us, request_id=move.request_id)
        put_cursor(state, cursor)
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


def _unknown(table_id: str, name: str) -> MetaError:
    return MetaError(ErrorKind.NOT_FOUND, "CURSOR_UNKNOWN", table_id=table_id, name=name)


def _check_count(reason: str, count: int, most: int) -> None:
    if count >= most:
        raise MetaError(ErrorKind.BLOCKED, reason, most=most)


def _page(marks: Mapping[tuple[str, str], Mark], table_id: str, after: tuple[str, str], count: int) -> list[Mark]:
    places: Sequence[tuple[str, str]] = sorted(
        place for place in marks if place > after and (not table_id or place[0] == table_id)
    )
    return [marks[place] for place in places[:count]]
