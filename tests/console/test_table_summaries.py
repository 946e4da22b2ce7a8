"""Figures of tables that are kept for the next page."""

from __future__ import annotations

from protos.laketx.v1 import catalog_pb2
from worker.console.table_summaries import TableSummaries


def at(table_id: str, version: int, time_us: int) -> catalog_pb2.Table:
    return catalog_pb2.Table(table_id=table_id, head_version=version, head_commit_time_us=time_us)


def test_a_summary_is_of_one_version_and_the_least_used_goes_first() -> None:
    made: list[str] = []

    def asked(table: catalog_pb2.Table, name: str) -> str:
        def make() -> str:
            made.append(name)
            return name

        return summaries.of(table, make)

    summaries = TableSummaries[str](most=2)
    assert asked(at("a", 1, 10), "a1") == "a1"
    assert asked(at("a", 1, 10), "again") == "a1"
    assert asked(at("a", 2, 20), "a2") == "a2"
    assert asked(at("a", 1, 10), "again") == "a1"
    assert asked(at("a", 2, 21), "restored") == "restored", "of another history"
    assert asked(at("a", 1, 10), "again") == "a1"
    assert asked(at("a", 2, 20), "a2 anew") == "a2 anew"
    assert made == ["a1", "a2", "restored", "a2 anew"]
