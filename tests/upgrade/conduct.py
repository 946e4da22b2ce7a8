"""Single calls of a release's raw client, for what the story can't say: they meet a service that is newer or older.

python conduct.py FOLDER_OF_THE_RELEASE ADDRESS CALL TABLE     prints "ok" and what came, or the refusal
"""

import json
import sys
from pathlib import Path
from typing import Any

import metaservice
from metaservice.client import MetaClient, MetaServiceError, uuid7
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire

INSERT, DELETE = common_pb2.OPERATION_INSERT, common_pb2.OPERATION_DELETE


def scan(client: MetaClient, table_id: str) -> Any:
    return [entry.file.path for part in client.plan_scan(table_id) for entry in part.entries]


def files(client: MetaClient, table_id: str) -> Any:
    return [entry.file.path for entry in client.list_files(table_id)]


def changes(client: MetaClient, table_id: str) -> Any:
    return [entry.file.path for part in client.plan_changes(table_id, 0) for entry in part.added]


def swapped(client: MetaClient, table_id: str) -> Any:
    """How many files of version 1 have rows with 150 in the second column, which versions above 1 call `a`."""
    name = "a" if not hasattr(client, "offers") else "b"  # earlier releases name the newest columns
    condition = common_pb2.Predicate(
        compare=common_pb2.Compare(
            column=name, comparison=common_pb2.COMPARISON_EQUAL, value=common_pb2.Value(integer=150)
        )
    )
    return sum(len(part.entries) for part in client.plan_scan(table_id, version=1, predicate=condition))


def append(client: MetaClient, table_id: str) -> Any:
    txn_id = uuid7()
    file = common_pb2.DataFile(path=f"{txn_id}/f", rows=1, bytes=1)
    return client.append(table_id, [file], txn_id=txn_id).tables[0].version


def begin_insert(client: MetaClient, table_id: str) -> Any:
    with client.begin([wire.TableIntent(table_id=table_id, operation=INSERT)]):
        return "begun"


def begin_delete(client: MetaClient, table_id: str) -> Any:
    with client.begin([wire.TableIntent(table_id=table_id, operation=DELETE)]):
        return "begun"


def claim(client: MetaClient, table_id: str) -> Any:
    found = client.claim_task(table_ids=[table_id])
    return None if found is None else len(found[0].groups[0].inputs)


def create_a_view(client: MetaClient, table_id: str) -> Any:
    column = catalog_pb2.Column(name="id", type="bigint")
    return client.create_table(catalog_pb2.Table(name="a_view", columns=[column])).name


CALLS = (scan, files, changes, swapped, append, begin_insert, begin_delete, claim, create_a_view)


def main() -> None:
    folder, address, call, table = sys.argv[1:]
    assert Path(metaservice.__file__).is_relative_to(folder), f"{metaservice.__file__} is not of {folder}"
    (wanted,) = (one for one in CALLS if one.__name__ == call)
    with MetaClient(address, principal="old") as client:
        try:
            answer: list[Any] = ["ok", wanted(client, client.get_table(table).table_id)]
        except MetaServiceError as refused:
            answer = [refused.reason, {**refused.facts, "said": str(refused)}]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
