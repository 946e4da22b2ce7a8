"""The ids of columns of a family: a table with its forks, and theirs. No two of them give one id to two columns.

So a merge can tell columns apart by their ids, and a file that was written to one of them is read rightly in another.
A table without forks counts in its own definition; a family has a record, from the first column that it gets as one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from metaservice.core.table.meta import Alteration, TableMeta
from metaservice.service.decider.snapshots import TableState
from metaservice.store import keys
from metaservice.store.port import Batch, Readable, prefix_end
from metaservice.store.records.branches import Fork
from metaservice.store.records.tables import decode_table


class ColumnIds:
    """The highest id that a family has given. Belongs to the decider's thread, but for look-ups."""

    def __init__(
        self,
        records: Readable,
        forks: Mapping[bytes, Fork],
        tables: Mapping[str, TableState],
        branches: Container[str],
    ) -> None:
        self._records = records
        self._forks = forks
        self._tables = tables
        self._branches = branches
        self._roots: set[bytes] = set()
        self._last: dict[bytes, int] = {}

    def load(self) -> None:
        """After the forks."""
        self._roots.update(fork.root for fork in self._forks.values())
        for key, raw in self._records.cursor().scan(keys.COLUMN_IDS, prefix_end(keys.COLUMN_IDS)):
            self._last[key[len(keys.COLUMN_IDS) :]] = keys.decode_version(raw)

    def note_fork(self, fork: Fork) -> None:
        self._roots.add(fork.root)

    def last(self, raw_id: bytes, meta: TableMeta) -> int:
        """The highest id that a table's family has given. Any thread."""
        return max(meta.last_column_id, self._last.get(self._root_of(raw_id), 0))

    def to_alter(self, table: TableState, alteration: Alteration | None) -> TableMeta:
        """The definition that an ALTER changes: new columns get ids that no other table of the family has given."""
        return table.meta if alteration is None or not alteration.schema_changes else self.to_replace(table)

    def to_replace(self, table: TableState) -> TableMeta:
        """The same of the definition that a REPLACE changes."""
        meta, root = table.meta, self._root_of(table.raw_id)
        if root not in self._roots:
            return meta
        return replace(meta, last_column_id=max(meta.last_column_id, self._of_family(root)))

    def reserve(self, table: TableState, last: int, batch: Batch) -> None:
        """Gives the ids up to one: a statement writes files with them, and commits later."""
        root = self._root_of(table.raw_id)
        if root in self._roots and last > self._of_family(root):
            self._last[root] = last
            batch.put(keys.column_id_key(root), keys.encode_version(last))

    def note(self, table: TableState, meta: TableMeta, batch: Batch) -> None:
        """Notes the ids of a table's next definition."""
        root = self._root_of(table.raw_id)
        if meta.last_column_id == table.meta.last_column_id or root not in self._roots:
            return
        self._last[root] = max(meta.last_column_id, self._of_family(root))
        batch.put(keys.column_id_key(root), keys.encode_version(self._last[root]))

    def _root_of(self, raw_id: bytes) -> bytes:
        fork = self._forks.get(raw_id)
        return raw_id if fork is None else fork.root

    def _of_family(self, root: bytes) -> int:
        last = self._last.get(root)
        if last is None:
            last = self._last[root] = max((meta.last_column_id for meta in self._definitions(root)), default=0)
        return last

    def _definitions(self, root: bytes) -> Iterator[TableMeta]:
        """Of the tables of a family that are there, or can be brought back."""
        own = [fork.raw_id for fork in self._forks.values() if fork.root == root and self._may_live(fork)]
        for raw_id in (root, *own):
            table = self._tables.get(keys.uuid_text(raw_id))
            if table is not None:
                yield table.meta
                continue
            start = keys.table_prefix(raw_id)
            for _, raw in self._records.cursor().scan_back(start, prefix_end(start)):
                yield decode_table(raw)
                break

    def _may_live(self, fork: Fork) -> bool:
        return not (fork.is_gone or fork.is_merged) and (not fork.branch or fork.branch in self._branches)
