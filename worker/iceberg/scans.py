"""The files that a scan of a version needs, as MetaService plans them, with their hidden rows in files."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from protos.laketx.v1 import common_pb2
from worker.connection.table_view import TableView
from worker.iceberg.inlined_files import InlinedFiles
from worker.iceberg.live_files import LiveFiles
from worker.iceberg.metadata.delete_files import DeleteFiles, Put
from worker.iceberg.metadata.facts import TableFacts
from worker.iceberg.metadata.scan_tasks import PlannedFile
from worker.iceberg.snapshots import Schemas, check_shown, schema_at, view_at


class Scans:
    """The scans of one table in one location. Scanned versions must be pinned."""

    def __init__(self, location: str, put: Put) -> None:
        """`put` writes a generated file below the location."""
        self._location = location
        self._put = put
        self._inlined = InlinedFiles(location, put)
        self._deletes: dict[int, DeleteFiles] = {}  # by format
        self._checked: set[str] = set()  # imported files whose names are fine

    def plan(
        self,
        table: TableView,
        schemas: Schemas,
        version: int,
        form: int,
        condition: common_pb2.Predicate,
        *,
        with_stats: bool,
    ) -> Sequence[PlannedFile]:
        """Return the files that may have rows for which the condition is true. It names the columns of that version.

        The same request returns the same files in the same order. Their delete files are written.
        """
        view = view_at(table, schemas, version)
        parts = table.client.plan_scan(
            table.table_id, version=version, predicate=condition, without_stats=not with_stats
        )
        live = LiveFiles(table)
        live.apply(view, (entry for part in parts for entry in part.entries), ())
        check_shown(view, live, schemas, schema_at(schemas, version), self._checked)
        shown = [*chain.from_iterable(live.shown().values())]
        shown += self._inlined.shown(view, live.inlined(), version + 1)
        shown.sort(key=lambda shown_file: shown_file.path)
        if form not in self._deletes:
            self._deletes[form] = DeleteFiles(TableFacts(table.meta, self._location, form), self._put)
        dirty = [shown_file for shown_file in shown if shown_file.hidden]
        written = {
            shown_file.path: deletes for shown_file, deletes in zip(dirty, self._deletes[form].of(dirty), strict=True)
        }
        return [PlannedFile(shown_file, written.get(shown_file.path)) for shown_file in shown]
