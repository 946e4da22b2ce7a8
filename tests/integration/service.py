"""A service in a process of its own that a test can start with its own flags, kill, and start again; and its stubs."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from metaservice.client.leader_channel import LeaderChannel
from protos.laketx.v1 import catalog_pb2, common_pb2, read_pb2, transaction_pb2
from protos.laketx.v1.catalog_pb2_grpc import CatalogServiceStub
from protos.laketx.v1.read_pb2_grpc import ReadServiceStub
from protos.laketx.v1.transaction_pb2_grpc import TransactionServiceStub
from tests.conformance.play import new_uuid7
from tests.conformance.server import ROOT, stop, wait_for_address
from tests.forked_programs import ForkedProgram

TIMEOUT_S = 30.0
PRINCIPAL = common_pb2.Principal(name="tests", client="integration")


class Service:
    """A process on a folder; `start` may follow a `kill`."""

    def __init__(
        self,
        folder: Path,
        *flags: str,
        listen: str = "127.0.0.1:0",
        descriptors_max: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.environment = environment
        self.descriptors_max = descriptors_max
        self.folder = folder
        self.flags = flags
        self.address = listen
        self.errors = folder.parent / f"{folder.name}.stderr.txt"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        self.process = self.spawn(self.address)
        self.address = wait_for_address(self.process, self.errors)
        return self.address

    def spawn(self, listen: str) -> subprocess.Popen[str]:
        words = ["--listen", listen, "--data", str(self.folder), *self.flags]
        with self.errors.open("ab") as stderr:
            if self.descriptors_max is None:
                return ForkedProgram("metaservice", words, stderr=stderr, env=self.environment)
            limit = ["sh", "-c", f'ulimit -n {self.descriptors_max}; exec "$@"', "sh"]
            command = [*limit, sys.executable, "-m", "metaservice", *words]
            return subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self.environment
            )

    def kill(self) -> None:
        process = self.running()
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT_S)

    def running(self) -> subprocess.Popen[str]:
        assert self.process is not None
        assert self.process.poll() is None, f"the service ended with {self.process.poll()}: {self.said()}"
        return self.process

    def said(self) -> str:
        return self.errors.read_text(encoding="utf-8", errors="replace")[-4000:]


def _open_channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(
        address,
        options=[
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_metadata_size", 1 << 20),
            ("grpc.absolute_max_metadata_size", 1 << 21),
        ],
    )


class Stubs:
    """The calls that tests make."""

    def __init__(self, address: str) -> None:
        """Of several addresses, calls go to the one that leads; a call that fails isn't repeated."""
        self.address = address
        several = address.split(",")
        self.channel = _open_channel(address) if len(several) == 1 else LeaderChannel(several, _open_channel)
        self.catalog = CatalogServiceStub(self.channel)
        self.txns = TransactionServiceStub(self.channel)
        self.reads = ReadServiceStub(self.channel)

    def create(self, name: str, *, keyed: bool = False, profile: str = "") -> str:
        columns = [catalog_pb2.Column(name="id", type="bigint"), catalog_pb2.Column(name="day", type="string")]
        table = catalog_pb2.Table(name=name, columns=columns, partition_columns=["day"], profile=profile)
        if keyed:
            table.primary_key.append("id")
            table.buckets = 1
            table.properties["key.scope"] = "partition"
        request = catalog_pb2.CreateTableRequest(request_id=new_uuid7(), table=table, principal=PRINCIPAL)
        return self.catalog.CreateTable(request, timeout=TIMEOUT_S).table.table_id

    def begin(
        self,
        *table_ids: str,
        operation: common_pb2.Operation.ValueType = common_pb2.OPERATION_INSERT,
        txn_id: str = "",
        adopt_from: str = "",
        reads: Sequence[common_pb2.Read] = (),
    ) -> str:
        intents = [transaction_pb2.TableIntent(table_id=each, operation=operation, reads=reads) for each in table_ids]
        return self.begin_with(intents, txn_id, adopt_from)

    def begin_with(self, intents: Sequence[transaction_pb2.TableIntent], txn_id: str = "", adopt_from: str = "") -> str:
        """For tables with different operations."""
        request = transaction_pb2.BeginTransactionRequest(
            txn_id=txn_id or new_uuid7(), tables=intents, principal=PRINCIPAL, adopt_from=adopt_from
        )
        self.txns.BeginTransaction(request, timeout=TIMEOUT_S)
        return request.txn_id

    def register(
        self, txn_id: str, table_id: str, *files: common_pb2.DataFile
    ) -> transaction_pb2.RegisterFilesResponse:
        request = transaction_pb2.RegisterFilesRequest(txn_id=txn_id, table_id=table_id, files=files)
        return self.txns.RegisterFiles(iter([request]), timeout=TIMEOUT_S)

    def commit(self, txn_id: str, *changes: common_pb2.Change) -> transaction_pb2.CommitTransactionResponse:
        request = transaction_pb2.CommitTransactionRequest(txn_id=txn_id, changes=changes)
        return self.txns.CommitTransaction(request, timeout=TIMEOUT_S)

    def append(self, table_id: str, txn_id: str = "", message: str = "") -> transaction_pb2.AppendResponse:
        return self.txns.Append(append_request(table_id, txn_id or new_uuid7(), message), timeout=TIMEOUT_S)

    def alter(self, table_id: str, value: str, txn_id: str = "") -> catalog_pb2.AlterTableResponse:
        alteration = common_pb2.Alteration(set_properties={"write.compression": value})
        request = catalog_pb2.AlterTableRequest(
            txn_id=txn_id or new_uuid7(), table_id=table_id, alteration=alteration, principal=PRINCIPAL
        )
        return self.catalog.AlterTable(request, timeout=TIMEOUT_S)

    def get(self, txn_id: str) -> transaction_pb2.Transaction:
        request = transaction_pb2.GetTransactionRequest(txn_id=txn_id)
        return self.txns.GetTransaction(request, timeout=TIMEOUT_S).transaction

    def list_versions(self, table_id: str) -> list[read_pb2.Version]:
        """All of them, oldest first."""
        found: list[read_pb2.Version] = []
        request = read_pb2.ListVersionsRequest(table_id=table_id, page_size=1000)
        while True:
            answer = self.reads.ListVersions(request, timeout=TIMEOUT_S)
            found += answer.versions
            if not answer.next_page_token:
                return found[::-1]
            request.page_token = answer.next_page_token

    def list_files(self, table_id: str, version: int | None = None) -> list[common_pb2.LiveEntry]:
        request = read_pb2.ListFilesRequest(table_id=table_id, version=version)
        answers = self.reads.ListFiles(request, timeout=TIMEOUT_S)
        return [entry for answer in answers for entry in answer.entries]

    def list_txns(self) -> list[transaction_pb2.Transaction]:
        request = transaction_pb2.ListTransactionsRequest(page_size=1000)
        return list(self.txns.ListTransactions(request, timeout=TIMEOUT_S).transactions)


@contextmanager
def service(folder: Path, *flags: str, environment: dict[str, str] | None = None) -> Iterator[tuple[Service, Stubs]]:
    running = Service(folder, *flags, environment=environment)
    try:
        running.start()
        stubs = Stubs(running.address)
        try:
            yield running, stubs
        finally:
            stubs.channel.close()
    finally:
        if running.process is not None and running.process.poll() is None:
            stop(running.process)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def day(value: str = "1") -> common_pb2.Partition:
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="day", value=common_pb2.Value(text=value))])


def data_file(
    txn_id: str, name: str = "f", kind: common_pb2.FileKind.ValueType = common_pb2.FILE_KIND_UNSPECIFIED
) -> common_pb2.DataFile:
    return common_pb2.DataFile(path=f"{txn_id}/{name}", partition=day(), kind=kind, rows=10, bytes=1000)


def append_request(table_id: str, txn_id: str, message: str = "") -> transaction_pb2.AppendRequest:
    return transaction_pb2.AppendRequest(
        txn_id=txn_id, table_id=table_id, files=[data_file(txn_id)], principal=PRINCIPAL, commit_message=message
    )


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    call: object = error  # the types don't know that an RpcError is a Call too
    assert isinstance(call, grpc.Call)
    return call.code()


def reason_of(error: grpc.RpcError) -> str:
    """The reason of the ErrorInfo; empty where there is none."""
    return info_of(error).reason


def facts_of(error: grpc.RpcError) -> dict[str, str]:
    """Without the kind."""
    return {name: value for name, value in info_of(error).metadata.items() if name != "kind"}


def info_of(error: grpc.RpcError) -> error_details_pb2.ErrorInfo:
    call: object = error
    assert isinstance(call, grpc.Call)
    status = rpc_status.from_call(call)
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info
    return error_details_pb2.ErrorInfo()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
