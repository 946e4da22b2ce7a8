"""Tables whose old versions go soon, and overwrites of them."""

from metaservice.client import MetaClient
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from tests.integration.service import data_file

FLAGS = ("--purge-delay-ms", "0")


def new_table(client: MetaClient, name: str, retain_hours: str) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
    properties = {"data.retain.hours": retain_hours}
    table = catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"], properties=properties)
    return client.create_table(table).table_id


def overwrite(client: MetaClient, table_id: str) -> str:
    """The path of the only file from then on."""
    intent = transaction_pb2.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_OVERWRITE)

    txn = client.begin([intent])
    file = data_file(txn.txn_id)
    client.commit(txn.txn_id, [common_pb2.Change(table_id=table_id, files=[file], scope=common_pb2.Scope(all=True))])
    return file.path
