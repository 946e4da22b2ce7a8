"""Files whose rows are loaded into a table, read part by part in the table's shape. No Spark here.

Cells of CSV and values of JSON are typed by the table's columns. Columns of Parquet and Arrow are cast as those of an
append. What doesn't fit is refused with its file, its line or row, and its column.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from json import JSONDecodeError
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from metaservice.cli.failures import CommandError, Exit
from protos.laketx.v1 import catalog_pb2
from worker.arrow.write.input_rows import default_of, fitted
from worker.base.errors import InputError
from worker.files.arrow_types import arrow_schema
from worker.files.footers import top_leaves
from worker.files.storage import in_pages
from worker.formats.csv_records import Records, read_records
from worker.formats.json_lines import Pairs, decode, from_documents
from worker.formats.rejects import REFUSALS, Place, UnfitError, first_refused
from worker.formats.text_blocks import Block, text_blocks, whole_lines
from worker.formats.text_parser import from_texts

STDIN: Final = "-"
WITH_SCHEMA: Final = ("parquet", "arrow")
ROWS_AT_ONCE: Final = 1 << 16
CUT_OFF: Final = "; does the file end in the middle of a line?"
MISSING: Final = object()
INSTANT: Final = pa.timestamp("us", "UTC")
NEXT: Final = "correct it and load again; nothing was written"


@dataclass
class Meter:
    """Counts the bytes that were read. The total is 0 if it is unknown."""

    done: int = 0
    total: int = 0


@dataclass(frozen=True)
class Target:
    """The table to load into. `fixed` are the values of the partition that the rows replace."""

    meta: catalog_pb2.Table
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def kinds(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in arrow_schema(self.meta)}

    def check_names(self, names: Sequence[str]) -> None:
        columns = {column.name.lower() for column in self.meta.columns}
        lower = [name.lower() for name in names]
        for name in names:
            if name.lower() not in columns:
                raise UnfitError("COLUMN_UNKNOWN", f"{self.meta.name} has no column {name}", name)
            if lower.count(name.lower()) > 1:
                raise UnfitError("COLUMN_TWICE", f"the column {name} is there twice", name)

    def shaped(self, rows: pa.Table) -> pa.Table:
        """Return rows in the table's order and types, with the columns that they lack."""
        kinds, present = self.kinds(), {name.lower() for name in rows.column_names}
        for name, value in self.fixed.items():
            if name.lower() not in present:
                rows = rows.append_column(name, pa.repeat(pa.scalar(value, kinds[name]), len(rows)))
        table_rows = fitted(rows, self.meta)
        for name, value in self.fixed.items():
            if not _all_are(table_rows.column(name), pa.scalar(value, kinds[name])):
                raise UnfitError("ROW_OUTSIDE_PARTITION", "a row belongs to another partition", name)
        return table_rows

    def value_of_missing(self, column: catalog_pb2.Column, kind: pa.DataType) -> pa.Scalar:
        """Return the value of a column in a row that lacks it while other rows have it."""
        if column.name in self.fixed:
            return pa.scalar(self.fixed[column.name], kind)
        if column.name in self.meta.partition_columns or not (column.nullable or column.default_sql):
            raise UnfitError(
                "COLUMN_MISSING", f"a row lacks {column.name}, which {self.meta.name} requires", column.name
            )
        return default_of(column, kind)


def _all_are(values: Any, expected: pa.Scalar) -> bool:
    if not expected.is_valid:
        return bool(values.null_count == len(values))
    return bool(pc.all(pc.equal(values, expected).fill_null(False), min_count=0).as_py())


@dataclass(frozen=True)
class Part:
    """Some rows of a file: `made` returns a range of them in the table's shape, or refuses them.

    The first part of a file with columns is empty: what is refused there is wrong whatever the rows.
    """

    count: int
    made: Callable[[int, int], pa.Table]
    place: Callable[[int], Place]

    def rows(self) -> pa.Table:
        try:
            return self.made(0, self.count)
        except REFUSALS as error:
            if not self.count:
                raise _unfit(error, None) from error
        at = first_refused(self.count, self.made)
        try:
            self.made(at, at + 1)
        except REFUSALS as error:
            raise _unfit(error, self.place(at)) from error
        raise AssertionError("a row that was refused among others is refused alone")


def _unfit(error: Exception, place: Place | None) -> UnfitError:
    if isinstance(error, InputError):
        return UnfitError(error.reason, str(error).removeprefix(f"{error.reason}: "), place=place)
    assert isinstance(error, UnfitError)
    return UnfitError(error.reason, error.message, error.column, error.place or place)


@dataclass
class Source:
    """A file, or standard input."""

    path: str
    form: str
    meter: Meter
    _was_read: bool = False

    @property
    def name(self) -> str:
        return "standard input" if self.path == STDIN else self.path

    @property
    def is_read_once(self) -> bool:
        """Return whether the source is a pipe or standard input, which can't be read again."""
        return self.path == STDIN or not Path(self.path).is_file()

    def schema(self) -> pa.Schema:
        """Return the schema of a file that has one."""
        with self._refusals():
            return _parquet_schema(self.path) if self.form == "parquet" else _arrow_schema(self.path)

    def batches(self, target: Target) -> Iterator[pa.RecordBatch]:
        """Yield the rows in the target's shape. A file can be read again, standard input can't."""
        if self._was_read and self.is_read_once:
            message = f"{self.name} was read already, and {target.meta.name} has changed since"
            raise CommandError(Exit.REFUSED, "INPUT_CONSUMED", message, next_step="load again; nothing was written")
        self._was_read = True
        with self._refusals():
            for part in PARTS[self.form](self, target):
                yield from part.rows().to_batches()

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        if self.path == STDIN:
            yield io.BufferedReader(_Metered(sys.stdin.buffer, self.meter))
        else:
            with Path(self.path).open("rb") as file:
                yield io.BufferedReader(_Metered(file, self.meter))

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except UnfitError as error:
            raise self._refusal(error) from error
        except (OSError, pa.ArrowException) as error:
            raise CommandError(Exit.REFUSED, "FILE_UNREADABLE", str(error), {"file": self.name}, NEXT) from error

    def _refusal(self, error: UnfitError) -> CommandError:
        facts = {"file": self.name}
        where = self.name
        if error.place is not None:
            unit, number = error.place
            facts[unit] = str(number)
            where += f", {unit} {number}"
        if error.column:
            facts["column"] = error.column
            where += f", {error.column}"
        return CommandError(Exit.REFUSED, error.reason, f"{where}: {error.message}", facts, NEXT)


class _Metered(io.RawIOBase):
    """A file whose bytes are counted as they are read."""

    def __init__(self, file: BinaryIO, meter: Meter) -> None:
        self._file = file
        self._meter = meter

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._meter.done += count
        return int(count)


# -- CSV ---------------------------------------------------------------------------------------------------------------


def _csv_parts(source: Source, target: Target) -> Iterator[Part]:
    with source.opened() as file:
        fields: list[pa.Field] = []
        for records in read_records(file):
            fields = fields or _csv_fields(records.names, target)
            yield _csv_part(records, fields, target)


def _csv_fields(names: list[str], target: Target) -> list[pa.Field]:
    target.check_names(names)
    columns = {column.name.lower(): column for column in arrow_schema(target.meta)}
    fields = [columns[name.lower()] for name in names]
    for arrow_field in fields:
        if pa.types.is_nested(arrow_field.type):
            message = "CSV has no arrays, maps and structs: load JSON, Parquet or Arrow"
            raise UnfitError("COLUMN_NESTED", message, arrow_field.name)
    return fields


def _csv_part(records: Records, fields: Sequence[pa.Field], target: Target) -> Part:
    def made(begin: int, end: int) -> pa.Table:
        cells = records.cells.slice(begin, end - begin)
        typed = [
            from_texts(cells.column(at).combine_chunks(), field.type, field.name) for at, field in enumerate(fields)
        ]
        return target.shaped(pa.table(typed, names=[field.name for field in fields]))

    return Part(len(records.cells), made, lambda at: ("line", int(records.lines[at])))


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json_parts(source: Source, target: Target) -> Iterator[Part]:
    with source.opened() as file:
        for block in text_blocks(file, whole_lines):
            yield _json_part(block, target)


def _json_part(block: Block, target: Target) -> Part:
    columns = list(target.meta.columns)
    kinds = target.kinds()
    places = {column.name.lower(): at for at, column in enumerate(columns)}
    lines, rows = [], []
    for line, text in _lines(block):
        lines.append(line)
        rows.append(_cells(_document(text, line, block), places, line, target))

    def made(begin: int, end: int) -> pa.Table:
        typed = []
        for at, column in enumerate(columns):
            values = [row[at] for row in rows[begin:end]]
            typed.append(_json_column(values, column, kinds[column.name], target))
        return target.shaped(pa.table(typed, names=[column.name for column in columns]))

    return Part(len(rows), made, lambda at: ("line", lines[at]))


def _lines(block: Block) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty."""
    for line, text in enumerate(block.data.decode().split("\n"), block.line):
        if not text.isspace() and text:
            yield line, text


def _document(text: str, line: int, block: Block) -> Pairs:
    try:
        document = decode(text)
    except (ValueError, RecursionError) as error:
        is_cut = block.is_last and not block.data.endswith(b"\n") and line == block.line + block.data.count(b"\n")
        why = f"{error.msg} at character {error.pos + 1}" if isinstance(error, JSONDecodeError) else str(error)
        message = f"this is no JSON: {why}{CUT_OFF if is_cut else ''}"
        raise UnfitError("LINE_INVALID", message, place=("line", line)) from error
    if not isinstance(document, Pairs):
        raise UnfitError(
            "LINE_INVALID", "a line of JSON is an object, with a value for each column", place=("line", line)
        )
    return document


def _cells(document: Pairs, places: Mapping[str, int], line: int, target: Target) -> list[Any]:
    row: list[Any] = [MISSING] * len(places)
    for name, value in document:
        at = places.get(name.lower())
        if at is None or row[at] is not MISSING:
            try:
                target.check_names([field_name for field_name, _ in document])
            except UnfitError as error:
                raise _unfit(error, ("line", line)) from error
        else:
            row[at] = value
    return row


def _json_column(values: list[Any], column: catalog_pb2.Column, kind: pa.DataType, target: Target) -> Any:
    missing = [value is MISSING for value in values]
    if not any(missing):
        return from_documents(values, kind, column.name)
    instead = target.value_of_missing(column, kind)
    given = from_documents([None if value is MISSING else value for value in values], kind, column.name)
    return pc.if_else(pa.array(missing), instead, given) if instead.is_valid else given


# -- Parquet and Arrow -------------------------------------------------------------------------------------------------


def _parquet_parts(source: Source, target: Target) -> Iterator[Part]:
    begin, size, row = source.meter.done, Path(source.path).stat().st_size, 0
    with in_pages(source.path) as opened:
        instants = _old_instants(opened.metadata)
        yield _batch_part(_with_instants(opened.schema_arrow.empty_table(), instants), 0, target)
        for batch in opened.iter_batches(batch_size=ROWS_AT_ONCE):
            yield _batch_part(_with_instants(pa.Table.from_batches([batch]), instants), row, target)
            row += len(batch)
            source.meter.done = begin + size * row // opened.metadata.num_rows


def _parquet_schema(path: str) -> pa.Schema:
    with in_pages(path) as opened:
        return _with_instants(opened.schema_arrow.empty_table(), _old_instants(opened.metadata)).schema


def _old_instants(footer: Any) -> frozenset[str]:
    """Return the columns of the old type of Spark and Hive for instants, which is not marked as such."""
    leaves = top_leaves(footer)
    return frozenset(name for name, at in leaves.items() if footer.schema.column(at).physical_type == "INT96")


def _with_instants(rows: pa.Table, names: frozenset[str]) -> pa.Table:
    for at, arrow_field in enumerate(rows.schema):
        if arrow_field.name in names:
            instants = rows.column(at).cast(pa.timestamp(arrow_field.type.unit)).cast(INSTANT)
            rows = rows.set_column(at, arrow_field.name, instants)
    return rows


def _arrow_parts(source: Source, target: Target) -> Iterator[Part]:
    """Yield the parts of Arrow data. A file is mapped into memory, a stream is read as it comes."""
    if source.is_read_once:
        with source.opened() as file, pa.ipc.open_stream(file) as opened:
            yield from _arrow_rows(opened.schema, opened, target)
        return
    begin = source.meter.done
    with pa.memory_map(source.path) as mapped:
        opened = _arrow_reader(mapped)
        yield from _arrow_rows(opened.schema, _metered(opened, source.meter, mapped.size()), target)
        source.meter.done = begin + mapped.size()


def _arrow_schema(path: str) -> pa.Schema:
    with pa.memory_map(path) as mapped:
        return _arrow_reader(mapped).schema


def _arrow_reader(mapped: Any) -> Any:
    """Return a reader of Arrow's file format, which ends with an index, or of its stream format."""
    try:
        return pa.ipc.open_file(mapped)
    except pa.ArrowInvalid:
        mapped.seek(0)
        return pa.ipc.open_stream(mapped)


def _metered(opened: Any, meter: Meter, size: int) -> Iterator[pa.RecordBatch]:
    if not isinstance(opened, pa.ipc.RecordBatchFileReader):
        yield from opened
        return
    begin, count = meter.done, opened.num_record_batches
    for at in range(count):
        yield opened.get_batch(at)
        meter.done = begin + size * (at + 1) // count


def _arrow_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], target: Target) -> Iterator[Part]:
    yield _batch_part(schema.empty_table(), 0, target)
    row = 0
    for batch in batches:
        for at in range(0, len(batch), ROWS_AT_ONCE):
            yield _batch_part(pa.Table.from_batches([batch.slice(at, ROWS_AT_ONCE)]), row + at, target)
        row += len(batch)


def _batch_part(rows: pa.Table, before: int, target: Target) -> Part:
    target.check_names(rows.column_names)
    return Part(
        len(rows),
        lambda begin, end: target.shaped(rows.slice(begin, end - begin)),
        lambda at: ("row", before + at + 1),
    )


PARTS: Final[Mapping[str, Callable[[Source, Target], Iterator[Part]]]] = {
    "csv": _csv_parts,
    "json": _json_parts,
    "parquet": _parquet_parts,
    "arrow": _arrow_parts,
}
