"""`laketx show`: a table as it was at one version, and the commit that made it so."""

from __future__ import annotations

from typing import Unpack

import click

from metaservice.cli.command import command
from metaservice.cli.failures import CommandError, Exit
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from metaservice.cli.parameters import AsOf, table_argument, version_options
from metaservice.cli.values import partition_text, size_text, when, word
from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2


@command("show")
@table_argument
@version_options
@click.option("--no-totals", is_flag=True, help="Show the commit only: don't count the files that were live.")
def run(session: Session, table: str, no_totals: bool, **as_of: Unpack[AsOf]) -> None:
    """Show a table at a version or time: the commit, and what was live.

    laketx show shop.orders --version 41
    `live rows` are the rows that a reader sees. If files may contain hidden rows, the service knows only an upper
    bound; `laketx count` reads the files for the exact number. In JSON `rows` are the rows in the files, and
    `visible_rows` is left out where it is unknown.
    """
    client = session.client
    meta = find_table(client, table)
    number = client.resolve_version(meta.table_id, **as_of).version
    commit = find_commit(client, meta, number)
    totals = {} if no_totals else count_live(client, meta.table_id, number)
    if session.as_json:
        session.show_json({"table": meta.name, "commit": commit, **({"live": totals} if totals else {})})
        return
    session.show_pairs(
        [("table", meta.name), *commit_pairs(commit), *live_pairs(totals, f"{meta.name} --version {number}")]
    )


def find_commit(client: MetaClient, table: catalog_pb2.Table, number: int) -> read_pb2.Version:
    matching = read_pb2.VersionFilter(from_version=number, to_version=number)
    for commit in client.list_versions(table.table_id, matching=matching, page_size=1):
        return commit
    facts = {"table": table.name, "version": str(number)}
    raise CommandError(
        Exit.NOT_FOUND, "VERSION_RETIRED", "its commit is no longer kept", facts, f"laketx versions {table.name}"
    )


def commit_pairs(commit: read_pb2.Version) -> list[tuple[str, object]]:
    properties = ", ".join(f"{name}={value}" for name, value in sorted(commit.properties.items()))
    return [
        ("version", commit.version),
        ("committed", f"{when(commit.commit_time_us)} UTC"),
        ("time version", when(commit.time_version_us) if commit.HasField("time_version_us") else "none"),
        ("operation", word(common_pb2.Operation.Name, commit.operation)),
        ("who", commit.principal.name),
        ("client", commit.principal.client),
        ("message", commit.commit_message),
        ("properties", properties),
        ("transaction", commit.txn_id),
        ("took files from", commit.adopt_from),
        ("read version", commit.read_version),
        ("rebased over", commit.rebased_over or ""),
        ("files", f"+{commit.files_added} -{commit.files_removed}"),
        ("rows", f"+{commit.rows_added} -{commit.rows_removed}"),
        ("bytes", f"+{size_text(commit.bytes_added)} -{size_text(commit.bytes_removed)}"),
        ("delete sets", f"+{commit.delete_sets_added} -{commit.delete_sets_removed}"),
    ]


def live_pairs(totals: dict[str, int], which: str) -> list[tuple[str, object]]:
    if not totals:
        return []
    at_most = f"at most {totals['rows']}: `laketx count {which}` tells"
    return [
        ("live", f"{totals['files']} files, {totals['delete_sets']} delete sets, {totals['partitions']} partitions"),
        ("live rows", totals.get("visible_rows", at_most)),
        ("live bytes", size_text(totals["bytes"])),
    ]


def count_live(client: MetaClient, table_id: str, version: int) -> dict[str, int]:
    totals = {"files": 0, "delete_sets": 0, "rows": 0, "bytes": 0}
    partitions = set()
    written: dict[tuple[str, int], int] = {}
    may_hide = False
    for entry in client.list_files(table_id, version=version):
        if entry.HasField("file"):
            totals["files"] += 1
            totals["rows"] += entry.file.rows
            totals["bytes"] += entry.file.bytes
            partition = partition_text(entry.file.partition)
            partitions.add(partition)
            may_hide = may_hide or hides(entry, written, (partition, entry.file.bucket))
        else:
            totals["delete_sets"] += 1
            may_hide = True
    visible = {} if may_hide else {"visible_rows": totals["rows"]}
    return {**totals, **visible, "partitions": len(partitions)}


def hides(entry: common_pb2.LiveEntry, written: dict[tuple[str, int], int], bucket: tuple[str, int]) -> bool:
    """Whether a file may hold tombstones, or newer rows of the keys that another file of its bucket holds."""
    match entry.file.kind:
        case common_pb2.FILE_KIND_UNSPECIFIED:
            return False
        case common_pb2.FILE_KIND_BASE:
            return written.setdefault(bucket, entry.data_version) != entry.data_version
        case _:
            return True
