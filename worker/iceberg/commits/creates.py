"""Tables that Iceberg's clients make: at once, or together with their first rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from metaservice.client import BlockedError, ConflictError, InvalidError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from worker.iceberg.commits.appends import USED, Append, explained, find_version, snapshot_of
from worker.iceberg.commits.columns import columns_of
from worker.iceberg.commits.data_files import DataFiles
from worker.iceberg.commits.properties import COMMENT, kept_properties
from worker.iceberg.commits.requests import CommitRequest, NewSnapshot, refused
from worker.iceberg.commits.txn_ids import paths_below
from worker.iceberg.metadata.table_metadata import SNAPSHOT
from worker.services.generated_files import DAY_S
from worker.services.staged_tables import DROPPED, KEEP_S, hidden_name

UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
FIRST_VERSION: Final = 1  # of a table that came with its rows


def definition(name: str, request: CommitRequest) -> catalog_pb2.Table:
    """Return the definition of a new table."""
    if request.schema is None:
        raise refused("a new table needs a schema")
    for order in request.orders:
        if order.get("fields"):
            raise refused("a table can't be made with a sort order: cluster it with LakeTX (compaction.cluster.order)")
    table = catalog_pb2.Table(
        name=name,
        columns=columns_of(request.schema),
        partition_columns=_partition_columns(request.schema, request.specs),
        properties=kept_properties(request.properties),
    )
    if comment := request.properties.get(COMMENT):
        table.comment = comment
    return table


def _partition_columns(schema: Mapping[str, Any], specs: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = {column["id"]: column["name"] for column in schema["fields"]}
    names = []
    for field in specs[-1]["fields"] if specs else ():
        if field["transform"] != "identity" or field.get("source-id") not in columns:
            raise refused(
                f"a partition by {field['transform']} of a column can't be made: tables are partitioned by columns as "
                "they are (identity)"
            )
        names.append(columns[field["source-id"]])
    return names


def create_with_rows(client: MetaClient, table: catalog_pb2.Table, rows: Append) -> None:
    """Make the table and its rows visible in one commit. A repeated request gets the first answer.

    Until then the table has a hidden name. If the commit is refused, or this process ends, it is dropped.
    """
    if find_version(client, rows) is not None:
        return
    made = create_hidden(client, table, rows.table_id)
    schemas = list(client.list_schemas(made.table_id))
    paths, txn_id = [file.path for file in rows.added], rows.folder or rows.own
    targets = paths if rows.folder else paths_below(txn_id, paths)
    intent = wire.TableIntent(table_id=made.table_id, operation=common_pb2.OPERATION_OVERWRITE)
    properties = {SNAPSHOT: str(rows.snapshot.snapshot_id)}
    with client.begin([intent], txn_id=txn_id, properties=properties) as txn:
        entries = DataFiles(made, schemas, rows.places).entries(rows.added, targets)
        if targets != paths:
            rows.places.put(paths, targets)
        txn.register(made.table_id, entries)
        change = common_pb2.Change(table_id=made.table_id, alteration=common_pb2.Alteration(name=table.name))
        change.scope.all = True
        try:
            txn.commit([change])
        except ConflictError as lost:
            raise explained(lost, table.name) from lost
        except InvalidError as error:
            if error.reason != USED or find_version(client, rows) is None:
                raise


def create_hidden(client: MetaClient, table: catalog_pb2.Table, table_id: str) -> catalog_pb2.Table:
    """Create the table under its hidden name, and return it."""
    hidden = catalog_pb2.Table()
    hidden.CopyFrom(table)
    hidden.name = hidden_name(table.name, table_id)
    return create(client, hidden, table_id)


def create(client: MetaClient, table: catalog_pb2.Table, table_id: str) -> catalog_pb2.Table:
    """Create the table under the id that its client was given."""
    try:
        return client.create_table(table, request_id=table_id)
    except BlockedError as error:
        if error.reason != DROPPED:
            raise
        raise refused(
            f"the table that was staged under the id {table_id} was dropped: a commit of it was refused, or none came "
            f"for {KEEP_S // DAY_S} days; create the table again"
        ) from error


def give_up(client: MetaClient, table: catalog_pb2.Table, table_id: str, snapshot: NewSnapshot) -> bool:
    """Create and drop a table whose commit is refused, so that the purge removes its folder.

    Return whether the same commit created the table before; then it stays.
    """
    made = create_hidden(client, table, table_id)
    if made.head_version:
        return snapshot_of(client, made.table_id, FIRST_VERSION) == str(snapshot.snapshot_id)
    with client.begin([wire.TableIntent(table_id=made.table_id, operation=common_pb2.OPERATION_OVERWRITE)]):
        pass  # a table with a hidden name goes with its transaction
    return False


def check_table_id(table_id: str) -> str:
    if not UUID.match(table_id):
        raise refused(f"{table_id} is no id of a table: commit what a staged createTable answered")
    return table_id
