"""The commits of a time range as bars, each a link into its own part of it: from months to seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from metaservice.cli.values import when
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, read_pb2
from worker.console.charts import Bar, stacked_bars

BARS: Final = 24  # each costs a call
DAY_US: Final = 86_400_000_000
FINE_US: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the range, from its first to its last microsecond, and its commits."""

    since_us: int
    until_us: int
    commits: int
    text: str


@dataclass(frozen=True, slots=True)
class HistoryStrip:
    """The range, its parts with their bars, and the top of their axis."""

    since_us: int
    until_us: int
    commits: int
    parts: Sequence[tuple[Stretch, Bar | None]]
    top: int


def parts_of(since_us: int, until_us: int, most: int = BARS) -> list[tuple[int, int]]:
    """Parts that cover a range without gaps, as nearly equal as microseconds allow."""
    count = max(min(most, until_us - since_us + 1), 1)
    edges = [since_us + (until_us - since_us + 1) * at // count for at in range(count + 1)]
    return [(first, after - 1) for first, after in pairwise(edges)]


def strip_of(client: MetaClient, table: catalog_pb2.Table, since_us: int | None, until_us: int | None) -> HistoryStrip:
    """The commits of a table in a range; without ends, its whole history. Versions count commits: each has the next."""
    oldest = oldest_version(client, table)
    last_us = table.head_commit_time_us if until_us is None else until_us
    first_us = commit_at(client, table.table_id, oldest).commit_time_us if since_us is None else since_us
    ranges = parts_of(first_us, max(last_us, first_us))
    before = version_by(client, table, first_us - 1, oldest)
    counted = []
    for since, until in ranges:
        version = table.head_version if until >= table.head_commit_time_us else version_by(client, table, until, oldest)
        counted.append(Stretch(since, until, version - before, stretch_text(since, until)))
        before = version
    bars, top = stacked_bars([(part.text, [("committed", part.commits)]) for part in counted])
    drawn = iter(bars)
    parts = [(part, next(drawn) if part.commits else None) for part in counted]
    return HistoryStrip(first_us, ranges[-1][1], sum(part.commits for part in counted), parts, top)


def version_by(client: MetaClient, table: catalog_pb2.Table, time_us: int, oldest: int) -> int:
    """The newest version committed by a time; the one before the oldest if there is none."""
    until = read_pb2.VersionFilter(to_time_us=time_us)
    commit = next(client.list_versions(table.table_id, matching=until, page_size=1), None)
    return commit.version if commit is not None else oldest - 1


def oldest_version(client: MetaClient, table: catalog_pb2.Table) -> int:
    """The oldest version of which all later ones are kept, too: the history of a table ends where it was retired."""
    below, kept = -1, table.head_version
    while kept - below > 1:
        middle = 0 if below < 0 else (below + kept) // 2
        pair = read_pb2.VersionFilter(from_version=middle, to_version=middle + 1)
        commits = list(client.list_versions(table.table_id, matching=pair, page_size=2))
        if commits and commits[-1].version == middle:
            kept = middle
        else:
            below = middle
    return kept


def commit_at(client: MetaClient, table_id: str, version: int) -> read_pb2.Version:
    alone = read_pb2.VersionFilter(from_version=version, to_version=version)
    return next(client.list_versions(table_id, matching=alone, page_size=1), read_pb2.Version())


def stretch_text(since_us: int, until_us: int) -> str:
    span = until_us - since_us
    return f"{tick_text(since_us, span)} to {tick_text(until_us, span)}"


def tick_text(time_us: int, span_us: int) -> str:
    """Thousandths within seconds, seconds within a day, days beyond."""
    text = when(time_us)
    if span_us > DAY_US:
        return text[5:16]
    return text[11:23] if span_us < FINE_US else text[11:19]
