"""The entries that a read needs, by the service's plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from protos.laketx.v1 import common_pb2
from worker.arrow.scan.inlined_rows import fetch_entries
from worker.base.values import partition_key
from worker.connection.pins import PinnedVersion
from worker.connection.table_view import TableView

PARTITIONS_MAX: Final = common_pb2.LIMIT_PARTITIONS_NAMED  # named in a plan


def entries_of(
    table: TableView,
    version: int,
    predicate: common_pb2.Predicate | None = None,
    partitions: Iterable[common_pb2.Partition] = (),
) -> list[common_pb2.LiveEntry]:
    """The entries that may have rows for which the predicate is true; it is about the columns of that version.

    With partitions those in them, or all where they are many. Inlined files have their rows.
    """
    named = list({partition_key(one): one for one in partitions}.values())
    if len(named) > PARTITIONS_MAX or not table.meta.partition_columns:
        named = []
    parts = table.client.plan_scan(
        table.table_id, version=version, predicate=predicate, partitions=named, without_stats=True, with_rows=True
    )
    found = [entry for part in parts for entry in part.entries]
    fetch_entries(table, found)  # from a service of the release before
    return found


@dataclass(frozen=True, slots=True)
class PinnedPlan:
    """What a read needs: a version that stays readable, the table at that version, and the entries for a condition."""

    pinned: PinnedVersion
    table: TableView
    predicate: common_pb2.Predicate | None
    entries: list[common_pb2.LiveEntry]
    is_whole: bool = True  # the entries are all that there are


def pinned_plan(
    table: TableView, version: int | None, predicate: common_pb2.Predicate | None = None, *, whole: bool = True
) -> PinnedPlan | None:
    """By one call; None if the service is of the release before. Default the newest version.

    Not `whole`: no more than the first part of the plan, which is all of a small table's.
    """
    found = table.lake.pins.scan(table.table_id, version, predicate)
    if found is None:
        return None
    pinned, parts = found
    first = next(parts)
    then = replace(table, meta=first.table)
    if not whole and next(parts, None) is not None:
        return PinnedPlan(pinned, then, predicate, [], is_whole=False)
    entries = [entry for part in (first, *parts) for entry in part.entries]
    return PinnedPlan(pinned, then, predicate, entries)
