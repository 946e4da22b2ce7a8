"""The delta profiles over gRPC and RocksDB: winners are judged as they were, also after a restart from the log."""

from pathlib import Path

import pytest
from pyroaring import BitMap64

from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.integration.service import Stubs, data_file, day, service

DELETE, INSERT, RESTORE = common_pb2.OPERATION_DELETE, common_pb2.OPERATION_INSERT, common_pb2.OPERATION_RESTORE
UPDATE = common_pb2.OPERATION_UPDATE
APPEND, DELETED_TWICE = common_pb2.CONFLICT_RULE_CONCURRENT_APPEND, common_pb2.CONFLICT_RULE_CONCURRENT_DELETE_DELETE
ALL = common_pb2.Read(predicate=common_pb2.Predicate(literal=True))


def delete(stubs: Stubs, table_id: str, txn_id: str, *touches: str) -> transaction_pb2.CommitTransactionResponse:
    hidden = common_pb2.DeleteSet(
        path=f"{txn_id}/gone", partition=day(), bitmap=BitMap64([1]).serialize(), touches=touches
    )
    return stubs.commit(txn_id, common_pb2.Change(table_id=table_id, delete_sets=[hidden]))


@pytest.mark.parametrize("profile", ["delta_serializable", "delta_write_serializable"])
def test_of_two_deletes_that_name_no_files_one_loses_also_after_a_restart(tmp_path: Path, profile: str) -> None:
    with service(tmp_path / "db") as (running, stubs):
        table_id = stubs.create("t", profile=profile)
        stubs.append(table_id)
        winner, unnamed, named = (stubs.begin(table_id, operation=DELETE) for _ in range(3))
        (live,) = stubs.list_files(table_id)
        assert delete(stubs, table_id, winner).WhichOneof("outcome") == "committed"
        assert delete(stubs, table_id, unnamed).conflict.rule == DELETED_TWICE
        running.kill()
        running.start()
        assert delete(stubs, table_id, named, live.file.path).conflict.rule == DELETED_TWICE


def test_an_insert_beside_a_restore_is_no_blind_append_also_after_a_restart(tmp_path: Path) -> None:
    with service(tmp_path / "db") as (running, stubs):
        one, two = (stubs.create(name, profile="delta_write_serializable") for name in ("one", "two"))
        stubs.append(one)
        mine = stubs.begin(one, operation=UPDATE)
        intents = [
            transaction_pb2.TableIntent(table_id=one, operation=INSERT),
            transaction_pb2.TableIntent(table_id=two, operation=RESTORE),
        ]
        both = stubs.begin_with(intents)
        restored = common_pb2.Change(table_id=two, scope=common_pb2.Scope(all=True))
        added = common_pb2.Change(table_id=one, files=[data_file(both)])
        assert stubs.commit(both, added, restored).WhichOneof("outcome") == "committed"
        running.kill()
        running.start()
        update = common_pb2.Change(table_id=one, files=[data_file(mine, "image")], reads=[ALL])
        assert stubs.commit(mine, update).conflict.rule == APPEND


@pytest.mark.parametrize("profile", ["delta_serializable", "delta_write_serializable", "row_level"])
def test_of_two_transactions_that_read_what_the_other_one_writes_one_loses(tmp_path: Path, profile: str) -> None:
    with service(tmp_path / "db") as (_, stubs):
        one, two = (stubs.create(name, profile=profile) for name in ("one", "two"))
        mine, theirs = stubs.begin(one, two), stubs.begin(one, two)
        reads_two = common_pb2.Change(table_id=two, reads=[ALL])
        won = stubs.commit(theirs, common_pb2.Change(table_id=one, files=[data_file(theirs)]), reads_two)
        assert won.WhichOneof("outcome") == "committed"
        reads_one = common_pb2.Change(table_id=one, reads=[ALL])
        lost = stubs.commit(mine, reads_one, common_pb2.Change(table_id=two, files=[data_file(mine)])).conflict
        assert (lost.rule, lost.table_id) == (APPEND, one)
