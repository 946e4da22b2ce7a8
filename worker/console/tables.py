"""Tables: the list with its search, and one table with its figures, partitions, columns and properties."""

from __future__ import annotations

import re
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
from worker.console.tree_map import TILES_MAX, Item, Tile, tree_map
from worker.console.visits import Shown, Visit, taken

PAGE_SIZE: Final = 50
SEARCH_PAGE_SIZE: Final = 1_000
SEARCHED_MAX: Final = 20_000  # names that one request looks at; a link goes on from there
NAMESPACES_MAX: Final = 500
ENTRIES_MAX: Final = 100_000
PARTITIONS_SHOWN: Final = 25
SCHEMAS_MAX: Final = 50
TAGS_MAX: Final = 50
FILE_BYTES_TARGET: Final = 128 << 20  # where the table's property says nothing
PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_.@-]+")
SMALL_SHARE: Final = 0.5  # of the target: smaller files are small
FEW_FILES: Final = 4  # so few small files are no reason to compact


@dataclass(slots=True)
class Part:
    """The live entries of a table, or of one of its partitions."""

    name: str
    files: int = 0
    rows: int = 0
    size: int = 0
    small: int = 0
    hidden: int = 0  # rows that delete sets hide
    deltas: int = 0
    inlined: int = 0

    def add(self, entry: common_pb2.LiveEntry, small_below: float) -> None:
        if entry.HasField("delete_set"):
            self.hidden += entry.delete_set.rows
            return
        file = entry.file
        self.files += 1
        self.rows += file.rows
        self.size += file.bytes
        self.small += not file.inlined and file.bytes < small_below
        self.deltas += file.kind == common_pb2.FILE_KIND_DELTA
        self.inlined += file.inlined

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


def show_all(visit: Visit) -> Shown:
    client, namespace, sought = visit.client, visit.text("namespace"), visit.text("q").strip()
    namespaces, more_namespaces = taken(client.list_namespaces(), NAMESPACES_MAX)
    if sought:
        rows, token, searched = search(client, namespace, sought, visit.text("after"))
    else:
        page = client.list_table_page(namespace=namespace, page_size=PAGE_SIZE, page_token=visit.text("after"))
        rows, token, searched = list(page.tables), page.next_page_token, 0
    facts = {
        "tables": rows,
        "next": token,
        "searched": searched,
        "sought": sought,
        "namespace": namespace,
        "namespaces": [each.name for each in namespaces],
        "more_namespaces": more_namespaces,
        "is_first": not visit.text("after"),
    }
    return Shown("tables.html", facts, live="" if sought else "/live/service")


def search(
    client: MetaClient, namespace: str, sought: str, page_token: str
) -> tuple[list[catalog_pb2.Table], str, int]:
    """Tables whose names contain the text, the token to go on with, and how many names were looked at."""
    matches: list[catalog_pb2.Table] = []
    wanted, searched = sought.lower(), 0
    while True:
        page = client.list_table_page(namespace=namespace, page_size=SEARCH_PAGE_SIZE, page_token=page_token)
        matches += [table for table in page.tables if wanted in table.name.lower()]
        searched, page_token = searched + len(page.tables), page.next_page_token
        if not page_token or len(matches) >= PAGE_SIZE or searched >= SEARCHED_MAX:
            return matches, page_token, searched


def show(visit: Visit) -> Shown:
    table, client = visit.table(), visit.client
    contents = contents_of(table, client.list_files(table.table_id))
    schemas, more_schemas = taken(client.list_schemas(table.table_id), SCHEMAS_MAX)
    tags, more_tags = taken(client.list_tags(table.table_id), TAGS_MAX)
    facts = {
        "table": table,
        "contents": contents,
        "shown_partitions": contents.partitions[:PARTITIONS_SHOWN],
        "tiles": tiles_of(contents.partitions, len(table.partition_columns)),
        "schemas": list(reversed(schemas)),
        "more_schemas": more_schemas,
        "tags": tags,
        "more_tags": more_tags,
        "tab": "overview",
        "snippets": snippets(table, table.head_version),
        "target": file_bytes_target(table),
        "now_us": visit.now_us,
    }
    return Shown("table.html", facts, live=f"/live/tables/{table.table_id}")


def file_bytes_target(table: catalog_pb2.Table) -> int:
    text = table.properties.get("write.file_bytes_target", "")
    return int(text) if text.isdecimal() else FILE_BYTES_TARGET


def contents_of(table: catalog_pb2.Table, entries: Iterable[common_pb2.LiveEntry]) -> Contents:
    """Sums of the entries, by partition the largest first."""
    types, small_below = types_of(table), SMALL_SHARE * file_bytes_target(table)
    whole, seen = Part(""), 0
    parts: dict[str, Part] = {}
    reader = iter(entries)
    for entry in islice(reader, ENTRIES_MAX):
        seen += 1
        partition = entry.delete_set.partition if entry.HasField("delete_set") else entry.file.partition
        name = partition_text(partition, types)
        whole.add(entry, small_below)
        parts.setdefault(name, Part(name)).add(entry, small_below)
    is_cut = seen == ENTRIES_MAX and next(reader, None) is not None
    return Contents(whole, sorted(parts.values(), key=lambda part: (-part.size, part.name)), is_cut)


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


def snippets(table: catalog_pb2.Table, version: int) -> list[tuple[str, str]]:
    """The same read for three tools, to copy."""
    quoted = ".".join(
        part if PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in table.name.split(".")
    )
    return [
        ("SQL", f"SELECT * FROM lake.{quoted} VERSION AS OF {version}"),  # noqa: S608 - a text to copy
        ("Python", f"lake.table({table.name!r}).to_arrow(version={version})"),
        ("Command", f"laketx head {shell_word(table.name)} --version {version}"),
    ]


def shell_word(text: str) -> str:
    return text if PLAIN_WORD.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"


def rows_by_partition(entries: Iterable[common_pb2.LiveEntry], types: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Files and rows of data files by partition."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for entry in entries:
        if entry.HasField("file"):
            counts = sums[partition_text(entry.file.partition, types)]
            counts[0] += 1
            counts[1] += entry.file.rows
    return {name: (files, rows) for name, (files, rows) in sums.items()}
