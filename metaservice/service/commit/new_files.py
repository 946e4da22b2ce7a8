"""Checks and ids of files as they are registered: they must be new, have room if inlined, and get row ids."""

from __future__ import annotations

from collections.abc import Sequence

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.inlined import check_inlined
from metaservice.core.table.model import Entry
from metaservice.service.decider.snapshots import TableState, rows_of
from metaservice.service.decider.state import State
from metaservice.store import entry_keys, keys


def refuse_live(state: State, txn_id: str, table_id: str, entries: Sequence[Entry]) -> None:
    """Refuses a file that the table already has: the transaction repeats a forgotten one.

    A transaction whose id is younger than all commits found at the start can't have begun before the start. What began
    since is known, or lies below the watermark of forgotten ids. So most files are not looked up.
    """
    folder = f"{txn_id}/" if txn_id > state.fresh_id else "/"
    for entry in entries:
        if not entry.external and not entry.path.startswith(folder):
            break
    else:
        return
    seek = [entry for entry in entries if not entry.external and not entry.path.startswith(folder)]
    state.flush()
    raw = state.get_table(table_id).raw_id
    for entry in seek:
        if state.records.get(entry_keys.live_key(raw, entry.partition, entry.bucket, entry.path)) is not None:
            raise invalid(
                "PATH_LIVE", "the file is already in the table: its transaction committed earlier", path=entry.path
            )


def refuse_inlined(state: State, table_id: str, entries: Sequence[Entry], most_bytes: int) -> None:
    """Refuses inlined files while too many wait for a compaction; `most_bytes` bounds those of all tables."""
    if any(entry.inlined for entry in entries):
        state.need("inlined_rows")
        table = state.get_table(table_id)
        check_inlined(entries, table.meta.name, table.inlined, state.inlined_bytes, most_bytes)


def give_row_ids(state: State, table: TableState, entries: Sequence[Entry]) -> None:
    if table.meta.keyed:
        return
    source = _source_of_ids(state, table) if table.raw_id in state.forks else table
    rows = rows_of(entries)
    if source.next_row_id + rows > limits.ROW_ID_MAX:
        raise MetaError(ErrorKind.BLOCKED, "ROW_IDS_EXHAUSTED", next=source.next_row_id, wanted=rows)
    given = False
    for entry in entries:
        if entry.is_delete_set:
            continue
        entry.encoded = b""
        entry.first_row_id = source.next_row_id
        source.next_row_id += entry.rows
        last = source.next_row_id - 1
        if not entry.carries_row_ids and entry.rows:
            entry.row_id_min, entry.row_id_max = entry.first_row_id, last
        elif entry.row_id_min >= 0:  # a row without an id of its own has one of the range
            entry.row_id_min = min(entry.row_id_min, entry.first_row_id)
            entry.row_id_max = max(entry.row_id_max, last)
        given = True
    if given:
        table.next_row_id = source.next_row_id
        state.row_ids_given.add(table.meta.table_id)
        if source is not table:
            state.row_ids_given.add(source.meta.table_id)


def _source_of_ids(state: State, table: TableState) -> TableState:
    """The table whose counter gives ids: forks of one table have one, so that no two rows of them get the same."""
    root = state.tables.get(keys.uuid_text(state.forks[table.raw_id].root))
    if root is None:  # it was dropped
        return table
    root.next_row_id = max(root.next_row_id, table.next_row_id)
    return root
