"""The log of a Delta table: the live files by its checkpoint and the commits after it.

_delta_log/00000000000000000010.checkpoint.parquet      all that is live at version 10
_delta_log/00000000000000000011.json                    what version 11 added and removed
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from worker.base.errors import InputError
from worker.files.storage import storage
from worker.imports.planning import Meter

LOG: Final = "_delta_log"
SIDECARS: Final = "_sidecars"
COMMIT: Final = re.compile(r"(\d{20})\.json\Z")
CHECKPOINT: Final = re.compile(
    r"(\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<own>[0-9a-f-]{36}))?\.(?P<form>parquet|json)\Z"
)
COLUMNS: Final = (
    *("add.path", "add.partitionValues", "add.size", "add.stats", "add.deletionVector"),
    *("metaData", "protocol", "sidecar.path"),
)
ROWS_AT_ONCE: Final = 20_000

Action = Mapping[str, Any]


@dataclass(slots=True)
class DeltaState:
    """A version of a table: its protocol, its metadata, its files by path."""

    version: int = -1
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    adds: dict[str, Action] = field(default_factory=dict)

    def apply(self, actions: Sequence[Action]) -> None:
        """Apply the actions of one commit, in any order: a file that gets another vector is removed and added."""
        for action in actions:
            if remove := action.get("remove"):
                live = self.adds.get(remove["path"])
                if live is not None and vector_id(live) == vector_id(remove):
                    del self.adds[remove["path"]]
        self.put(actions)

    def put(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if add := action.get("add"):
                self.adds[add["path"]] = add
            elif metadata := action.get("metaData"):
                self.metadata = metadata
            elif protocol := action.get("protocol"):
                self.protocol = protocol


def vector_id(file: Action) -> tuple[object, ...]:
    """Return what identifies the deletion vector of an action."""
    vector = file.get("deletionVector") or {}
    return vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")


def read_log(table: str, meter: Meter) -> DeltaState:
    """Return the newest version of a table."""
    try:
        files, root = storage(table)
        names = _names(files, f"{root}/{LOG}")
        if not names:
            raise InputError("IMPORT_SOURCE", f"{table} is no Delta table: it has no folder {LOG}")
        return _Log(table, files, f"{root}/{LOG}", meter).read(names)
    except (OSError, pa.ArrowException, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError("IMPORT_SOURCE", f"the log of {table} can't be read: {error}") from error


def _names(files: Any, folder: str) -> list[str]:
    return [info.base_name for info in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))]


class _Log:
    """The log's folder."""

    def __init__(self, table: str, files: Any, folder: str, meter: Meter) -> None:
        self._table = table
        self._files = files
        self._folder = folder
        self._meter = meter

    def read(self, names: Sequence[str]) -> DeltaState:
        state = DeltaState()
        begin, parts = newest_checkpoint(names)
        for actions in self._meter.each(self._checkpoint, parts):
            state.put(actions)
        state.version = begin
        commits = {int(matched[1]): name for name in names if (matched := COMMIT.match(name))}
        later = sorted(version for version in commits if version > begin)
        if later != list(range(begin + 1, begin + 1 + len(later))):
            raise InputError("IMPORT_SOURCE", f"the log of {self._table} lacks commits after version {begin}")
        for version, actions in zip(
            later, self._meter.each(self._commit, [commits[later_version] for later_version in later]), strict=True
        ):
            state.apply(actions)
            state.version = version
        if not state.metadata or not state.protocol:
            raise InputError("IMPORT_SOURCE", f"the log of {self._table} says nothing of its columns or protocol")
        return state

    def _commit(self, name: str) -> list[Action]:
        with self._files.open_input_stream(f"{self._folder}/{name}") as stream:
            return [json.loads(line, parse_float=Decimal) for line in stream.read().splitlines() if line.strip()]

    def _checkpoint(self, name: str) -> list[Action]:
        actions = self._commit(name) if name.endswith(".json") else list(self._rows(name))
        sidecars = [action["sidecar"]["path"] for action in actions if action.get("sidecar")]
        for path in sidecars:
            actions += self._rows(f"{SIDECARS}/{path.rpartition('/')[2]}")
        return actions

    def _rows(self, name: str) -> Iterator[Action]:
        with self._files.open_input_file(f"{self._folder}/{name}") as stream:
            opened = pq.ParquetFile(stream)
            for batch in opened.iter_batches(ROWS_AT_ONCE, columns=_columns_in(opened.schema_arrow)):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    yield {name: value for name, value in row.items() if _is_there(value)}


def _columns_in(schema: pa.Schema) -> list[str]:
    """Return the columns of a checkpoint that are read. A checkpoint may lack some."""
    types = {field.name: field.type for field in schema}
    columns = []
    for column in COLUMNS:
        name, _, part = column.partition(".")
        if name in types and (not part or types[name].get_field_index(part) >= 0):
            columns.append(column)
    return columns


def _is_there(value: Mapping[str, Any] | None) -> bool:
    """Return whether an action is present: some writers write an absent one as a struct of NULLs."""
    return value is not None and any(field_value is not None for field_value in value.values())


def newest_checkpoint(names: Iterable[str]) -> tuple[int, list[str]]:
    """The version of the newest checkpoint that is complete, and its files; -1: there is none."""
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = defaultdict(list)
    for name in names:
        if matched := CHECKPOINT.match(name):
            version = int(matched[1])
            if matched["parts"]:
                parts[version, int(matched["parts"])].append(name)
            else:
                whole[version] = [name]
    for (version, count), listed in parts.items():
        if len(listed) == count:
            whole.setdefault(version, sorted(listed))
    newest = max(whole, default=-1)
    return newest, whole.get(newest, [])
