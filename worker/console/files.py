"""The files of a version, the newest first, with what is known of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import Final

from metaservice.cli.values import partition_text, types_of, value_text
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.console.table_contents import ENTRIES_MAX, SMALL_SHARE, file_bytes_target
from worker.console.table_summaries import TableSummaries
from worker.console.visits import Shown, Visit, live_of

FILES_SHOWN: Final = 200
STATISTICS_SHOWN: Final = 8
VALUE_CHARS_MAX: Final = 60
LISTINGS_MAX: Final = 20
LISTING_S: Final = 0.15  # the page is shown without files that take longer, and asks again


@dataclass(frozen=True, slots=True)
class FileLine:
    """A live file, for a row of the page."""

    path: str
    kind: str
    partition: str
    bucket: int
    rows: int
    size: int
    added: int
    is_small: bool
    statistics: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Listing:
    """The newest files of a version, how many older ones are left out, and whether there are even more."""

    files: Sequence[FileLine]
    left_out: int
    is_cut: bool


LISTINGS: Final = TableSummaries[Listing](LISTINGS_MAX)


def show(visit: Visit) -> Shown:
    table, version = visit.table(), visit.number("version")
    number, client = table.head_version if version is None else version, visit.client
    listing = LISTINGS.of(table, lambda: listing_of(client, table, number), LISTING_S, number)
    facts = {"table": table, "version": number, "listing": listing, "tab": "files"}
    return Shown("files.html", facts, live=live_of(table) if version is None else "")


def listing_of(client: MetaClient, table: catalog_pb2.Table, number: int) -> Listing:
    entries = islice(client.list_files(table.table_id, version=number), ENTRIES_MAX + 1)
    count, newest = 0, []
    for entry in entries:
        count += 1
        newest.append(entry)
        if len(newest) > 2 * FILES_SHOWN:
            newest = nlargest(FILES_SHOWN, newest, key=added_of)
    shown = nlargest(FILES_SHOWN, newest, key=added_of)
    columns = {each.column_id: each for each in table.columns if each.name not in table.partition_columns}
    files = [line_of(entry, table, columns) for entry in shown]
    return Listing(files, min(count, ENTRIES_MAX) - len(shown), count > ENTRIES_MAX)


def added_of(entry: common_pb2.LiveEntry) -> tuple[int, str]:
    path = entry.delete_set.path if entry.HasField("delete_set") else entry.file.path
    return entry.added_version, path


def line_of(entry: common_pb2.LiveEntry, table: catalog_pb2.Table, columns: dict[int, catalog_pb2.Column]) -> FileLine:
    types = types_of(table)
    if entry.HasField("delete_set"):
        hides = entry.delete_set
        partition = partition_text(hides.partition, types)
        return FileLine(hides.path, "delete set", partition, 0, hides.rows, hides.bytes, entry.added_version, False, [])
    file = entry.file
    kind = {common_pb2.FILE_KIND_BASE: "base", common_pb2.FILE_KIND_DELTA: "delta"}.get(file.kind, "file")
    return FileLine(
        file.path,
        "external file" if file.external else kind,
        partition_text(file.partition, types),
        file.bucket,
        file.rows,
        file.bytes,
        entry.added_version,
        file.bytes < SMALL_SHARE * file_bytes_target(table),
        [range_of(each, columns) for each in file.stats if each.column_id in columns][:STATISTICS_SHOWN],
    )


def range_of(stats: common_pb2.ColumnStats, columns: dict[int, catalog_pb2.Column]) -> tuple[str, str]:
    """A column, and the range of its values in a file."""
    column = columns[stats.column_id]
    ends = [value_text(end, column.type)[:VALUE_CHARS_MAX] for end in (stats.min, stats.max)]
    is_known = stats.HasField("min") and stats.HasField("max")
    text = "unknown" if not is_known else ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    return column.name, f"{text}, {stats.nulls} NULL" if stats.nulls else text
