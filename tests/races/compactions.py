"""Compactions where no Spark is: a worker's tasks run one after the other, in this process."""

from __future__ import annotations

from laketx import Lake
from protos.laketx.v1 import common_pb2, transaction_pb2
from tests.races.doors import Door, Policy
from tests.races.statements import Kind, Statement
from worker.arrow.scan.plans import WrittenSchemas
from worker.connection.table_view import TableView
from worker.services.compaction.chunks import Chunk, Settings, run_chunk
from worker.services.compaction.compaction import FILE_BYTES_TARGET, Options, input_files
from worker.services.compaction.groups import OPERATIONS, Group, planned_groups


class Compactions(Door):
    """MINOR and MAJOR of what MetaService plans."""

    name = "Compactions"

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def does(self, statement: Statement, *, keyed: bool) -> bool:
        return statement.kind in (Kind.MINOR, Kind.MAJOR)

    def run(self, statement: Statement, table: str, policy: Policy) -> None:
        view = self._lake.table(table).view
        operation = OPERATIONS[statement.kind.name.lower()]
        version, groups = planned_groups(view, operation, (), Options().to_wire())
        intent = transaction_pb2.TableIntent(
            table_id=view.table_id,
            operation=operation,
            schema_version=view.meta.schema_version,
            read_version=version,
        )
        with view.client.begin([intent]) as txn:
            change = common_pb2.Change(table_id=view.table_id)
            for at, group in enumerate(groups):
                files, compacted = _compacted(view, statement.kind, group, f"{txn.txn_id}/{at}")
                txn.queue(view.table_id, files)
                change.groups.append(compacted)
            if groups:
                txn.commit([change])


def _compacted(
    view: TableView, kind: Kind, group: Group, name: str
) -> tuple[list[common_pb2.DataFile], common_pb2.CompactionGroup]:
    settings = Settings(
        meta=view.meta.SerializeToString(),
        table_folder=view.folder,
        is_major=kind is Kind.MAJOR,
        is_base=bool(view.meta.primary_key) and kind is Kind.MAJOR,
        verify=True,
        file_bytes_target=FILE_BYTES_TARGET,
    )
    result = run_chunk(settings, Chunk(0, name, tuple(input_files(view, WrittenSchemas(view), group))))
    files = [common_pb2.DataFile.FromString(one) for one in result.files]
    for file in files:
        file.partition.CopyFrom(group.partition)
        file.bucket = group.bucket
    compacted = common_pb2.CompactionGroup(
        partition=group.partition,
        bucket=group.bucket,
        inputs=[one.file.path for one in group.inputs],
        outputs=[one.path for one in files],
        input_digest=result.input.to_bytes(),
        output_digest=result.output.to_bytes(),
        input_rows=result.input.rows,
        output_rows=result.output.rows,
    )
    return files, compacted
