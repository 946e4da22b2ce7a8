"""Planned files in the JSON of the REST catalog's specification."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal as Number
from typing import Any, Final

import numpy as np

from metaservice.shared.column_types import Decimal, Type
from protos.laketx.v1 import catalog_pb2, common_pb2
from worker.iceberg.metadata.delete_files import DeleteFile
from worker.iceberg.metadata.entries import measured
from worker.iceberg.metadata.facts import ShownFile
from worker.iceberg.metadata.partitions import PartitionColumn
from worker.iceberg.metadata.schemas import primitive
from worker.iceberg.metadata.values import FLOATS, plain_of

SPEC_ID: Final = 0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of a plan, and its delete file."""

    shown: ShownFile
    deletes: DeleteFile | None


class ScanTasks:
    """Writes the tasks of plans under one version of the schema."""

    def __init__(
        self,
        partitions: Sequence[PartitionColumn],
        columns: Sequence[catalog_pb2.Column],
        form: int,
        with_stats: Collection[int] = (),
        *,
        takes_null: bool = True,
    ) -> None:
        """`with_stats` are the columns with statistics. pyiceberg rejects NULL among partition values."""
        self._partitions = [
            (partition.name, plain_of(partition.kind), json_of(partition.kind)) for partition in partitions
        ]
        self._columns = {
            number: (column, json_of(column.kind))
            for number, column in measured(columns).items()
            if number in with_stats
        }
        self._has_row_ids = form >= 3
        self._takes_null = takes_null

    def answer(self, files: Sequence[PlannedFile], residual: Any) -> Json:
        """Return the tasks of the files. Readers filter their rows by the residual."""
        deletes: list[Json] = []
        tasks: list[Json] = []
        for planned in files:
            task: Json = {"data-file": self._data_file(planned.shown), "residual-filter": residual}
            if planned.deletes is not None:
                task["delete-file-references"] = [len(deletes)]
                deletes.append(self._delete_file(planned.shown, planned.deletes))
            tasks.append(task)
        return {"file-scan-tasks": tasks} | ({"delete-files": deletes} if deletes else {})

    def _content_file(self, shown_file: ShownFile, content: str, path: str, form: str, size: int, rows: int) -> Json:
        return {
            "content": content,
            "spec-id": SPEC_ID,
            "file-path": path,
            "file-format": form,
            "partition": self._partition(shown_file),
            "file-size-in-bytes": size,
            "record-count": rows,
        }

    def _partition(self, shown_file: ShownFile) -> list[Any]:
        """Return the values of the partition; none if the reader rejects NULL, and NULL is among them."""
        values = {partition_value.column: partition_value.value for partition_value in shown_file.file.partition.values}
        plain = [(read(values[name]), shown) for name, read, shown in self._partitions]
        if not self._takes_null and any(value is None for value, _ in plain):
            return []
        return [None if value is None else shown(value) for value, shown in plain]

    def _data_file(self, shown_file: ShownFile) -> Json:
        file = shown_file.file
        content_file = self._content_file(shown_file, "data", shown_file.path, "parquet", file.bytes, file.rows)
        if self._has_row_ids and file.HasField("first_row_id"):
            content_file["first-row-id"] = file.first_row_id
        return content_file | (self._statistics(file) if self._columns else {})

    def _statistics(self, file: common_pb2.DataFile) -> Json:
        counts: dict[int, int] = {}
        nulls: dict[int, int] = {}
        lower: dict[int, Any] = {}
        upper: dict[int, Any] = {}
        for stats in file.stats:
            if stats.column_id not in self._columns:
                continue
            column, shown = self._columns[stats.column_id]
            counts[stats.column_id] = file.rows
            if stats.HasField("nulls"):
                nulls[stats.column_id] = stats.nulls
            for ends, value in zip((lower, upper), column.ends(stats, file), strict=True):
                if value is not None and not (column.is_float and math.isinf(value)):
                    ends[stats.column_id] = shown(value)
        named: dict[str, dict[int, Any]] = {
            "value-counts": counts,
            "null-value-counts": nulls,
            "lower-bounds": lower,
            "upper-bounds": upper,
        }
        return {name: {"keys": [*by_column], "values": [*by_column.values()]} for name, by_column in named.items()}

    def _delete_file(self, shown_file: ShownFile, written: DeleteFile) -> Json:
        place = written.place
        form = "parquet" if place is None else "puffin"
        content_file = self._content_file(
            shown_file, "position-deletes", written.path, form, written.size, len(shown_file.hidden)
        )
        content_file["referenced-data-file"] = shown_file.path
        return content_file | (
            {} if place is None else {"content-offset": place.offset, "content-size-in-bytes": place.length}
        )


def json_of(kind: Type) -> Callable[[Any], Any]:
    """Return the writer of a type's plain values in JSON."""
    if isinstance(kind, Decimal):
        return lambda value: f"{Number(value).scaleb(-kind.scale):f}"
    name = primitive(kind)
    match name:
        case "date":
            return lambda value: str(np.datetime64(value, "D"))
        case "timestamp":
            return lambda value: str(np.datetime64(value, "us"))
        case "timestamptz":
            return lambda value: f"{np.datetime64(value, 'us')}+00:00"
        case "binary":
            return lambda value: value.hex().upper()
        case _ if name in FLOATS:
            return float
        case _:
            return lambda value: value
