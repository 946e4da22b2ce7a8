"""`laketx export`: the rows of a version as one file, written part by part. No Spark here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from laketx.commands.head import Selection, batches, open_table, scan_of
from laketx.table import Table
from metaservice.cli.failures import CommandError, Exit, usage_failure
from metaservice.cli.output import Session
from metaservice.cli.parameters import AsOf
from metaservice.client import uuid7
from protos.laketx.v1 import catalog_pb2
from worker.files.parquet_options import options_of
from worker.files.storage import is_local, storage
from worker.formats.text_values import csv_line, csv_lines, json_lines
from worker.services.commands import warehouse_of

STDOUT: Final = "-"
ROW_GROUP_BYTES: Final = 64 << 20
FORMATS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
}
Batches = Iterable[pa.RecordBatch]


def run_export(
    session: Session,
    table: str,
    to: str,
    form: str | None,
    overwrite: bool,
    columns: str | None,
    where: str | None,
    warehouse: str | None,
    **as_of: Unpack[AsOf],
) -> None:
    write = WRITERS[form or form_of(to)]
    target = None if to == STDOUT else target_of(to, warehouse_of(session, warehouse), overwrite=overwrite)
    with open_table(session, table, warehouse) as opened:
        scan = scan_of(opened, Selection(columns=columns, where=where), as_of)
        if write is write_csv:
            refuse_nested(scan.schema)
        if target is None:
            rows = write(sys.stdout.buffer, scan.schema, batches(opened, scan), opened.meta)
            session.note(f"{rows} rows of {opened.name}, version {scan.version}")
            return
        refuse_own_files(target, opened, scan.version)
        with filled(target, overwrite=overwrite) as sink:
            rows = write(sink, scan.schema, batches(opened, scan), opened.meta)
    answer = {"table": opened.name, "version": scan.version, "rows": rows, "file": str(target)}
    session.done(f"exported {rows} rows of {opened.name}, version {scan.version}, to {target}", answer)


# -- what can't be written so ------------------------------------------------------------------------------------------


def form_of(to: str) -> str:
    suffix = Path(to).suffix.lower()
    if suffix not in FORMATS:
        message = "--to: standard output has no format" if to == STDOUT else f"--to: `{to}` names no format"
        raise usage_failure(message, next_step=f"end it with {', '.join(FORMATS)}, or say --format")
    return FORMATS[suffix]


def refuse_nested(schema: pa.Schema) -> None:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise CommandError(
            Exit.REFUSED,
            "COLUMN_NESTED",
            f"CSV has no arrays, maps and structs, such as {nested[0]}",
            {"columns": ", ".join(nested)},
            "leave them out with --columns, or write JSON or Parquet",
        )


def target_of(to: str, warehouse: str, *, overwrite: bool) -> Path:
    """Links are followed: what they lead to is replaced."""
    if "://" in to:
        raise bad_place(to, "is no file of this machine", "write it here, then copy it")
    target = Path(to).resolve()
    files, place = storage(warehouse)
    if is_local(files) and target.is_relative_to(Path(place).resolve()):
        raise bad_place(to, "lies among the lake's own files", "choose another folder")
    if not target.parent.is_dir():
        raise bad_place(to, "lies in a folder that doesn't exist", f"mkdir -p {target.parent}")
    if target.exists() and not target.is_file():
        raise bad_place(to, "is not a file", "choose another name")
    if not overwrite:
        refuse_existing(target)
    return target


def bad_place(to: str, why: str, next_step: str) -> CommandError:
    return CommandError(Exit.REFUSED, "PATH_INVALID", f"{to} {why}", next_step=next_step)


def refuse_existing(target: Path) -> None:
    if target.exists():
        raise CommandError(Exit.REFUSED, "FILE_EXISTS", f"{target} exists", next_step="--overwrite replaces it")


def refuse_own_files(target: Path, table: Table, version: int) -> None:
    """Imported files lie anywhere."""
    if not target.exists():
        return
    for entry in table.view.client.list_files(table.table_id, version=version):
        if entry.file.external and "://" not in entry.file.path and Path(entry.file.path).resolve() == target:
            raise bad_place(str(target), "belongs to the table itself", "choose another name")


# -- the file ----------------------------------------------------------------------------------------------------------


@contextmanager
def filled(target: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """A file that takes the target's name when it is complete, and is gone when it fails."""
    unfinished = target.with_name(f".{uuid7()}.unfinished")
    try:
        with unfinished.open("xb") as sink:
            yield sink
        if not overwrite:
            refuse_existing(target)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def write_csv(sink: BinaryIO, schema: pa.Schema, rows: Batches, _: catalog_pb2.Table) -> int:
    sink.write(csv_line(schema.names).encode())
    return write_texts(sink, csv_lines, rows)


def write_json(sink: BinaryIO, _: pa.Schema, rows: Batches, __: catalog_pb2.Table) -> int:
    return write_texts(sink, json_lines, rows)


def write_texts(sink: BinaryIO, lines: Callable[[pa.RecordBatch], str], rows: Batches) -> int:
    count = 0
    for batch in rows:
        sink.write(lines(batch).encode())
        count += len(batch)
    sink.flush()
    return count


def write_parquet(sink: BinaryIO, schema: pa.Schema, rows: Batches, table: catalog_pb2.Table) -> int:
    """Write Parquet. Floats get no bounds, as whether they include NaN is known only at the end."""
    floats = frozenset(field.name for field in schema if pa.types.is_floating(field.type))
    count = 0
    with pq.ParquetWriter(sink, schema, **options_of(table, schema, floats)) as writer:
        for group in row_groups(rows):
            writer.write_table(group, row_group_size=len(group))
            count += len(group)
    return count


def row_groups(rows: Batches) -> Iterator[Any]:
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in rows:
        waiting.append(batch)
        size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


WRITERS: Final[Mapping[str, Callable[[BinaryIO, pa.Schema, Batches, catalog_pb2.Table], int]]] = {
    "csv": write_csv,
    "json": write_json,
    "parquet": write_parquet,
}
