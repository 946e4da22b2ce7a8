"""Writers of a release, which write until their input ends, and print what was acknowledged.

    python writers.py FOLDER_OF_THE_RELEASE ADDRESS TABLE THREADS

Each thread takes turns: an append in one call, a transaction in three calls, a transaction whose files go with the
commit. It renews, reads a plan and looks at its own outcome in between. Any error ends the process.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import metaservice
from metaservice.client import MetaClient, uuid7
from protos.laketx.v1 import common_pb2
from protos.laketx.v1 import transaction_pb2 as wire

INSERT = common_pb2.OPERATION_INSERT


class Writer:
    """One thread, or the process's reader."""

    def __init__(self, client: MetaClient, table_id: str, over: threading.Event) -> None:
        self.client, self.table_id, self.over = client, table_id, over
        self.acknowledged: dict[str, int] = {}
        self.error = ""

    def run(self) -> None:
        try:
            turns = (self.append, self.three_calls, self.one_frame, self.look)
            turn = 0
            while not self.over.is_set():
                turns[turn % len(turns)]()
                turn += 1
        except Exception as error:  # noqa: BLE001 - that there is none is what is tested
            self.error = repr(error)

    def note(self, txn_id: str, committed: Any) -> None:
        self.acknowledged[txn_id] = committed.tables[0].version

    def file(self, txn_id: str) -> common_pb2.DataFile:
        return common_pb2.DataFile(path=f"{txn_id}/f", rows=10, bytes=1000)

    def append(self) -> None:
        txn_id = uuid7()
        self.note(txn_id, self.client.append(self.table_id, [self.file(txn_id)], txn_id=txn_id))

    def three_calls(self) -> None:
        txn = self.client.begin([wire.TableIntent(table_id=self.table_id, operation=INSERT)])
        txn.register(self.table_id, [self.file(txn.txn_id)])
        self.client.renew(txn.txn_id)
        self.note(txn.txn_id, txn.commit([common_pb2.Change(table_id=self.table_id)]))

    def one_frame(self) -> None:
        txn = self.client.begin([wire.TableIntent(table_id=self.table_id, operation=INSERT)], at_once=False)
        change = common_pb2.Change(table_id=self.table_id, files=[self.file(txn.txn_id)])
        self.note(txn.txn_id, txn.commit([change]))

    def look(self) -> None:
        for txn_id in list(self.acknowledged)[-1:]:
            assert self.client.get_transaction(txn_id).state == wire.TRANSACTION_STATE_COMMITTED
        head = self.client.resolve_version(self.table_id).version
        planned = self.client.plan_scan(self.table_id, version=head)
        assert sum(len(part.entries) for part in planned) == head, "a version holds a file of each commit"

    def watch(self) -> None:
        """Every commit comes once, in order."""
        seen = 0
        try:
            for version in self.client.watch(self.table_id, after_version=0):
                seen += 1
                assert version.version == seen, f"{version.version} came after {seen - 1}"
                self.acknowledged["watched"] = seen
        except Exception as error:  # noqa: BLE001 - likewise
            if not self.over.is_set():
                self.error = repr(error)


def main() -> None:
    folder, address, table, threads = sys.argv[1:]
    assert Path(metaservice.__file__).is_relative_to(folder), f"{metaservice.__file__} is not of {folder}"
    over = threading.Event()
    with MetaClient(address, principal="writer", retry_budget_s=60.0) as client:
        table_id = client.get_table(table).table_id
        writers = [Writer(client, table_id, over) for _ in range(int(threads))]
        watcher = Writer(client, table_id, over)
        running = [threading.Thread(target=one.run) for one in writers]
        for one in running:
            one.start()
        threading.Thread(target=watcher.watch, daemon=True).start()
        print("writing", flush=True)
        sys.stdin.read()
        over.set()
        for one in running:
            one.join()
    errors = [one.error for one in (*writers, watcher) if one.error]
    acknowledged = {txn_id: version for one in writers for txn_id, version in one.acknowledged.items()}
    print(json.dumps({"errors": errors, "acknowledged": acknowledged, **watcher.acknowledged}))


if __name__ == "__main__":
    main()
