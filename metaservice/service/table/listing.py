"""Reads of the catalog: lists of live and dropped tables, and a table's past schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from metaservice.core import limits
from metaservice.core.errors import ErrorKind, MetaError, invalid
from metaservice.core.table.branches import Branch, branch_of
from metaservice.core.table.meta import TableMeta
from metaservice.core.table.properties import integer_property
from metaservice.core.table.staged_names import is_unborn
from metaservice.service.decider.decider import Decider
from metaservice.service.decider.views import TableView, of_fork
from metaservice.service.table.branch_listing import BranchTables, ListedTable
from metaservice.store import keys
from metaservice.store.port import StoreCursor, prefix_end
from metaservice.store.records.tables import decode_table

HOUR_US = 3_600_000_000

Reads = Callable[[str, str], bool]  # whether somebody may read a table, by its name and id


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped table, and until when it can be undropped."""

    table: TableView
    drop_us: int

    @property
    def until_us(self) -> int:
        return self.drop_us + integer_property(self.table.meta.properties, "data.retain.hours") * HOUR_US


class Tables:
    """Readers' questions to the catalog."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider

    def list_live(
        self, namespace: str, after: str, count: int, contains: str = "", reads: Reads | None = None
    ) -> tuple[list[tuple[str, TableView]], str]:
        """Lists live tables by name; returns also the name after which to continue, empty at the end.

        `contains` is a part of their names. `reads` says which tables the caller may know of: no other one is named, as
        the place to continue neither. The result may be shorter than the page although more follow: tables come and go
        during the listing.
        """
        state = self._decider.state
        prefix = f"{state.namespaces.as_written(namespace) or namespace}." if namespace else ""
        fitting = state.views.name_index().find(prefix, after, contains)
        shown = (name for name in fitting if not is_unborn(name) and not branch_of(name))
        names = list(islice((name for name in shown if reads is None or self._reads(reads, name)), count))
        views = [(name, state.views.find_by_name(name)) for name in names]
        live = [(name, table) for name, table in views if table is not None]
        return live, names[-1] if len(names) == count else ""

    def list_on_branch(
        self,
        branch: Branch,
        namespace: str,
        after: str,
        count: int,
        contains: str = "",
        reads: Callable[[str], bool] | None = None,
    ) -> list[ListedTable]:
        """Lists tables of a branch by name; fewer only at the end. `reads` decides which tables the caller may see."""
        prefix, part = f"{namespace.lower()}." if namespace else "", contains.lower()
        tables = BranchTables(self._decider.state, branch)
        names = (name for name in tables.names() if name > after)
        fitting = (name for name in names if name.lower().startswith(prefix) and part in name.lower())
        shown = filter(None, map(tables.find, fitting))
        return list(islice((table for table in shown if reads is None or reads(table.known_id)), count))

    def _reads(self, reads: Reads, name: str) -> bool:
        table = self._decider.state.views.find_by_name(name)
        return table is not None and reads(name, table.meta.table_id)

    def list_dropped(self, namespace: str, after: bytes, count: int) -> tuple[list[Dropped], bytes]:
        """Lists dropped tables by id; returns also where to continue, empty at the end. Examines a bounded number."""
        state = self._decider.state
        prefix = f"{namespace}." if namespace else ""
        start = keys.dropped_key(after) + b"\x00" if after else keys.DROPPED
        listed: list[Dropped] = []
        last = b""
        seen = 0
        for key, raw in islice(state.records.cursor().scan(start, prefix_end(keys.DROPPED)), limits.PAGE_SIZE_MAX * 10):
            seen += 1
            last = key[len(keys.DROPPED) :]
            dropped = self.find_dropped(last, raw)
            name = dropped.table.meta.name if dropped is not None else ""
            is_hidden = is_unborn(name) or bool(branch_of(name))
            if dropped is not None and name.lower().startswith(prefix.lower()) and not is_hidden:
                listed.append(dropped)
            if len(listed) == count:
                break
        more = len(listed) == count or seen == limits.PAGE_SIZE_MAX * 10
        self.wait_for_durable()
        return listed, last if more else b""

    def find_dropped(self, raw_id: bytes, raw: bytes) -> Dropped | None:
        """A dropped table from its record; None if its purge has begun."""
        state = self._decider.state
        prefix = keys.table_prefix(raw_id)
        if (
            state.is_purge_begun(raw_id)
            or next(iter(state.records.cursor().scan(prefix, prefix_end(prefix))), None) is None
        ):
            return None
        return Dropped(state.load_table(raw_id).view(), keys.decode_version(raw[:8]))

    def find_last(self, table: TableView) -> TableView:
        """A dropped table in its last state, as far as it is kept. On the decider's thread."""
        state = self._decider.state
        state.flush()
        raw = state.store.get(keys.dropped_key(table.raw_id))
        if raw is None:
            return table
        dropped = self.find_dropped(table.raw_id, raw)
        return dropped.table if dropped is not None else table

    def wait_for_durable(self) -> None:
        """Waits until everything read before is durable."""
        self._decider.call(lambda: None)

    def at_schema_version(self, table: TableView, schema_version: int) -> TableMeta:
        """The metadata with a schema version."""
        newest = table.meta.schema_version
        if not 1 <= schema_version <= newest:
            raise invalid("SCHEMA_VERSION_INVALID", asked=schema_version, newest=newest)
        cursor = self._decider.state.records.cursor()
        for _, meta in _schemas(cursor, table, schema_version):
            if meta.schema_version == schema_version:
                return meta
        raise MetaError(ErrorKind.CORRUPT, "RECORD_MISSING", schema_version=schema_version)

    def numbered(self, table: TableView) -> TableMeta:
        """The newest metadata, with the highest column id that the table's family has given."""
        last = self._decider.state.column_ids.last(table.raw_id, table.meta)
        return table.meta if last == table.meta.last_column_id else replace(table.meta, last_column_id=last)

    def list_schemas(self, table: TableView, after: int, count: int) -> list[tuple[int, TableMeta]]:
        """Lists each schema version with the version that introduced it, oldest first."""
        newest = table.meta.schema_version
        cursor = self._decider.state.records.cursor()
        schemas = (schema for schema in _schemas(cursor, table, after + 1) if schema[1].schema_version <= newest)
        return list(islice(schemas, count))


def _schemas(cursor: StoreCursor, table: TableView, first: int) -> Iterator[tuple[int, TableMeta]]:
    """Schemas from a schema version on. The first one was set at creation: the oldest record has it."""
    if first <= 1:
        metas = keys.table_prefix(table.raw_id)
        for _, raw in cursor.scan(metas, prefix_end(metas)):
            yield 0, of_fork(decode_table(raw), table)
            break
    prefix = keys.schemas_prefix(table.raw_id)
    for _, raw in cursor.scan(keys.schema_key(table.raw_id, first), prefix_end(prefix)):
        yield keys.decode_version(raw[:8]), of_fork(decode_table(raw[8:]), table)
