"""A table with `write.only_by_merge`: every way to commit to it, directly and by a merge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from laketx import Lake, connect
from laketx.table import Table
from metaservice.client import BlockedError
from metaservice.core.errors import MetaError
from metaservice.core.table.branches import check_direct
from metaservice.core.table.meta import Alteration, Profile, TableMeta
from metaservice.core.table.model import COMPACTIONS, Operation
from metaservice.core.table.partitions import Partitioning
from metaservice.core.table.schema import Column
from metaservice.core.table.schema_changes import Comment, Drop
from protos.laketx.v1 import common_pb2, transaction_pb2

ROWS = [{"id": 1, "v": 10}, {"id": 2, "v": 20}]
GUARD = {"write.only_by_merge": "true"}
WRITES: dict[str, Callable[[Table], Any]] = {
    "append": lambda table: table.append(ROWS),
    "insert": lambda table: table.insert(pa.Table.from_pylist(ROWS)),
    "update": lambda table: table.update({"v": "v + 1"}),
    "delete": lambda table: table.delete("id = 1"),
    "truncate": lambda table: table.truncate(),
    "overwrite": lambda table: table.overwrite(ROWS),
    "restore": lambda table: table.restore(version=0),
    "add a column": lambda table: table.add_columns("note string"),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


@pytest.fixture(scope="module")
def guarded(lake: Lake) -> Table:
    table = lake.create_table("shop.guarded", "id bigint, v bigint", profile="row_level")
    for row in ROWS:
        table.append([row])
    table.set_properties(**GUARD)
    return table


@pytest.mark.parametrize("write", WRITES)
def test_direct_commits_are_refused_and_those_of_a_branch_are_not(lake: Lake, guarded: Table, write: str) -> None:
    head = guarded.refresh().meta.head_version
    with pytest.raises(BlockedError, match="make a branch") as caught:
        WRITES[write](guarded)
    assert (caught.value.reason, caught.value.facts["table"]) == ("ONLY_BY_MERGE", "shop.guarded")
    assert guarded.refresh().meta.head_version == head
    branch = lake.branch(f"b-{write.replace(' ', '-')}")
    WRITES[write](branch.table("shop.guarded"))
    branch.drop()


def test_merges_compactions_and_other_alterations_pass(lake: Lake) -> None:
    table = lake.create_table("shop.passing", "id bigint, v bigint", properties={"write.inline.rows": "0"})
    for row in ROWS:
        table.append([row])
    table.set_properties(**GUARD)
    branch = lake.branch("passing")
    branch.table("shop.passing").append([{"id": 3, "v": 30}])
    branch.merge()
    assert table.refresh().to_arrow().num_rows == 3
    assert table.compact("major") is not None
    inner = lake.branch("outer")
    lake.branch("inner", parent="outer").table("shop.passing").append([{"id": 4, "v": 40}])
    lake.branch("inner").merge()
    assert inner.table("shop.passing").to_arrow().num_rows == 4
    table.set_properties(**{"user.owner": "ana"})
    table.set_properties(**{"write.only_by_merge": "false"})
    table.append([{"id": 5, "v": 50}])
    assert table.refresh().to_arrow().num_rows == 4


def test_a_transaction_that_had_begun_before_is_refused_at_its_commit(lake: Lake) -> None:
    table, client = lake.create_table("shop.begun", "id bigint, v bigint"), lake.client
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_INSERT)
    with client.begin([intent]) as txn:
        table.set_properties(**GUARD)
        file = common_pb2.DataFile(path=f"{txn.txn_id}/1.parquet", rows=1, bytes=10)
        with pytest.raises(BlockedError) as caught:
            txn.commit([common_pb2.Change(table_id=table.table_id, files=[file])])
    assert caught.value.reason == "ONLY_BY_MERGE"
    assert table.refresh().meta.head_version == 1


def test_a_transaction_that_writes_before_is_refused_at_its_commit(lake: Lake) -> None:
    table = lake.create_table("shop.open", "id bigint, v bigint")
    other = lake.create_table("shop.other", "id bigint, v bigint")

    def write() -> None:
        with lake.transaction() as txn:
            txn.table("shop.other").append(ROWS)
            txn.table("shop.open").append(ROWS)
            table.set_properties(**GUARD)

    with pytest.raises(BlockedError) as caught:
        write()
    assert caught.value.reason == "ONLY_BY_MERGE"
    assert [each.refresh().to_arrow().num_rows for each in (table, other)] == [0, 0]


def test_the_rule() -> None:
    def passes(name: str, operation: Operation, alteration: Alteration | None = None) -> bool:
        columns = (Column("id", "bigint", True, "", 1),)
        parts = Partitioning(())
        meta = TableMeta("t", name, parts, (), 0, Profile.ROW_LEVEL, 1, GUARD, frozenset(), "", columns, 0, name)
        try:
            check_direct(meta, operation, alteration)
        except MetaError as refusal:
            return refusal.reason != "ONLY_BY_MERGE"
        return True

    passing = {operation for operation in Operation if passes("shop.t", operation)}
    assert passing == COMPACTIONS | {Operation.ALTER}
    assert all(passes("shop.t@b", operation) for operation in Operation)
    assert passes(f"shop._new_{'0' * 32}", Operation.INSERT)
    assert passes("shop.t", Operation.ALTER, Alteration(comment="x", name="shop.u", remove_properties=("a",)))
    assert passes("shop.t", Operation.ALTER, Alteration(schema_changes=(Comment("id", "x"),)))
    assert not passes("shop.t", Operation.ALTER, Alteration(schema_changes=(Drop("id"),)))
