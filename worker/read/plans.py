"""The entries that a read needs, by the service's plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from protos.laketx.v1 import common_pb2
from worker.base.inlined import fetch_entries
from worker.base.table_view import TableView
from worker.base.values import partition_key

PARTITIONS_MAX: Final = 1_000  # named in a plan


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
        table.table_id, version=version, predicate=predicate, partitions=named, without_stats=True
    )
    found = [entry for part in parts for entry in part.entries]
    fetch_entries(table, found)
    return found
