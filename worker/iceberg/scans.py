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
    """The scans of one table in one place. Versions that are asked for must be pinned."""

    def __init__(self, location: str, put: Put) -> None:
        """`put` writes a generated file, whose name is below the location."""
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
        """The files that may have rows for which the condition is true; it is about the columns of that version.

        The same request finds the same files in the same order. Their delete files are written by then.
        """
        view = view_at(table, schemas, version)
        parts = table.client.plan_scan(
            table.table_id, version=version, predicate=condition, without_stats=not with_stats
        )
        live = LiveFiles(table)
        live.apply(view, (one for part in parts for one in part.entries), ())
        check_shown(view, live, schemas, schema_at(schemas, version), self._checked)
        shown = [*chain.from_iterable(live.shown().values())]
        shown += self._inlined.shown(view, live.inlined(), version + 1)
        shown.sort(key=lambda one: one.path)
        if form not in self._deletes:
            self._deletes[form] = DeleteFiles(TableFacts(table.meta, self._location, form), self._put)
        dirty = [one for one in shown if one.hidden]
        written = {one.path: deletes for one, deletes in zip(dirty, self._deletes[form].of(dirty), strict=True)}
        return [PlannedFile(one, written.get(one.path)) for one in shown]
