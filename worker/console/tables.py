"""Tables: the list with its search, and one table with its figures, partitions, columns and properties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from metaservice.cli.values import partition_text, size_text
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.console.charts import WIDTH
from worker.console.rendering import noun_text
from worker.console.snippets import snippets_of
from worker.console.table_contents import Part, TableContents, file_bytes_target
from worker.console.table_summaries import TableSummaries
from worker.console.tree_map import TILES_MAX, Item, Tile, tree_map
from worker.console.visits import LIVE_SERVICE, Shown, Visit, live_of, taken

PAGE_SIZE: Final = 50
SEARCH_CALLS_MAX: Final = 20  # a service of an earlier release answers all names; a link goes on from there
NAMESPACES_MAX: Final = 500
PARTITIONS_SHOWN: Final = 25
SCHEMAS_MAX: Final = 50
TAGS_MAX: Final = 50
OVERVIEW_S: Final = 0.15  # the page is shown without figures that take longer, and asks again


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page of a table shows of its files."""

    whole: Part
    partitions: int
    shown: Sequence[Part]
    tiles: Sequence[Tile]
    is_cut: bool


OVERVIEWS: Final = TableSummaries[Overview]()
CONTENTS: Final = TableContents()


def show_all(visit: Visit) -> Shown:
    client, namespace, sought = visit.client, visit.text("namespace"), visit.text("q").strip()
    namespaces, more_namespaces = taken(client.list_namespaces(), NAMESPACES_MAX)
    if sought:
        rows, token = search(client, namespace, sought, visit.text("after"))
    else:
        page = client.list_table_page(namespace=namespace, page_size=PAGE_SIZE, page_token=visit.text("after"))
        rows, token = list(page.tables), page.next_page_token
    facts = {
        "tables": rows,
        "next": token,
        "sought": sought,
        "namespace": namespace,
        "namespaces": [each.name for each in namespaces],
        "more_namespaces": more_namespaces,
        "is_first": not visit.text("after"),
    }
    return Shown("tables.html", facts, live="" if sought else LIVE_SERVICE)


def search(client: MetaClient, namespace: str, sought: str, page_token: str) -> tuple[list[catalog_pb2.Table], str]:
    """Tables whose names contain the text, and the token to go on with."""
    matches: list[catalog_pb2.Table] = []
    for _ in range(SEARCH_CALLS_MAX):
        page = client.list_table_page(
            namespace=namespace, name_contains=sought, page_size=PAGE_SIZE, page_token=page_token
        )
        matches += [table for table in page.tables if sought.lower() in table.name.lower()]
        page_token = page.next_page_token
        if not page_token or len(matches) >= PAGE_SIZE:
            break
    return matches, page_token


def show(visit: Visit) -> Shown:
    table, client = visit.table(), visit.client
    overview = OVERVIEWS.of(table, lambda: overview_of(client, table), OVERVIEW_S)
    schemas, more_schemas = taken(client.list_schemas(table.table_id), SCHEMAS_MAX)
    tags, more_tags = taken(client.list_tags(table.table_id), TAGS_MAX)
    facts = {
        "table": table,
        "overview": overview,
        "schemas": list(reversed(schemas)),
        "more_schemas": more_schemas,
        "tags": tags,
        "more_tags": more_tags,
        "tab": "overview",
        "snippets": snippets_of(table, table.head_version),
        "target": file_bytes_target(table),
        "now_us": visit.now_us,
    }
    return Shown("table.html", facts, live=live_of(table))


def overview_of(client: MetaClient, table: catalog_pb2.Table) -> Overview:
    contents = CONTENTS.of(client, table)
    partitions = contents.partitions
    tiles = tiles_of(partitions, len(table.partition_columns))
    return Overview(contents.whole, len(partitions), partitions[:PARTITIONS_SHOWN], tiles, contents.is_cut)


def tiles_of(partitions: Sequence[Part], columns: int) -> list[Tile]:
    """The largest partitions, and one tile for all others. Of one partition column a tile has the value alone."""
    shown = list(partitions[: TILES_MAX if len(partitions) <= TILES_MAX else TILES_MAX - 1])
    items = [item_of(part, part.name.partition("=")[2] if columns == 1 else part.name) for part in shown]
    if len(partitions) > len(shown):
        rest = Part("")
        for part in partitions[len(shown) :]:
            rest.take(part)
        items.append(item_of(rest, f"{len(partitions) - len(shown):,} smaller ones"))
    return tree_map(sorted(items, key=lambda item: -item.size), WIDTH)


def item_of(part: Part, name: str) -> Item:
    size, name = size_text(part.size), name or "the whole table"
    text = (
        f"{part.name or name}: {size} in {part.files:,} {noun_text(part.files, 'file')}, "
        f"{part.small_share:.0%} of them small, {part.hidden_share:.0%} of the rows hidden"
    )
    return Item(part.size, part.untidy, name, size, text)


def rows_by_partition(entries: Iterable[common_pb2.LiveEntry], types: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Files and rows of data files by partition."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        if entry.HasField("file"):
            counts = sums[partition_text(entry.file.partition, types)]
            counts[0] += 1
            counts[1] += entry.file.rows
    return {name: (files, rows) for name, (files, rows) in sums.items()}
