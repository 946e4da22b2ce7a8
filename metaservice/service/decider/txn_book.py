"""Transactions of the state: the open ones with the entries that they staged, and the newest that ended.

It belongs to the decider's thread; any thread can read which are open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Sequence

from metaservice.core.commit.transaction import Txn, TxnState, TxnTable
from metaservice.core.table.model import Entry
from metaservice.service.decider.snapshots import rows_of
from metaservice.service.decider.taskbook import TaskBook
from metaservice.service.decider.usage import Usage, staged_bytes
from metaservice.store import keys
from metaservice.store.port import Batch, Store, StoreCursor, prefix_end
from metaservice.store.records.tables import decode_chunk, encode_entry, join_chunk
from metaservice.store.records.transactions import decode_txn, encode_txn


class TxnBook:
    """Open and ended transactions by id, and the leases of the open ones."""

    def __init__(self, store: Store, batch: Batch, usage: Usage, tasks: TaskBook) -> None:
        self._store = store
        self._batch = batch
        self._usage = usage
        self._tasks = tasks
        self.open: dict[str, Txn] = {}
        # Open, but not to the store: one that ends before the next write costs a single record.
        self.unwritten: dict[str, Txn] = {}
        self.ended: OrderedDict[str, Txn] = OrderedDict()
        self.leases: OrderedDict[str, int] = OrderedDict()
        self.ended_now: list[Txn] = []

    def load(self, cursor: StoreCursor) -> None:
        """Loads the open transactions, as a start finds them in the store."""
        for key, _ in cursor.scan(keys.OPEN, prefix_end(keys.OPEN)):
            raw = cursor.get(keys.txn_key(key[len(keys.OPEN) :]))
            if raw is not None:
                txn = decode_txn(raw)
                self.load_staged(cursor, txn)
                txn.files = sum(len(table.staged) for table in txn.tables.values())
                self.open[txn.txn_id] = txn
                self._usage.begin(txn.principal.name)
                staged = [entry for txn_table in txn.tables.values() for entry in txn_table.staged.values()]
                self._count_staged(txn, staged, staged_bytes(staged))

    def load_staged(self, cursor: StoreCursor, txn: Txn) -> None:
        """Loads the staged entries of a transaction, open or ended."""
        for table in txn.tables.values():
            prefix = keys.staged_prefix(keys.uuid_bytes(txn.txn_id), keys.uuid_bytes(table.table_id))
            for _, raw in cursor.scan(prefix, prefix_end(prefix)):
                table.chunks += 1
                for entry in decode_chunk(raw):
                    table.staged[entry.path] = entry
            table.staged_rows = rows_of(table.staged.values())

    def find(self, txn_id: str) -> Txn | None:
        txn = self.open.get(txn_id) or self.ended.get(txn_id)
        if txn is not None:
            return txn
        raw = self._store.get(keys.txn_key(keys.uuid_bytes(txn_id)))
        return decode_txn(raw) if raw is not None else None

    def write_open(self) -> None:
        """Puts the transactions that began since the last write into the batch."""
        for txn in self.unwritten.values():
            raw = keys.uuid_bytes(txn.txn_id)
            self._batch.put(keys.txn_key(raw), encode_txn(txn))
            self._batch.put(keys.open_key(raw), b"")
            self._put_staged(txn)
        self.unwritten.clear()

    def put(self, txn: Txn) -> None:
        """Stores a transaction that begins or ends."""
        if txn.state is TxnState.OPEN and txn.txn_id not in self.open:
            self.open[txn.txn_id] = self.unwritten[txn.txn_id] = txn
            self._usage.begin(txn.principal.name)
            return
        if txn.state is TxnState.OPEN and txn.txn_id in self.unwritten:
            return
        raw = keys.uuid_bytes(txn.txn_id)
        self._batch.put(keys.txn_key(raw), encode_txn(txn))
        if txn.state is TxnState.OPEN:
            return
        was_open = self.open.pop(txn.txn_id, None) is not None
        if was_open:
            self.leases.pop(txn.txn_id, None)
            if self.unwritten.pop(txn.txn_id, None) is not None:
                self._put_staged(txn)
            else:
                self._batch.delete(keys.open_key(raw))
        if txn.staged_files:
            self.forget_staged(txn)
        if was_open:
            self._usage.end(txn.principal.name)
        self.ended[txn.txn_id] = txn
        self.ended_now.append(txn)
        self._tasks.transaction_ended(txn, self._batch)

    def stage(self, txn: Txn, txn_table: TxnTable, entries: Sequence[Entry], size: int | None = None) -> None:
        """Stages the entries registered for a table; counts their memory if it is known."""
        if entries and txn.txn_id not in self.unwritten:
            self._put_chunk(txn, txn_table, entries)
        for entry in entries:
            txn_table.staged[entry.path] = entry
        txn_table.staged_rows += rows_of(entries)
        txn.files += len(entries)
        self._count_staged(txn, entries, staged_bytes(entries) if size is None else size)

    def _count_staged(self, txn: Txn, entries: Sequence[Entry], size: int) -> None:
        txn.staged_files += len(entries)
        txn.staged_bytes += size
        self._usage.stage(txn.principal.name, len(entries), size)

    def forget_staged(self, txn: Txn) -> None:
        """Removes staged entries from memory; the store keeps them."""
        if txn.staged_files:
            self._usage.stage(txn.principal.name, -txn.staged_files, -txn.staged_bytes)
            txn.staged_files = txn.staged_bytes = 0
        for txn_table in txn.tables.values():
            if txn_table.staged:
                txn_table.staged, txn_table.staged_rows, txn_table.chunks = {}, 0, 0

    def drop_staged(self, txn: Txn, committed: Container[str] = ()) -> None:
        """Forgets what is staged; the rows of inlined files stay in the tables that the transaction changed."""
        for txn_table in txn.tables.values():
            if txn_table.table_id not in committed:
                for entry in txn_table.staged.values():
                    if entry.inlined and not entry.content:
                        self._batch.delete(keys.inlined_key(keys.uuid_bytes(txn_table.table_id), entry.path))
            for chunk in range(txn_table.chunks):
                self._batch.delete(
                    keys.staged_key(keys.uuid_bytes(txn.txn_id), keys.uuid_bytes(txn_table.table_id), chunk)
                )
            txn_table.chunks = 0
        if txn.staged_files:
            self.forget_staged(txn)

    def _put_staged(self, txn: Txn) -> None:
        for txn_table in txn.tables.values():
            if txn_table.staged:
                self._put_chunk(txn, txn_table, list(txn_table.staged.values()))

    def _put_chunk(self, txn: Txn, txn_table: TxnTable, entries: Sequence[Entry]) -> None:
        key = keys.staged_key(keys.uuid_bytes(txn.txn_id), keys.uuid_bytes(txn_table.table_id), txn_table.chunks)
        self._batch.put(key, join_chunk(encode_entry(entry) for entry in entries))
        txn_table.chunks += 1
        for entry in entries:
            if entry.content:
                keep_content(self._batch, keys.uuid_bytes(txn_table.table_id), entry)


def keep_content(batch: Batch, raw_id: bytes, entry: Entry) -> None:
    """Stores the rows of an inlined file."""
    batch.put(keys.inlined_key(raw_id, entry.path), entry.content)
    entry.content = b""
