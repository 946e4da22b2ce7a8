"""One version of a table: its commit, its rows, and its difference from another version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa
from starlette.responses import RedirectResponse, Response

from metaservice.cli.values import types_of
from metaservice.client import GoneError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from worker.arrow.scan.plans import pinned_plan
from worker.arrow.scan.scanner import BATCH_BYTES
from worker.arrow.scan.version_rows import VersionRows
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.console.rendering import NONE, path_text
from worker.console.snippets import snippets_of
from worker.console.tables import rows_by_partition
from worker.console.visits import PageError, Shown, Visit, live_of, number_of
from worker.formats.text_values import cells, columns_of

MERGED_FROM, MERGE_CHECKS = "laketx.branch", "merge.checks"
ROWS_SHOWN: Final = 100
CELL_CHARS_MAX: Final = 200
ENTRIES_MAX: Final = 50_000
PARTITIONS_SHOWN: Final = 100
NO_WAREHOUSE: Final = "The console was started without --warehouse, so it can't open files."
COMMITS_MAX: Final = 1_000
TAGS_MAX: Final = 1_000
COMMENT_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """Files and rows of a partition that are live at one version and not at another."""

    name: str
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two versions."""

    partitions: Sequence[PartitionChange]
    delete_sets: int
    is_cut: bool


def version_of(visit: Visit) -> int:
    number = number_of("The version", visit.part("version"))
    assert number is not None, "a part of a path is not empty"
    return number


def find_version(client: MetaClient, table_id: str, number: int) -> read_pb2.Version:
    matching = read_pb2.VersionFilter(from_version=number, to_version=number)
    version = next(client.list_versions(table_id, matching=matching, page_size=1), None)
    if version is None:
        raise PageError(404, f"The table has no version {number}", "The timeline shows the versions that are kept.")
    return version


def show(visit: Visit) -> Shown:
    table, number = visit.table(), version_of(visit)
    version = find_version(visit.client, table.table_id, number)
    difference = None
    if number:
        try:
            difference = difference_of(visit.client, table, number - 1, number)
        except GoneError:
            difference = None
    facts = {
        "table": table,
        "version": version,
        "difference": difference,
        "tags": [each for each in islice(visit.client.list_tags(table.table_id), TAGS_MAX) if each.version == number],
        "checks": checks_of(visit.client, version, table.table_id),
        "snippets": snippets_of(table, number),
        "tab": "timeline",
    }
    return Shown("version.html", facts, live=live_of(table))


def checks_of(client: MetaClient, version: read_pb2.Version, table_id: str) -> str | None:
    """The queries that held before a branch was merged, "" if the table asks for none; None: this is no merge."""
    if MERGED_FROM not in version.properties:
        return None
    return client.get_table(table_id=table_id, version=version.version).properties.get(MERGE_CHECKS, "")


def tag(visit: Visit) -> Response:
    """Gives the version a name, under which it stays readable; a name that another version has is refused."""
    table, number = visit.table(), version_of(visit)
    name, comment = visit.form.get("name", "").strip(), visit.form.get("comment", "").strip()
    visit.client.create_tag(table.table_id, name, version=number, comment=comment)
    return RedirectResponse(path_text(f"/tables/{table.table_id}/versions/{number}"), 303)


def clone(visit: Visit) -> Response:
    """Makes a table that begins as the table was at the version."""
    table, number = visit.table(), version_of(visit)
    made = visit.client.clone_table(table.table_id, visit.form.get("name", "").strip(), version=number)
    return RedirectResponse(path_text(f"/tables/{made.table_id}"), 303)


def branch(visit: Visit) -> Response:
    """Makes a branch on which the table is as it was at the version; if it can't be, there is no branch."""
    table, number = visit.table(), version_of(visit)
    find_version(visit.client, table.table_id, number)
    comment = f"{table.name} at version {number}"[:COMMENT_CHARS_MAX]
    made = visit.client.create_branch(visit.form.get("name", "").strip(), comment=comment)
    try:
        begun = visit.client.get_table(name=f"{table.name}@{made.name}")
        if number < table.head_version:
            commit_restore(visit.client, begun, number)
    except BaseException:
        visit.client.drop_branch(made.name)
        raise
    return RedirectResponse(path_text(f"/branches/{made.name}"), 303)


def restore(visit: Visit) -> Response:
    """Commits the rows of the version as a new version; a lost race changes nothing."""
    table, number = visit.table(), version_of(visit)
    if visit.form.get("confirm") != table.name:
        raise PageError(400, "The restore was not confirmed", "Type the name of the table into the field.")
    restored = commit_restore(visit.client, table, number)
    return RedirectResponse(path_text(f"/tables/{table.table_id}/versions/{restored}"), 303)


def commit_restore(client: MetaClient, table: catalog_pb2.Table, number: int) -> int:
    """The version that has the rows of another one."""
    intent = transaction_pb2.TableIntent(table_id=table.table_id, operation=common_pb2.OPERATION_RESTORE)
    change = common_pb2.Change(table_id=table.table_id, scope=common_pb2.Scope(all=True), restore_version=number)
    with client.begin([intent], commit_message=f"restore version {number}") as txn:
        return txn.commit([change]).tables[0].version


def show_comparison(visit: Visit) -> Shown:
    table, client = visit.table(), visit.client
    first, second = visit.number("from"), visit.number("to")
    to_version = table.head_version if second is None else second
    from_version = max(to_version - 1, 0) if first is None else first
    from_version, to_version = sorted((from_version, to_version))
    facts: dict[str, object] = {
        "table": table,
        "from_version": from_version,
        "to_version": to_version,
        "tab": "compare",
    }
    if from_version == to_version:
        return Shown("compare.html", facts | {"difference": None})
    older = client.get_table(table_id=table.table_id, version=from_version)
    newer = client.get_table(table_id=table.table_id, version=to_version)
    matching = read_pb2.VersionFilter(from_version=from_version + 1, to_version=to_version)
    commits = list(islice(client.list_versions(table.table_id, matching=matching), COMMITS_MAX))
    facts |= {
        "difference": difference_of(client, newer, from_version, to_version),
        "columns": column_changes(older, newer),
        "properties": property_changes(older, newer),
        "logical": sum(each.HasField("time_version_us") for each in commits),
        "services": sum(not each.HasField("time_version_us") for each in commits),
        "rows_added": sum(each.rows_added for each in commits if each.HasField("time_version_us")),
        "rows_removed": sum(each.rows_removed for each in commits if each.HasField("time_version_us")),
        "are_all": len(commits) < COMMITS_MAX,
    }
    return Shown("compare.html", facts)


def difference_of(client: MetaClient, table: catalog_pb2.Table, from_version: int, to_version: int) -> Difference:
    parts = client.plan_changes(table.table_id, from_version, to_version, mode=read_pb2.CHANGES_MODE_DIFFERENCE)
    added: list[common_pb2.LiveEntry] = []
    removed: list[common_pb2.LiveEntry] = []
    is_cut = False
    for part in parts:
        added += part.added
        removed += part.removed
        if len(added) + len(removed) > ENTRIES_MAX:
            is_cut = True
            break
    types = types_of(table)
    new, old = rows_by_partition(added, types), rows_by_partition(removed, types)
    changes = [
        PartitionChange(name, *(side.get(name, (0, 0))[at] for at in (0, 1) for side in (new, old)))
        for name in sorted({*new, *old})
    ]
    delete_sets = sum(entry.HasField("delete_set") for entry in added)
    return Difference(changes[:PARTITIONS_SHOWN], delete_sets, is_cut or len(changes) > PARTITIONS_SHOWN)


def column_changes(older: catalog_pb2.Table, newer: catalog_pb2.Table) -> list[tuple[str, str, str]]:
    """Columns that differ, by their ids: name, then and now."""
    before = {each.column_id: each for each in older.columns}
    after = {each.column_id: each for each in newer.columns}
    changes = []
    for column_id in sorted({*before, *after}):
        old, new = before.get(column_id), after.get(column_id)
        texts = [column_text(each) if each is not None else NONE for each in (old, new)]
        if texts[0] != texts[1]:
            changes.append(((new or old or catalog_pb2.Column()).name, *texts))
    return [(name, then, now) for name, then, now in changes]


def column_text(column: catalog_pb2.Column) -> str:
    return f"{column.name} {column.type}{'' if column.nullable else ' NOT NULL'}"


def property_changes(older: catalog_pb2.Table, newer: catalog_pb2.Table) -> list[tuple[str, str, str]]:
    names = sorted({*older.properties, *newer.properties})
    pairs = [(name, older.properties.get(name, NONE), newer.properties.get(name, NONE)) for name in names]
    return [pair for pair in pairs if pair[1] != pair[2]]


# -- rows --------------------------------------------------------------------------------------------------------------


def show_rows(visit: Visit) -> Shown:
    table, named = visit.table(), visit.number("version")
    version = table.head_version if named is None else named
    facts: dict[str, object] = {
        "table": table,
        "version": version,
        "tab": "rows",
        "snippets": snippets_of(table, version),
        "rows": [],
        "columns": [],
        "most": ROWS_SHOWN,
        "problem": "",
    }
    if not visit.lake.warehouse:
        return Shown("rows.html", facts | {"problem": NO_WAREHOUSE})
    try:
        schema, rows = first_rows(TableView(visit.lake, table), version)
    except (OSError, pa.ArrowException, InputError) as error:
        return Shown("rows.html", facts | {"problem": f"The rows can't be read: {error}"}, 409)
    live = live_of(table) if named is None else ""
    return Shown("rows.html", facts | {"columns": columns_of(schema), "rows": rows}, live=live)


def first_rows(view: TableView, version: int) -> tuple[pa.Schema, list[list[str]]]:
    """Some rows of a version, as text; the version is pinned while they are read."""
    planned = pinned_plan(view, version)
    if planned is None:
        raise PageError(409, "The service is too old for the console to read rows", "Upgrade the service.")
    reader = VersionRows(planned.table, planned.pinned.version, planned)
    names = reader.schema.names
    rows: list[list[str]] = []
    try:
        for part in reader.tables(names, None, BATCH_BYTES):
            for batch in part.slice(0, ROWS_SHOWN - len(rows)).to_batches():
                rows += [list(cut(row)) for row in cells(batch)]
            if len(rows) >= ROWS_SHOWN:
                break
    finally:
        planned.pinned.release()
    return reader.schema, rows


def cut(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield value if len(value) <= CELL_CHARS_MAX else f"{value[:CELL_CHARS_MAX]}…"
