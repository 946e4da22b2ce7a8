"""Tables: the list with its search, and one table with its figures, partitions, columns and properties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from metaservice.cli.values import partition_text, size_text, types_of
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.console.charts import WIDTH
from worker.console.rendering import noun_text
from worker.console.snippets import snippets_of
from worker.console.table_summaries import TableSummaries
from worker.console.tree_map import TILES_MAX, Item, Tile, tree_map
from worker.console.visits import Shown, Visit, taken

PAGE_SIZE: Final = 50
SEARCH_CALLS_MAX: Final = 20  # a service of an earlier release answers all names; a link goes on from there
NAMESPACES_MAX: Final = 500
ENTRIES_MAX: Final = 100_000
PARTITIONS_SHOWN: Final = 25
SCHEMAS_MAX: Final = 50
TAGS_MAX: Final = 50
FILE_BYTES_TARGET: Final = 128 << 20  # where the table's property says nothing
SMALL_SHARE: Final = 0.5  # of the target: smaller files are small
FEW_FILES: Final = 4  # so few small files are no reason to compact
OVERVIEW_S: Final = 0.25  # the page is shown without figures that take longer, and asks again


@dataclass(slots=True)
class Part:
    """The live entries of a table, or of one of its partitions."""

    name: str
    files: int = 0
    rows: int = 0
    size: int = 0
    small: int = 0
    hidden: int = 0  # rows that delete sets hide

    def add(self, entry: common_pb2.LiveEntry, small_below: float) -> None:
        if entry.HasField("delete_set"):
            self.hidden += entry.delete_set.rows
            return
        file = entry.file
        self.files += 1
        self.rows += file.rows
        self.size += file.bytes
        self.small += file.bytes < small_below and not file.inlined

    @property
    def hidden_share(self) -> float:
        return self.hidden / self.rows if self.rows else 0.0

    @property
    def small_share(self) -> float:
        return self.small / self.files if self.files else 0.0

    @property
    def untidy(self) -> float:
        """The larger share: of hidden rows, or of small files if there are more than a few."""
        return max(self.hidden_share, self.small_share if self.files > FEW_FILES else 0.0)

    def take(self, other: Part) -> None:
        """Adds the sums of another one."""
        self.files, self.rows, self.size = self.files + other.files, self.rows + other.rows, self.size + other.size
        self.small, self.hidden = self.small + other.small, self.hidden + other.hidden


@dataclass(frozen=True, slots=True)
class Contents:
    """The files of a version: all of them, or as many as are looked at."""

    whole: Part
    partitions: list[Part]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Overview:
    """What the page of a table shows of its files."""

    whole: Part
    partitions: int
    shown: Sequence[Part]
    tiles: Sequence[Tile]
    is_cut: bool


OVERVIEWS: Final = TableSummaries[Overview]()


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
    return Shown("tables.html", facts, live="" if sought else "/live/service")


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
    return Shown("table.html", facts, live=f"/live/tables/{table.table_id}")


def overview_of(client: MetaClient, table: catalog_pb2.Table) -> Overview:
    contents = contents_of(table, client.list_files(table.table_id, version=table.head_version))
    partitions = contents.partitions
    tiles = tiles_of(partitions, len(table.partition_columns))
    return Overview(contents.whole, len(partitions), partitions[:PARTITIONS_SHOWN], tiles, contents.is_cut)


def file_bytes_target(table: catalog_pb2.Table) -> int:
    text = table.properties.get("write.file_bytes_target", "")
    return int(text) if text.isdecimal() else FILE_BYTES_TARGET


def contents_of(table: catalog_pb2.Table, entries: Iterable[common_pb2.LiveEntry]) -> Contents:
    """Sums of the entries, by partition the largest first."""
    types, small_below = types_of(table), SMALL_SHARE * file_bytes_target(table)
    whole, seen = Part(""), 0
    by_name: dict[str, Part] = {}
    by_bytes: dict[bytes, Part] = {}  # a name is made once for each partition, not for each of its files
    reader = iter(entries)
    for entry in islice(reader, ENTRIES_MAX):
        seen += 1
        partition = entry.delete_set.partition if entry.HasField("delete_set") else entry.file.partition
        raw = partition.SerializeToString()
        part = by_bytes.get(raw)
        if part is None:
            name = partition_text(partition, types)
            part = by_bytes[raw] = by_name.setdefault(name, Part(name))
        part.add(entry, small_below)
    for part in by_name.values():
        whole.take(part)
    is_cut = seen == ENTRIES_MAX and next(reader, None) is not None
    return Contents(whole, sorted(by_name.values(), key=lambda part: (-part.size, part.name)), is_cut)


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
