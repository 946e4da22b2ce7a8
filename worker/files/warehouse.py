"""The mark of a warehouse: a file that names its service. Everything that deletes checks it first.

    <warehouse>/_laketx/warehouse.json    {"service_id": "9f31c0d47a55", "history_epoch": "1-9f31c0d47a55"}

A location without the mark is not the warehouse: a wrong path, or a file system that isn't mounted. Every file to be
deleted would look deleted already there.

The first writer sets the mark if nothing contradicts it: the service has no files at all, or files of its tables are
in the location and none is missing. After that only `laketx warehouse adopt` sets it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs

from metaservice.client import DeniedError, MetaClient, MetaServiceError
from protos.laketx.v1 import common_pb2, maintenance_pb2
from worker.base.errors import InputError
from worker.files.storage import is_local, make_folder, storage

FOLDER: Final = "_laketx"
NAME: Final = "warehouse.json"
MARK_BYTES_MAX: Final = 10_000
TABLES_LOOKED_AT: Final = common_pb2.LIMIT_TABLES_LOOKED_AT
ADOPT: Final = "`laketx warehouse adopt --warehouse PATH`"
OLD_SERVICE: Final = "RPC_UNIMPLEMENTED"


@dataclass(frozen=True, slots=True)
class WarehouseMark:
    """The content of the mark."""

    service_id: str
    history_epoch: str


def location_of(warehouse: str) -> str:
    """Return the location as the service records it. Different spellings of one location become equal if possible."""
    if "://" not in warehouse and not warehouse.startswith("file:"):
        return os.path.realpath(warehouse)
    files, root = storage(warehouse.rstrip("/"))
    if is_local(files):
        return os.path.realpath(root)
    scheme, colon, rest = warehouse.partition(":")
    return {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme) + colon + rest.partition("?")[0].rstrip("/")


def read_mark(warehouse: str) -> WarehouseMark | None:
    files, root = storage(warehouse.rstrip("/"))
    try:
        with files.open_input_stream(f"{root}/{FOLDER}/{NAME}") as stream:
            content = json.loads(stream.read(MARK_BYTES_MAX))
        return WarehouseMark(str(content["service_id"]), str(content["history_epoch"]))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            "WAREHOUSE_FOREIGN", f"{FOLDER}/{NAME} in {warehouse} is not a valid mark: {error}; see {ADOPT}"
        ) from error


def check_mark(mark: WarehouseMark | None, recorded: maintenance_pb2.Warehouse, warehouse: str) -> None:
    """Refuse a location that is not the service's warehouse."""
    if mark is None:
        noted = f"; the service's warehouse is {recorded.location}" if recorded.location else ""
        raise InputError(
            "WAREHOUSE_UNMARKED",
            f"{warehouse} has no mark ({FOLDER}/{NAME}){noted}: correct the path, or mount the missing disk; if it is "
            f"this service's warehouse, {ADOPT} sets the mark",
        )
    if mark.service_id != recorded.service_id:
        raise InputError(
            "WAREHOUSE_FOREIGN",
            f"{warehouse} is the warehouse of service {mark.service_id}, this service is {recorded.service_id}: "
            f"correct the path or the service; if the other service is permanently out of use, {ADOPT} takes it over",
        )
    if mark.history_epoch != recorded.history_epoch:
        raise InputError(
            "WAREHOUSE_OF_OTHER_HISTORY",
            f"{warehouse} has the mark of history {mark.history_epoch}; after a restore from a backup this service has "
            f"{recorded.history_epoch}: if the other history is out of use, {ADOPT} takes the warehouse over",
        )


def check_warehouse(client: MetaClient, warehouse: str) -> None:
    """Check the mark. Called before anything in the warehouse is deleted, moved, or confirmed as gone."""
    check_mark(read_mark(warehouse), client.get_warehouse(), warehouse)


def adopt(client: MetaClient, warehouse: str) -> maintenance_pb2.Warehouse:
    """Set the mark on an operator's order."""
    recorded = client.get_warehouse()
    write_mark(warehouse, WarehouseMark(recorded.service_id, recorded.history_epoch))
    return client.set_warehouse(location_of(warehouse), marked=True, replace=True)


def mark_where_proven(client: MetaClient, warehouse: str) -> None:
    """Set the mark if nothing contradicts it. Called by a writer before it begins.

    If the location can't be proven, the mark not written, or the writer is no admin, an operator must adopt it.
    """
    try:
        recorded = client.get_warehouse()
    except MetaServiceError as error:
        if error.reason != OLD_SERVICE:
            raise
        return
    with suppress(OSError, pa.ArrowException, InputError, DeniedError):
        _mark(client, warehouse, recorded)


def _mark(client: MetaClient, warehouse: str, recorded: maintenance_pb2.Warehouse) -> None:
    location = location_of(warehouse)
    if recorded.marked or recorded.location not in ("", location):
        return
    own_mark, mark = WarehouseMark(recorded.service_id, recorded.history_epoch), read_mark(warehouse)
    if mark not in (None, own_mark):
        return
    if mark is None and not recorded.location and not recorded.unused and not _holds_files(client, warehouse):
        return
    if client.set_warehouse(location).location == location:
        if mark is None:
            write_mark(warehouse, own_mark)
        client.set_warehouse(location, marked=True)


def _holds_files(client: MetaClient, warehouse: str) -> bool:
    """Return whether files of tables are in the warehouse, and none of those checked is missing."""
    files, root = storage(warehouse.rstrip("/"))
    paths = list(islice(_oldest_files(client), TABLES_LOOKED_AT))
    infos = files.get_file_info([f"{root}/{path}" for path in paths]) if paths else []
    return bool(infos) and all(info.type == fs.FileType.File for info in infos)


def _oldest_files(client: MetaClient) -> Iterator[str]:
    """Yield one file of each table that has its own files."""
    for table in client.list_tables():
        if table.head_version:
            entries = client.list_files(table.table_id)
            own = (
                entry.file.path
                for entry in entries
                if entry.HasField("file") and not (entry.file.external or entry.file.inlined)
            )
            yield from (f"{table.folder_id or table.table_id}/{path}" for path in islice(own, 1))


def write_mark(warehouse: str, mark: WarehouseMark) -> None:
    """Write the mark completely or not at all."""
    files, root = storage(warehouse.rstrip("/"))
    raw = json.dumps(asdict(mark)).encode() + b"\n"
    make_folder(files, f"{root}/{FOLDER}")
    target = f"{root}/{FOLDER}/{NAME}"
    if not is_local(files):
        with files.open_output_stream(target) as stream:
            stream.write(raw)
        return
    unfinished = Path(f"{target}.{os.getpid()}")
    with unfinished.open("wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(target)


def describe(mark: WarehouseMark | None) -> str:
    return f"service {mark.service_id}, history {mark.history_epoch}" if mark is not None else "nobody"
