"""A process that opens a folder and appends to its table until its stdin is closed; says what was acknowledged."""

import json
import sys
import threading

from metaservice.client import AlreadyExistsError, uuid7
from metaservice.client.folder_service import open_folder
from protos.laketx.v1 import catalog_pb2

IDLE_EXIT_S = 2.0


def main(folder: str) -> None:
    done = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        done.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    acked: dict[str, int] = {}
    while not done.is_set() or not acked:
        with open_folder(folder, idle_exit_s=IDLE_EXIT_S) as client:
            table = catalog_pb2.Table(name="t", columns=[catalog_pb2.Column(name="id", type="bigint")])
            try:
                table_id = client.create_table(table).table_id
            except AlreadyExistsError:
                table_id = client.get_table("t").table_id
            for _ in range(20):
                txn_id = uuid7()
                acked[txn_id] = client.append(table_id, [], txn_id=txn_id).tables[0].version
    json.dump(acked, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
