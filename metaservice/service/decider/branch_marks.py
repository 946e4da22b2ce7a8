"""The tags and cursors that tables show: their own, and on a branch those of the parent's table."""

from __future__ import annotations

from metaservice.core.retention.branch_marks import cursor_on, tag_on
from metaservice.core.retention.marks import Cursor, Tag
from metaservice.service.decider.state import State
from metaservice.store import keys
from metaservice.store.records.branches import Fork
from metaservice.store.records.retention import encode_cursor, encode_tag


def find_tag(state: State, table_id: str, name: str) -> Tag | None:
    """A tag of a table, or the one that its fork shows of its base."""
    own = state.marks.tags.get((table_id, name))
    fork = None if own is not None else fork_on_branch(state, table_id)
    above = None if fork is None else find_tag(state, keys.uuid_text(fork.base), name)
    return own if fork is None or above is None else tag_on(table_id, fork.version, above)


def find_cursor(state: State, table_id: str, name: str) -> Cursor | None:
    """A cursor of a table, or the one that its fork finds in its base."""
    own = state.marks.cursors.get((table_id, name))
    fork = None if own is not None else fork_on_branch(state, table_id)
    above = None if fork is None else find_cursor(state, keys.uuid_text(fork.base), name)
    if fork is None or above is None:
        return own
    return cursor_on(table_id, fork.version, above, _holder(state, fork, above.version))


def tags_of(state: State, table_id: str) -> dict[str, Tag]:
    """The tags of a table by name, those that its fork shows of its base among them."""
    fork = fork_on_branch(state, table_id)
    shown: dict[str, Tag] = {}
    if fork is not None:
        for name, tag in tags_of(state, keys.uuid_text(fork.base)).items():
            its_own = tag_on(table_id, fork.version, tag)
            if its_own is not None:
                shown[name] = its_own
    return shown | {name: state.marks.tags[table_id, name] for name in state.marks.names_of_tags(table_id)}


def cursors_of(state: State, table_id: str) -> dict[str, Cursor]:
    """The cursors of a table by name, those that its fork finds in its base among them."""
    fork = fork_on_branch(state, table_id)
    shown: dict[str, Cursor] = {}
    if fork is not None:
        for name, cursor in cursors_of(state, keys.uuid_text(fork.base)).items():
            shown[name] = cursor_on(table_id, fork.version, cursor, _holder(state, fork, cursor.version))
    return shown | {cursor.name: cursor for cursor in state.marks.own_cursors(table_id)}


def tagged(state: State, table_id: str) -> set[int]:
    """Versions that tags hold."""
    if fork_on_branch(state, table_id) is None:
        return state.marks.tagged(table_id)
    return {tag.version for tag in tags_of(state, table_id).values()}


def put_tag(state: State, tag: Tag) -> None:
    state.batch.put(keys.tag_key(keys.uuid_bytes(tag.table_id), tag.name), encode_tag(tag))
    state.marks.put_tag(tag)


def put_cursor(state: State, cursor: Cursor) -> None:
    state.batch.put(keys.cursor_key(keys.uuid_bytes(cursor.table_id), cursor.name), encode_cursor(cursor))
    state.marks.put_cursor(cursor)


def end_marks(state: State, table_id: str) -> None:
    """Ends the tags and cursors of a fork whose branch ends, or gets a new fork point."""
    tags, cursors = state.marks.names_of_tags(table_id), state.marks.own_cursors(table_id)
    if not tags and not cursors:
        return
    raw_id = keys.uuid_bytes(table_id)
    for name in tags:
        state.marks.drop_tag(table_id, name)
        state.batch.delete(keys.tag_key(raw_id, name))
    for cursor in cursors:
        state.marks.drop_cursor(table_id, cursor.name)
        state.batch.delete(keys.cursor_key(raw_id, cursor.name))


def fork_on_branch(state: State, table_id: str) -> Fork | None:
    """The fork that a table on a branch is; a clone is a table of its own."""
    fork = state.forks.get(keys.uuid_bytes(table_id)) if state.forks else None
    return fork if fork is not None and fork.branch else None


def _holder(state: State, fork: Fork, version: int) -> str:
    """The table with the log of a version that a fork shows of its base."""
    table_id = keys.uuid_text(fork.base)
    above = fork_on_branch(state, table_id)
    return table_id if above is None or version > above.version else _holder(state, above, version)
