"""Tables that a listing leaves out because they can't be shown.

Most tables can be shown: only changed columns and imported files can be impossible to show in Iceberg. A table with
one of these is loaded, once for each of its newest versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from metaservice.client import MetaServiceError, NotFoundError, is_partial
from protos.laketx.v1 import catalog_pb2
from worker.base.errors import InputError
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.iceberg.locations import location_of
from worker.iceberg.metadata.schemas import check_promotions, mapping_of
from worker.iceberg.rest.tables import Tables

LOOK_S: Final = 5.0  # for which a listing loads tables; the rest is as it was when it was last known
FIRST_SCHEMA: Final = 1
REMEMBERED_MAX: Final = 100_000  # tables


class Listings:
    """What was learned about tables, for the listings of all callers."""

    def __init__(self, tables: Tables, now_s: Callable[[], float]) -> None:
        """`now_s`: a clock that only goes forward."""
        self._tables = tables
        self._now_s = now_s
        self._by_schema: dict[str, tuple[int, bool]] = {}  # by table: a version of its schema, and whether it is plain

    def can_be_shown(self, lake: Connection, metas: Sequence[catalog_pb2.Table], form: int) -> list[catalog_pb2.Table]:
        """Return the tables that can be shown, as far as that is found out in time."""
        until_s = self._now_s() + LOOK_S
        return [meta for meta in metas if self._is_shown(lake, meta, form, until_s)]

    def _is_shown(self, lake: Connection, meta: catalog_pb2.Table, form: int, until_s: float) -> bool:
        try:
            location_of(f"{lake.warehouse}/{meta.table_id}")
        except InputError:
            return False
        if not meta.table_id:  # nobody has looked at it on the branch yet
            if self._now_s() >= until_s or self._is_plain(lake, meta):
                return True
            try:
                meta = lake.client.get_table(meta.name)
            except NotFoundError:
                return False
        version, is_shown = self._tables.verdict(meta.table_id)
        if version < meta.head_version and self._now_s() < until_s:
            with suppress(MetaServiceError):  # such as a table that is dropped by then: loading it says so
                is_shown = self._is_plain(lake, meta) or self._loads(lake, meta, form)
        return is_shown

    def _is_plain(self, lake: Connection, meta: catalog_pb2.Table) -> bool:
        """Return whether every file of the table can be shown."""
        if meta.has_imports or is_partial(meta):
            return False
        if meta.schema_version == FIRST_SCHEMA:
            return True
        table_id = meta.table_id or meta.parent_table_id
        version, is_plain = self._by_schema.get(table_id, (0, False))
        if version != meta.schema_version:
            schemas = [
                schema for schema in lake.client.list_schemas(table_id) if schema.schema_version <= meta.schema_version
            ]
            is_plain = _agree(meta, [schema.columns for schema in schemas])
            if len(self._by_schema) >= REMEMBERED_MAX:
                self._by_schema.clear()
            self._by_schema[table_id] = meta.schema_version, is_plain
        return is_plain

    def _loads(self, lake: Connection, meta: catalog_pb2.Table, form: int) -> bool:
        table = TableView(lake, lake.client.get_table(table_id=meta.table_id))
        with suppress(InputError):
            self._tables.load(table, form)
        return self._tables.verdict(meta.table_id)[1]


def _agree(meta: catalog_pb2.Table, schemas: Sequence[Sequence[catalog_pb2.Column]]) -> bool:
    """Return whether files of all schemas can be read under the newest one."""
    try:
        check_promotions(meta.name, meta.columns, schemas)
        mapping_of(meta.name, meta.columns, schemas)
    except InputError:
        return False
    return True
