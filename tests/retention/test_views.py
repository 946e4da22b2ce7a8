"""Readers see a table as it is durable: nothing of what is decided and waits for its sync."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from metaservice.core.errors import ErrorKind, MetaError
from metaservice.core.table.meta import Alteration
from metaservice.core.table.model import Operation
from metaservice.core.table.schema_changes import Add, Rename
from metaservice.rpc.convert import plans
from metaservice.service.commit.requests import Begin, CommitRequest, Intent
from metaservice.service.read.planning import Planning
from metaservice.service.read.scan_counts import ScanCounts
from metaservice.service.read.scan_request import ScanRequest
from protos.laketx.v1 import common_pb2, read_pb2
from tests.retention.rig import HOUR_MS, WHO, Rig

RENAMED = Alteration(schema_changes=(Rename("id", "number"),))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def decide(rig: Rig, operation: Operation, alteration: Alteration | None = None) -> None:
    """A commit whose group has not come to its sync yet."""
    txn_id = rig.uuid()
    rig.transactions.begin(Begin(txn_id, (Intent(rig.table_id, operation),), WHO, "", b"begin"))
    change = rig.change(operation, alteration=alteration)
    rig.transactions.commit(CommitRequest(txn_id, (change,), ((None, None),), b"commit"))
    rig.decider.state.flush()


def make_durable(rig: Rig) -> None:
    rig.decider._group([])


def where(column: str) -> common_pb2.Predicate:
    value = common_pb2.Value(integer=1)
    compare = common_pb2.Compare(column=column, comparison=common_pb2.COMPARISON_EQUAL, value=value)
    return common_pb2.Predicate(compare=compare)


def plan(rig: Rig, column: str) -> int:
    request = read_pb2.PlanScanRequest(table_id=rig.table_id, predicate=where(column))
    found = plans.scan(Planning(rig.decider, rig.reads, ScanCounts(0)), rig.reads, request)
    return len(list(found))


def plan_changes(rig: Rig, column: str) -> int:
    request = read_pb2.PlanChangesRequest(table_id=rig.table_id, from_version=0, predicate=where(column))
    found = plans.changes(Planning(rig.decider, rig.reads, ScanCounts(0)), rig.reads, request)
    return len(list(found))


@pytest.mark.parametrize("ask", [plan, plan_changes])
def test_plans_know_columns_by_their_durable_names(rig: Rig, ask: Callable[[Rig, str], int]) -> None:
    decide(rig, Operation.ALTER, RENAMED)
    assert ask(rig, "id") == 1
    with pytest.raises(MetaError) as refused:
        ask(rig, "number")
    assert refused.value.kind is ErrorKind.INVALID
    make_durable(rig)
    assert ask(rig, "number") == 1


def test_a_plan_finds_what_a_commit_takes_out_that_is_not_durable_yet(rig: Rig) -> None:
    for name in "abc":
        rig.insert(name)
    decide(rig, Operation.ALTER, RENAMED)
    decide(rig, Operation.OVERWRITE)  # spans from before version 4 to version 5 lie on a higher level of their index
    found = (
        Planning(rig.decider, rig.reads, ScanCounts(0))
        .scan(rig.reads.get_table(table_id=rig.table_id), ScanRequest(3))
        .entries()
    )
    assert len(list(found)) == 3


def test_retention_goes_by_the_hours_that_are_durable(rig: Rig) -> None:
    rig.insert("a")
    rig.overwrite("b")
    rig.pass_time(2 * HOUR_MS)
    decide(rig, Operation.ALTER, Alteration(set_properties={"data.retain.hours": "1"}))
    rig.clock.advance(60_000)
    make_durable(rig)  # the tick comes before the sync
    assert rig.oldest == 0
    rig.pass_time(60_000)
    assert rig.oldest == 2


def test_readers_take_a_new_name_when_it_is_durable(rig: Rig) -> None:
    decide(rig, Operation.ALTER, Alteration(name="weeks"))
    assert rig.reads.get_table(name="days").meta.name == "days"
    assert [name for name, _ in rig.catalog.tables.list_live("", "", 10)[0]] == ["before", "days"]
    with pytest.raises(MetaError):
        rig.reads.get_table(name="weeks")
    make_durable(rig)
    assert rig.reads.get_table(name="weeks").meta.name == "weeks"
    assert [name for name, _ in rig.catalog.tables.list_live("", "", 10)[0]] == ["before", "weeks"]
    with pytest.raises(MetaError):
        rig.reads.get_table(name="days")


def test_readers_have_a_table_until_its_drop_is_durable(rig: Rig) -> None:
    rig.catalog.drop(rig.table_id, validate_only=False)
    assert rig.reads.get_table(name="days").head == 0
    assert plan(rig, "id") == 1, "one answer, without files"
    make_durable(rig)
    with pytest.raises(MetaError) as refused:
        rig.reads.get_table(table_id=rig.table_id)
    assert refused.value.reason == "TABLE_DROPPED"


def test_a_name_that_goes_from_one_table_to_another_in_one_group_is_found(rig: Rig) -> None:
    decide(rig, Operation.ALTER, Alteration(name="weeks"))
    days, rig.table_id = rig.table_id, rig.reads.get_table(name="before").meta.table_id
    decide(rig, Operation.ALTER, Alteration(name="days"))
    make_durable(rig)
    assert rig.reads.get_table(name="weeks").meta.table_id == days
    assert rig.reads.get_table(name="days").meta.table_id == rig.table_id


def test_a_view_stays_as_it_was_but_for_the_horizon(rig: Rig) -> None:
    rig.insert("a")
    before = rig.reads.get_table(table_id=rig.table_id)
    rig.overwrite("b")
    decide(rig, Operation.ALTER, Alteration(schema_changes=(Add("more", "int"),)))
    assert (before.head, len(before.meta.columns)) == (1, 2)
    rig.pass_time(40 * HOUR_MS)
    with pytest.raises(MetaError) as refused:
        rig.reads.check_version(before, 1)
    assert refused.value.reason == "VERSION_RETIRED", "a reader that comes late misses no horizon"
