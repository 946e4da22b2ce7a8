"""Figures of tables that are kept for the next page, and made while the first page is shown."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from protos.laketx.v1 import catalog_pb2
from worker.console.table_summaries import TableSummaries

WITHIN_S = 60.0


def at(table_id: str, version: int, time_us: int) -> catalog_pb2.Table:
    return catalog_pb2.Table(table_id=table_id, head_version=version, head_commit_time_us=time_us)


def test_a_summary_is_of_one_version_and_the_least_used_goes_first() -> None:
    made: list[str] = []

    def asked(table: catalog_pb2.Table, name: str) -> str | None:
        def make() -> str:
            made.append(name)
            return name

        return summaries.of(table, make, WITHIN_S)

    summaries = TableSummaries[str](most=2)
    assert asked(at("a", 1, 10), "a1") == "a1"
    assert asked(at("a", 1, 10), "again") == "a1"
    assert asked(at("a", 2, 20), "a2") == "a2"
    assert asked(at("a", 1, 10), "again") == "a1"
    assert asked(at("a", 2, 21), "restored") == "restored", "of another history"
    assert asked(at("a", 1, 10), "again") == "a1"
    assert asked(at("a", 2, 20), "a2 anew") == "a2 anew"
    assert made == ["a1", "a2", "restored", "a2 anew"]


def test_nobody_waits_long_and_it_is_made_once() -> None:
    summaries, table, counted, may_end = TableSummaries[str](), at("a", 1, 10), [], threading.Event()

    def slow() -> str:
        counted.append(1)
        may_end.wait(WITHIN_S)
        return "figures"

    assert [summaries.of(table, slow, 0.01) for _ in range(3)] == [None, None, None]
    may_end.set()
    assert summaries.of(table, slow, WITHIN_S) == "figures"
    assert len(counted) == 1


def test_the_failure_of_one_visitor_is_not_that_of_another() -> None:
    summaries, table, may_fail = TableSummaries[str](), at("a", 1, 10), threading.Event()

    def refused() -> str:
        may_fail.wait(WITHIN_S)
        raise PermissionError("of the first visitor")

    assert summaries.of(table, refused, 0.01) is None
    threading.Timer(0.05, may_fail.set).start()
    assert summaries.of(table, lambda: "figures", WITHIN_S) == "figures"
    other = at("b", 1, 10)
    failing: Callable[[], str] = refused
    with pytest.raises(PermissionError):
        summaries.of(other, failing, WITHIN_S)
    assert summaries.of(other, lambda: "later", WITHIN_S) == "later"
