"""Tables that Iceberg's clients replace (CREATE OR REPLACE TABLE): a new definition, and its first rows if it has any.

The id, the history and the partition columns stay. A replacement has read nothing: of two, the last one wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metaservice.client import ConflictError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from worker.base.errors import InputError
from worker.iceberg.commits.appends import Append, explained, placed
from worker.iceberg.commits.columns import check_same
from worker.iceberg.commits.creates import definition
from worker.iceberg.commits.data_files import Schemas
from worker.iceberg.commits.properties import COMMENT, kept_names
from worker.iceberg.commits.requests import CommitRequest, refused
from worker.iceberg.metadata.schemas import iceberg_schema


def new_definition(
    client: MetaClient, meta: catalog_pb2.Table, request: CommitRequest, now: Mapping[str, Any]
) -> catalog_pb2.Table:
    """Return the definition that replaces the table. Refuse it if its columns would get other ids than the client's."""
    full_request = CommitRequest(
        schemas=[request.schema or now], specs=request.specs, orders=request.orders, properties=request.properties
    )
    table = definition(meta.name, full_request)
    if not request.specs:
        table.partition_columns[:] = meta.partition_columns
    if list(table.partition_columns) != list(meta.partition_columns):
        raise refused(
            f"{meta.name} is partitioned by ({', '.join(meta.partition_columns)}), which a replacement can't change: "
            "drop the table and create it again"
        )
    gone = kept_names(request.removed)
    for name, value in meta.properties.items():
        if name not in gone and name not in table.properties:
            table.properties[name] = value
    if COMMENT not in request.properties and COMMENT not in request.removed:
        table.comment = meta.comment
    table.profile, table.buckets = meta.profile, meta.buckets
    table.features.extend(meta.features)
    after = client.create_table(table, or_replace=True, validate_only=True)
    try:
        check_same(iceberg_schema(schema_of(after)), full_request.schemas[-1])
    except InputError as error:
        raise refused(
            f"{meta.name} can't be replaced so: a column that keeps its name keeps its type, and new fields come after "
            "those that were there; drop the table and create it again"
        ) from error
    return table


def schema_of(meta: catalog_pb2.Table) -> catalog_pb2.SchemaVersion:
    return catalog_pb2.SchemaVersion(schema_version=meta.schema_version, columns=meta.columns)


def schema_named(meta: catalog_pb2.Table, schemas: Schemas, number: int | None) -> catalog_pb2.SchemaVersion:
    """Return a current or earlier schema of the table by its number; None is the current one."""
    if number in (None, meta.schema_version):
        return schema_of(meta)
    for schema in schemas:
        if schema.schema_version == number:
            return schema
    raise refused(f"{meta.name} has no schema {number}")


def replace_table(
    client: MetaClient, table: catalog_pb2.Table, schemas: Schemas, rows: Append | None, since: int | None
) -> None:
    """Replace a table, with these rows. `since`: the version whose rows it must have; None: any."""
    after = client.create_table(table, or_replace=True, validate_only=True)
    if rows is None:
        if since is not None:
            raise refused("a table is replaced whatever its rows are: leave out the snapshot that it must have")
        client.create_table(table, or_replace=True)
        return

    replacement = catalog_pb2.Table()
    replacement.CopyFrom(table)
    replacement.table_id, replacement.last_column_id = after.table_id, after.last_column_id

    def commit(txn_id: str, files: Sequence[common_pb2.DataFile]) -> int:
        change = common_pb2.Change(table_id=after.table_id, files=files)
        change.scope.all = True
        if since is not None:
            change.unchanged_since = since
        intent = wire.TableIntent(table_id=after.table_id, operation=common_pb2.OPERATION_OVERWRITE)
        try:
            with client.begin([intent], txn_id=txn_id, properties=rows.properties) as txn:
                committed = txn.commit([change], replacements=[replacement])
        except ConflictError as lost:
            raise explained(lost, table.name) from lost
        return int(committed.tables[0].version)

    placed(client, after, [*schemas, schema_of(after)], rows, commit)
