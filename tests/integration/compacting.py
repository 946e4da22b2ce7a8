"""A table whose files are only words in the log, and a worker that compacts them there: no byte is read or written."""

from collections.abc import Sequence

from metaservice.client import MetaClient
from metaservice.client.maintenance import claim_of, intent_of
from protos.laketx.v1 import catalog_pb2, common_pb2
from protos.laketx.v1 import maintenance_pb2 as pb
from protos.laketx.v1 import transaction_pb2 as wire
from tests.integration.service import day

MINOR, MAJOR = common_pb2.OPERATION_MINOR_COMPACT, common_pb2.OPERATION_MAJOR_COMPACT
BASE, DELTA = common_pb2.FILE_KIND_BASE, common_pb2.FILE_KIND_DELTA
PLAIN = common_pb2.FILE_KIND_UNSPECIFIED
Committed = wire.CommitTransactionResponse


def new_table(client: MetaClient, name: str, *, keyed: bool = True, profile: str = "", **properties: str) -> str:
    columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
    named = {f"compaction.{key.replace('_', '.')}": value for key, value in properties.items()}
    table = catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"], profile=profile, properties=named)
    if keyed:
        table.primary_key.append("id")
        table.buckets = 2
        table.properties["key.scope"] = "partition"
    return client.create_table(table).table_id


def insert(client: MetaClient, table_id: str, value: str = "1", *, bucket: int = 0, keyed: bool = True) -> str:
    """The path of the file that it adds."""
    txn = client.begin([wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_INSERT)])
    file = written(txn.txn_id, day(value), bucket, DELTA if keyed else PLAIN)
    client.commit(txn.txn_id, [common_pb2.Change(table_id=table_id, files=[file])])
    return file.path


def overwrite(client: MetaClient, table_id: str, value: str = "1") -> None:
    txn = client.begin([wire.TableIntent(table_id=table_id, operation=common_pb2.OPERATION_OVERWRITE)])
    scope = common_pb2.Scope(named=common_pb2.PartitionList(partitions=[day(value)]))
    client.commit(txn.txn_id, [common_pb2.Change(table_id=table_id, scope=scope)])


def written(
    txn_id: str,
    partition: common_pb2.Partition,
    bucket: int,
    kind: common_pb2.FileKind.ValueType,
    *,
    rows: int = 10,
    size: int = 1_000,
    row_order: str = "",
    name: str = "f",
) -> common_pb2.DataFile:
    path = f"{txn_id}/{name}{bucket}"
    return common_pb2.DataFile(
        path=path, partition=partition, bucket=bucket, kind=kind, rows=rows, bytes=size, row_order=row_order
    )


def change_of(task: pb.MaintenanceTask, txn_id: str, *, row_order: str = "") -> common_pb2.Change:
    """One output for each group of a claimed task."""
    groups, files = [], []
    for number, group in enumerate(task.groups):
        first = group.inputs[0].file
        kind = BASE if first.kind and task.operation != MINOR else first.kind
        output = written(
            txn_id, group.partition, group.bucket, kind, rows=group.rows, size=group.bytes, row_order=row_order,
            name=f"c{number}_",
        )  # fmt: skip
        paths = [one.file.path for one in group.inputs]
        files.append(output)
        groups.append(
            common_pb2.CompactionGroup(
                partition=group.partition, bucket=group.bucket, inputs=paths, outputs=[output.path]
            )
        )
    return common_pb2.Change(table_id=task.table_id, files=files, groups=groups)


def claimed(client: MetaClient, *table_ids: str) -> pb.MaintenanceTask:
    found = client.claim_task(table_ids=table_ids)
    assert found is not None, "there is no task"
    return found[0]


def begun(client: MetaClient, task: pb.MaintenanceTask) -> str:
    return client.begin([intent_of(task)], task=claim_of(task)).txn_id


def work(client: MetaClient, *table_ids: str) -> pb.MaintenanceTask:
    """Claim a task, do it, and look at it again."""
    task = claimed(client, *table_ids)
    txn_id = begun(client, task)
    client.commit(txn_id, [change_of(task, txn_id)])
    return client.finish_task(task.task_id, task.fence, txn_id=txn_id)


def states_of(client: MetaClient, table_id: str) -> list[str]:
    every: Sequence[pb.TaskState.ValueType] = pb.TaskState.values()[1:]
    tasks = client.list_tasks(table_id=table_id, states=every)
    return [pb.TaskState.Name(task.state).removeprefix("TASK_STATE_").lower() for task in tasks]
