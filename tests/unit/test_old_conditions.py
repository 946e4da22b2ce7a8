"""Conditions on a version name its columns, and have their types: whatever an ALTER made of them later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from metaservice.client.conditions import parse_condition
from metaservice.core.errors import MetaError
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Entry, FileKind, Operation
from metaservice.core.table.schema_changes import Add, Drop, Rename, SchemaChange, Widen
from metaservice.rpc.convert import plans
from metaservice.rpc.convert.wire_schema import column_messages
from metaservice.service.read.planning import Planning
from metaservice.service.read.scan_counts import ScanCounts
from protos.laketx.v1 import common_pb2, read_pb2
from tests.retention.rig import Rig

BEFORE = 2  # the version that every condition below is on: the columns, then a file
COLUMNS = [Add("a", "int"), Add("b", "int"), Add("c", "string"), Add("d", "date"), Add("f", "float")]
VALUES = {
    "a": common_pb2.Value(integer=1),
    "b": common_pb2.Value(integer=2),
    "c": common_pb2.Value(text="old"),
    "d": common_pb2.Value(date=20_000),
    "f": common_pb2.Value(real=0.5),
}
CASES: dict[str, tuple[list[SchemaChange], list[str], list[str], list[str]]] = {
    # what is altered; conditions that a row of the file may meet before; conditions that none does; those that name now
    "renamed": ([Rename("a", "x")], ["a = 1"], ["a = 2"], ["x = 1"]),
    "names swapped": (
        [Rename("a", "x"), Rename("b", "a"), Rename("x", "b")],
        ["a = 1", "b = 2", "a = 1 AND b = 2"],
        ["a = 2", "b = 1"],
        ["a = 2", "b = 1"],
    ),
    "dropped": ([Drop("c")], ["c = 'old'"], ["c = 'new'"], ["b = 2"]),
    "dropped, and the name given again": ([Drop("c"), Add("c", "int")], ["c = 'old'"], ["c = 'new'"], ["c = 7"]),
    "widened": (
        [Widen("a", "bigint"), Widen("b", "double"), Widen("d", "timestamp_ntz"), Widen("f", "double")],
        ["a = 1", "b = 2", "d = '2024-10-04'", "f < 1"],
        ["a = 2", "b = 1", "d = '2024-10-05'", "f < 0"],
        ["a = 1", "b = 2.0", "d = '2024-10-04 00:00:00'", "f < 1"],
    ),
    "made and renamed": ([Add("y", "int"), Rename("y", "z")], ["a = 1"], ["a = 2"], ["z IS NULL"]),
}


@pytest.fixture
def rig() -> Rig:
    """A table with a file of one row."""
    rig = Rig()
    alter(rig, COLUMNS)
    ids = {column.name: column.column_id for column in rig.reads.get_table(table_id=rig.table_id).meta.columns}
    txn_id = rig.begin(Operation.INSERT)
    file = common_pb2.DataFile(path=f"{txn_id}/f", rows=1, bytes=10)
    for name, value in VALUES.items():
        file.stats.add(column_id=ids[name], min=value, max=value, nulls=0)
    entry = Entry(file.path, "day=1", 0, FileKind.APPEND, 1, 10, file.SerializeToString())
    rig.commit(txn_id, rig.change(Operation.INSERT, [entry]))
    assert rig.head == BEFORE
    return rig


def alter(rig: Rig, changes: Sequence[SchemaChange]) -> None:
    alteration = Alteration(schema_changes=tuple(changes))
    rig.commit(rig.begin(Operation.ALTER), rig.change(Operation.ALTER, alteration=alteration))


def condition(rig: Rig, text: str, version: int) -> common_pb2.Predicate:
    """As a client makes it that has looked at the table at this version."""
    table = rig.reads.get_table(table_id=rig.table_id)
    return parse_condition(text, column_messages(rig.reads.meta_at(table, version).columns))


def planned(rig: Rig, predicate: common_pb2.Predicate, version: int | None = None) -> int:
    """How many files are in the plan."""
    request = read_pb2.PlanScanRequest(table_id=rig.table_id, version=version, predicate=predicate)
    parts = plans.scan(Planning(rig.decider, rig.reads, ScanCounts(0)), rig.reads, request)
    return sum(len(read_pb2.PlanScanResponse.FromString(part).entries) for part in parts)


@pytest.mark.parametrize(("changes", "meets", "meets_not", "now"), CASES.values(), ids=list(CASES))
def test_a_condition_on_an_old_version_is_about_its_columns(
    rig: Rig, changes: list[SchemaChange], meets: list[str], meets_not: list[str], now: list[str]
) -> None:
    looked_at = {text: condition(rig, text, BEFORE) for text in (*meets, *meets_not)}
    for then in ("at the head", "below it"):
        for text, predicate in looked_at.items():
            assert planned(rig, predicate, BEFORE) == (text in meets), (text, then)
        if then == "at the head":
            assert planned(rig, looked_at[meets[0]]) == 1
            alter(rig, changes)  # between a client's look and its plan
    for text in now:
        predicate = condition(rig, text, rig.head)
        assert planned(rig, predicate) == planned(rig, predicate, rig.head) == 1, text


def test_names_of_another_version_are_refused(rig: Rig) -> None:
    alter(rig, [Rename("a", "x")])
    before, now = condition(rig, "a = 1", BEFORE), condition(rig, "x = 1", rig.head)
    for predicate, version in ((now, BEFORE), (before, rig.head), (before, None)):
        with pytest.raises(MetaError, match="COLUMN_UNKNOWN"):
            planned(rig, predicate, version)


def test_a_condition_on_an_increment_is_about_the_columns_at_its_end(rig: Rig) -> None:
    before = condition(rig, "a = 1 AND day = '1'", BEFORE)
    alter(rig, [Rename("a", "x")])
    now = condition(rig, "x = 1 AND day = '1'", rig.head)

    def changed(predicate: common_pb2.Predicate, to: int | None) -> int:
        request = read_pb2.PlanChangesRequest(table_id=rig.table_id, to_version=to, predicate=predicate)
        parts = plans.changes(Planning(rig.decider, rig.reads, ScanCounts(0)), rig.reads, request)
        return sum(len(part.added) for part in parts)

    assert changed(before, BEFORE) == changed(now, rig.head) == changed(now, None) == 1
    with pytest.raises(MetaError, match="COLUMN_UNKNOWN"):
        changed(before, None)


def test_the_version_of_a_condition_may_be_kept_by_a_tag_alone(rig: Rig) -> None:
    predicate = condition(rig, "a = 1", BEFORE)
    rig.tag("kept", BEFORE)
    alter(rig, [Rename("a", "x"), Rename("b", "a")])
    rig.overwrite("later")
    rig.pass_time(25 * 3_600_000)
    assert rig.oldest > BEFORE
    assert planned(rig, predicate, BEFORE) == 1
