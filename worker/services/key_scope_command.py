"""`laketx check-keys`: a check of one table now, and the keys that stand in its way."""

from __future__ import annotations

from itertools import islice
from typing import Final

from metaservice.cli.failures import Exit
from metaservice.cli.find import find_table
from metaservice.cli.output import Session
from metaservice.client import key_scope, keys_checked
from worker.connection.lake_connection import Connection
from worker.connection.table_view import TableView
from worker.files.warehouse import check_warehouse
from worker.services.commands import command_errors, warehouse_of
from worker.services.key_scope_checks import KeyScopeChecker

KEYS_SHOWN: Final = 1_000


def run_check_keys(session: Session, table: str, warehouse: str | None) -> Exit:
    meta, place = find_table(session.client, table), warehouse_of(session, warehouse)
    if keys_checked(meta) is None:
        is_unique = key_scope(meta) == "table"
        state = "is unique in the table" if is_unique else "is unique within a partition: set key.scope to table first"
        session.done(f"the key of {meta.name} {state}")
        return Exit.DONE if is_unique else Exit.REFUSED
    lake = Connection(session.client, place, None)
    shown = 0
    with command_errors():
        check_warehouse(session.client, place)
        for twice in islice(KeyScopeChecker(lake).check(TableView(lake, meta)), KEYS_SHOWN):
            shown += 1
            if session.as_json:
                session.show_json_lines([{"key": twice.key, "partitions": twice.partitions}])
            else:
                session.say(str(twice))
    checked = keys_checked(find_table(session.client, table))
    if checked is None:
        session.done(f"the key of {meta.name} is unique in the table from now on")
        return Exit.DONE
    if shown:
        session.note("upsert the row of such a key that shall stay: the others go in the same commit; or delete rows")
    session.done(f"checked {checked[1]} of {meta.buckets} buckets; keys in several partitions: {shown}")
    return Exit.REFUSED
