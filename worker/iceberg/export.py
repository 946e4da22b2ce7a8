"""Static Iceberg metadata of a version, for readers without a catalog: `metadata/vN.metadata.json` and its hint.

A reader finds the metadata by the hint, which is written last: an interrupted export leaves the previous one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from metaservice.shared.fork_files import folder_of_fork
from worker.base.errors import InputError
from worker.connection.table_view import TableView
from worker.iceberg.generated_files import GeneratedFiles
from worker.iceberg.locations import location_of
from worker.iceberg.metadata.facts import FORMATS, METADATA, MadeFile, TableFacts
from worker.iceberg.metadata.table_metadata import table_metadata
from worker.iceberg.snapshots import Snapshots, view_at

FOLDER: Final = "_iceberg"  # below the table's folder; a fork has its own
HINT: Final = "version-hint.text"


@dataclass(frozen=True, slots=True)
class Exported:
    """The exported version, the path of its metadata, and its totals."""

    version: int
    metadata: str
    files: int
    rows: int


def export(table: TableView, version: int, *, form: int = 3, folder: str = "") -> Exported:
    """Write the metadata of a version into a folder, by default below the table's. No data is copied.

    Tags up to the version are exported, too.
    """
    if form not in FORMATS:
        raise InputError("ICEBERG_FORMAT", f"Iceberg's format {form} is not written, but {FORMATS[0]} and {FORMATS[1]}")
    folder = folder or f"{table.folder}/{folder_of_fork(table.table_id) if table.meta.folder_id else FOLDER}"
    tags = [tag for tag in table.client.list_tags(table.table_id) if tag.version <= version]
    versions = sorted({version, *(tag.version for tag in tags)})
    pins = table.lake.pins.own_all(table.table_id, versions)
    target = GeneratedFiles(folder)
    _check(target, folder, table.table_id)
    location = location_of(folder).rstrip("/")
    schemas = list(table.client.list_schemas(table.table_id))
    snapshots = Snapshots(location, form, target.put_once)
    made = [snapshots.make(table, schemas, each) for each in versions]
    head = made[-1]
    written_schemas = [schema for schema in schemas if schema.version <= version]
    mapping = snapshots.mapping(table, schemas, versions)
    facts = TableFacts(view_at(table, schemas, version).meta, location, form)
    document = table_metadata(facts, written_schemas, made, tags, mapping)
    name = f"{METADATA}/v{head.snapshot_id}.metadata.json"
    target.settle()
    target.put(MadeFile(name, json.dumps(document, indent=1).encode()))
    target.put(MadeFile(f"{METADATA}/{HINT}", str(head.snapshot_id).encode()))
    for pin in pins:
        pin.release()
    return Exported(version, f"{location}/{name}", head.totals.files, head.totals.rows - head.totals.hidden)


def _check(files: GeneratedFiles, folder: str, table_id: str) -> None:
    """Refuse the folder of another table, whose files would be replaced."""
    try:
        hint = files.read(f"{METADATA}/{HINT}").decode().strip()
        owner = json.loads(files.read(f"{METADATA}/v{int(hint)}.metadata.json"))["table-uuid"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return
    if owner != table_id:
        raise InputError(
            "ICEBERG_FOLDER", f"{folder} has the metadata of another table, {owner}; choose another folder"
        )
