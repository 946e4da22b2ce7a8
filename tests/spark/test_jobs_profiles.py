"""Compactions that cross with changes, where other rules judge than those of `maxcompute`; contents as a dict says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from laketx import Lake
from metaservice.client import ConflictError
from protos.laketx.v1 import common_pb2
from tests.spark.crossed import CLUSTER, MAJOR, MINOR, Crossed

NewName = Callable[[], str]


def make_ready(crossed: Crossed, operation: common_pb2.Operation.ValueType) -> None:
    """Only base files are clustered."""
    crossed.make_work()
    if operation == CLUSTER and crossed.table.meta.primary_key:
        crossed.compact(MAJOR)


@pytest.mark.parametrize(
    "operations",
    [pytest.param((MAJOR,), id="major"), pytest.param((MINOR, MAJOR, CLUSTER), id="all", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("keyed", [True, pytest.param(False, marks=pytest.mark.long)], ids=["key", "append"])
def test_row_level_lets_everything_pass(
    lake: Lake, new_name: NewName, keyed: bool, operations: tuple[common_pb2.Operation.ValueType, ...]
) -> None:
    crossed = Crossed(lake, new_name(), keyed=keyed, profile="row_level")

    def all_changes(version: int | None = None) -> None:
        crossed.update(version)
        crossed.delete(version)
        crossed.insert(version)

    for operation in operations:
        make_ready(crossed, operation)
        assert crossed.compact_across(operation, all_changes), operation
        make_ready(crossed, operation)
        version = crossed.head()
        crossed.compact(operation)
        all_changes(version)
    make_ready(crossed, MAJOR)
    assert not crossed.compact_across(MAJOR, crossed.overwrite)
    crossed.check()


@pytest.mark.long
def test_delta_rules_look_at_files(lake: Lake, new_name: NewName) -> None:
    """What hides rows by key takes no file away; but who reads files loses to who replaces them."""
    crossed = Crossed(lake, new_name(), keyed=True, profile="delta_write_serializable")
    for operation in (MINOR, MAJOR, CLUSTER):
        make_ready(crossed, operation)
        assert crossed.compact_across(operation, crossed.insert), operation
        for change in (crossed.update, crossed.delete):
            make_ready(crossed, operation)
            assert crossed.compact_across(operation, change), (operation, change.__name__)
        make_ready(crossed, operation)
        version = crossed.head()
        crossed.compact(operation)
        for change in (crossed.update, crossed.delete):
            with pytest.raises(ConflictError):
                change(version)
        crossed.insert(version)
    crossed.check()
