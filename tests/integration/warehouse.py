"""A service with clocks that a test moves, in this process, and a warehouse of real Parquet files beside it."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from metaservice.client import ConflictError, MetaClient
from metaservice.core.table.model import Operation
from metaservice.rpc.convert import wire_entries
from metaservice.rpc.server import Server, ServerSettings
from metaservice.server.settings import read_settings
from metaservice.server.store_opening import OpenState
from metaservice.server.wiring import Service, build_service
from protos.laketx.v1 import catalog_pb2, common_pb2, transaction_pb2
from worker.files.warehouse import adopt
from worker.services.purge import Purge, Report

HOUR_MS = 3_600_000
GRACE_MS = HOUR_MS
LEASE_MS = 1_000 * HOUR_MS
SCHEMA = pa.schema([pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})])
INSERT, OVERWRITE, RESTORE = (
    common_pb2.OPERATION_INSERT,
    common_pb2.OPERATION_OVERWRITE,
    common_pb2.OPERATION_RESTORE,
)


class Clock:
    def __init__(self, now_us: int) -> None:
        self.us = now_us
        self.ms = 1_000

    def now_us(self) -> int:
        return self.us

    def mono_ms(self) -> int:
        return self.ms

    def advance(self, ms: int) -> None:
        self.ms += ms
        self.us += ms * 1_000


class Warehouse:
    """One table, `days`, kept for nothing but its head; every file has rows of its own."""

    def __init__(self, service: Service, client: MetaClient, address: str, clock: Clock, folder: Path) -> None:
        self.service = service
        self.client = client
        self.client_address = address
        self.clock = clock
        self.folder = folder
        self.rows: dict[str, list[int]] = {}  # of every file ever written, by path
        self.table_id = self.create("days")
        self._next_row = 0

    def create(self, name: str) -> str:
        columns = [catalog_pb2.Column(name="id", type="bigint")]
        table = catalog_pb2.Table(name=name, columns=columns, properties={"data.retain.hours": "0"})
        return self.client.create_table(table).table_id

    # -- files ---------------------------------------------------------------------------------------------------------

    def whole(self, path: str) -> Path:
        return Path(path) if path.startswith("/") else self.folder / self.table_id / path

    def write_file(self, path: str) -> common_pb2.DataFile:
        """With rows that no other file has."""
        rows = list(range(self._next_row, self._next_row + 3))
        self._next_row += 3
        target = self.whole(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": rows}, schema=SCHEMA), target)
        self.rows[path] = rows
        size = target.stat().st_size
        return common_pb2.DataFile(path=path, rows=3, bytes=size, external=path.startswith("/"))

    def is_whole(self, path: str) -> bool:
        found = self.whole(path)
        return found.exists() and pq.read_table(found)["id"].to_pylist() == self.rows[path]

    def stored(self) -> set[str]:
        """Paths of what lies in the table's folder."""
        root = self.folder / self.table_id
        return {str(found.relative_to(root)) for found in root.rglob("*") if found.is_file()}

    # -- what writers do -----------------------------------------------------------------------------------------------

    def begin(self, operation: common_pb2.Operation.ValueType, adopt_from: str = "") -> Any:
        intent = transaction_pb2.TableIntent(table_id=self.table_id, operation=operation)
        return self.client.begin([intent], adopt_from=adopt_from)

    def register(self, txn: Any, *names: str) -> list[str]:
        files = [self.write_file(f"{txn.txn_id}/0/{name}.parquet") for name in names]
        txn.register(self.table_id, files)
        return [file.path for file in files]

    def change(self) -> common_pb2.Change:
        return common_pb2.Change(table_id=self.table_id)

    def write(self, operation: common_pb2.Operation.ValueType, *names: str) -> list[str]:
        txn = self.begin(operation)
        paths = self.register(txn, *names)
        change = common_pb2.Change(table_id=self.table_id)
        if operation == OVERWRITE:
            change.scope.all = True
        txn.commit([change])
        return paths

    def register_external(self, path: Path) -> str:
        file = self.write_file(str(path))
        with self.begin(INSERT) as txn:
            txn.register(self.table_id, [file])
            txn.commit([common_pb2.Change(table_id=self.table_id)])
        return file.path

    def plant_external(self, path: Path, table_id: str = "") -> str:
        """As an earlier release let it in, wherever it lies: past what the edge refuses."""
        table_id = table_id or self.table_id
        intent = transaction_pb2.TableIntent(table_id=table_id, operation=INSERT)
        with self.client.begin([intent]) as txn:
            known = str(path) in self.rows
            if known:
                size = path.stat().st_size
                file = common_pb2.DataFile(path=str(path), rows=3, bytes=size, external=True)
            else:
                file = self.write_file(str(path))
            calls, meta = self.service.calls, self.service.calls.meta(table_id)
            entries = wire_entries.entries([file], [], meta, txn.txn_id, Operation.INSERT)
            calls.decider.call(lambda: calls.register_entries(txn.txn_id, table_id, entries))
            txn.commit([common_pb2.Change(table_id=table_id)])
        return file.path

    def restore(self, version: int) -> None:
        txn = self.begin(RESTORE)
        change = common_pb2.Change(table_id=self.table_id, restore_version=version)
        change.scope.all = True
        txn.commit([change])

    def lose(self) -> tuple[str, list[str]]:
        """An INSERT that loses, and its files."""
        txn = self.begin(INSERT)
        paths = self.register(txn, "lost")
        self.write(OVERWRITE, "winner")
        try:
            txn.commit([common_pb2.Change(table_id=self.table_id)])
        except ConflictError:
            return txn.txn_id, paths
        raise AssertionError("the race was not lost")

    def resubmit(self, txn_id: str) -> None:
        with self.begin(INSERT, adopt_from=txn_id) as txn:
            txn.commit([common_pb2.Change(table_id=self.table_id)])

    def abort(self) -> list[str]:
        """A writer that gives up and leaves its files, registered and not."""
        txn = self.begin(INSERT)
        paths = self.register(txn, "registered")
        paths.append(self.write_file(f"{txn.txn_id}/0/unregistered.parquet").path)
        txn.abort()
        return paths

    # -- time and purge ------------------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        return self.client.resolve_version(self.table_id).version

    @property
    def oldest(self) -> int:
        return self.service.decider.state.oldest(self.table_id)

    def pass_time(self, ms: int = 1_000, looks: int = 5) -> None:
        """Time goes by, then there is leisure for so many rounds of housekeeping, the last of which trims."""
        self.clock.advance(ms)
        for _ in range(looks):
            self.clock.advance(1_000)
            self.client.ping()
        self.clock.advance(60_000)
        for _ in range(10):
            self.client.ping()
            self.clock.advance(1_000)

    def purge(self, **settings: Any) -> Report:
        return Purge(self.client, str(self.folder), threads=2, **settings).run()

    def list_files(self, version: int) -> set[str]:
        return {entry.file.path for entry in self.client.list_files(self.table_id, version=version)}


@contextmanager
def warehouse(folder: Path, flags: Sequence[str] = ()) -> Iterator[Warehouse]:
    flags = ["--data", str(folder / "db"), "--listen", "127.0.0.1:0", "--purge-delay-ms", "0", *flags]
    settings = read_settings([*flags, "--lease-ms", str(LEASE_MS), "--adopt-grace-ms", str(GRACE_MS)], {})
    ids = random.Random(1)
    clock = Clock(now_us_of_machine())
    service = build_service(OpenState(settings), clock, settings)
    server = Server(
        service.calls, service.operators, ServerSettings(settings.listen), lambda: f"{ids.getrandbits(64):x}", _never
    )
    service.decider.start()
    service.calls.bells.start()
    server.start()
    try:
        with MetaClient(server.address, principal="ann", client_name="tests") as client:
            adopt(client, str(folder / "lake"))
            yield Warehouse(service, client, server.address, clock, folder / "lake")
    finally:
        server.stop(1.0)
        service.decider.stop()
        service.decider.state.store.close()


def now_us_of_machine() -> int:
    """Ids of transactions carry the machine's time."""
    return time.time_ns() // 1_000


def _never(error: BaseException) -> None:
    raise error
