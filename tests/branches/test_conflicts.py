"""A commit on a branch is judged at the merge as a transaction is that read the base version: it wins, or loses."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from laketx import Lake, MergeRefusedError, connect
from metaservice.client import ConflictError
from protos.laketx.v1 import common_pb2

PROFILES = ("maxcompute", "row_level", "delta_serializable", "delta_write_serializable")
SCHEMA = pa.schema({"id": pa.int64(), "p": pa.int32(), "v": pa.int64()})
Write = Callable[..., object]  # on a table, or on one in a transaction


def rows(*ids: int, p: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "p": p, "v": number} for number in ids], schema=SCHEMA)


WRITES: dict[str, Write] = {
    "update 1": lambda table: table.update({"v": "v + 1"}, where="id = 1 AND p = 0"),
    "update 2": lambda table: table.update({"v": "v + 1"}, where="id = 2 AND p = 0"),
    "update all of p = 1": lambda table: table.update({"v": "v + 1"}, where="p = 1"),
    "delete 1": lambda table: table.delete("id = 1 AND p = 0"),
    "delete above 10": lambda table: table.delete("v > 10"),
    "overwrite p = 0": lambda table: table.overwrite(rows(50, p=0), partition="dynamic"),
    "insert into p = 1": lambda table: table.insert(rows(60, p=1)),
    "truncate": lambda table: table.truncate(),
}
ON_BRANCH = [name for name in WRITES if not name.startswith(("insert", "truncate"))]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with connect(tmp_path_factory.mktemp("lake")) as lake:
        yield lake


def make(lake: Lake, name: str, profile: str, *, keyed: bool) -> None:
    key = {"primary_key": ["id", "p"], "buckets": 1} if keyed else {}
    table = lake.create_table(name, "id bigint, p int, v bigint", partition_by=["p"], profile=profile, **key)  # type: ignore[arg-type]
    table.insert(rows(1, 2, 3, p=0))
    table.insert(rows(11, 12, 13, p=1))


def rule_of_merge(lake: Lake, name: str, mine: str, theirs: str) -> str:
    branch = lake.branch(f"b_{name.replace('.', '_')}")
    WRITES[mine](branch.table(name))
    WRITES[theirs](lake.table(name))
    try:
        branch.merge()
    except MergeRefusedError as refused:
        (table,) = refused.tables
        branch.drop()
        return table.reason
    return ""


def rule_of_transaction(lake: Lake, name: str, mine: str, theirs: str) -> str:
    try:
        with lake.transaction() as txn:
            WRITES[mine](txn.table(name))
            WRITES[theirs](lake.table(name))
    except ConflictError as lost:
        return common_pb2.ConflictRule.Name(lost.conflict.rule).removeprefix("CONFLICT_RULE_")
    return ""


DIAGONAL = (("maxcompute", True), ("row_level", False))
FULL = [
    pytest.param(profile, keyed, marks=() if (profile, keyed) in DIAGONAL else pytest.mark.long)
    for profile in PROFILES
    for keyed in (True, False)
]


@pytest.mark.parametrize(("profile", "keyed"), FULL)
def test_a_merge_is_judged_as_a_transaction(lake: Lake, profile: str, *, keyed: bool) -> None:
    differing, lost = {}, 0
    for place, mine in enumerate(ON_BRANCH):
        for other, theirs in enumerate(WRITES):
            name = f"c{'k' if keyed else 'a'}{PROFILES.index(profile)}.t{place}_{other}"
            make(lake, f"{name}m", profile, keyed=keyed)
            make(lake, f"{name}t", profile, keyed=keyed)
            merged = rule_of_merge(lake, f"{name}m", mine, theirs)
            expected = rule_of_transaction(lake, f"{name}t", mine, theirs)
            lost += bool(expected)
            if bool(merged) != bool(expected):  # a transaction of one statement says more about its reads
                differing[mine, theirs] = merged, expected
            elif not merged:
                same = [sorted(map(str, lake.table(f"{name}{end}").to_arrow().to_pylist())) for end in "mt"]
                assert same[0] == same[1], (mine, theirs)
    assert differing == {}
    assert lost
