"""Changes of columns and properties by Iceberg's clients, from the version at which their requirements were judged.

Another change of the schema or settings since then is a conflict, and so is one of the rows where the client says so.
"""

from __future__ import annotations

from metaservice.client import ConflictError, MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import transaction_pb2 as wire
from worker.iceberg.commits.appends import explained


def alter(client: MetaClient, meta: catalog_pb2.Table, alteration: common_pb2.Alteration, since: int | None) -> None:
    """`since`: the version whose rows the table must still have; None: any."""
    intent = wire.TableIntent(
        table_id=meta.table_id,
        operation=common_pb2.OPERATION_ALTER,
        schema_version=meta.schema_version,
        read_version=meta.head_version,
    )
    change = common_pb2.Change(table_id=meta.table_id, alteration=alteration)
    if since is not None:
        change.unchanged_since = since
    try:
        with client.begin([intent]) as txn:
            txn.commit([change])
    except ConflictError as lost:
        raise explained(lost, meta.name) from lost
