"""Every cell of the outcome table, by clients that run at once, on tables with and without partitions."""

import csv
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from protos.laketx.v1 import catalog_pb2, common_pb2
from tests.conformance.play import BYTES, OPERATIONS, ROWS, OpenTxn, Wire, outcome_of
from tests.conformance.server import running_server

TABLE = Path(__file__).resolve().parents[1] / "conformance" / "cases" / "outcome_table.csv"
PLACES = {  # where the earlier and the later work
    "same partition": (("1",), ("1",)),
    "other partition": (("1",), ("2",)),
    "both partitions": (("1", "2"), ("1", "2")),
    "unpartitioned": (("",), ("",)),
}
WAIT_S = 15.0

with TABLE.open(encoding="utf-8") as lines:
    STANDS = {(row["earlier"], row["later"]): row["later_stands"] == "yes" for row in csv.DictReader(lines)}


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with running_server() as address, grpc.insecure_channel(address) as channel:
        yield Wire(channel)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("earlier", "later"), STANDS)
def test_a_race_ends_as_the_cell_says(wire: Wire, earlier: str, later: str, place: str) -> None:
    race = Race(wire, f"{earlier}_{later}_{place}".replace(" ", "_"), partitioned=place != "unpartitioned")
    first, second = race.run(earlier, later, *PLACES[place])
    shared = set(PLACES[place][0]) & set(PLACES[place][1])
    expected = "committed" if not shared or STANDS[earlier, later] else "OutcomeTable"
    assert (first, second) == ("committed", expected)


class Race:
    """Two clients on a primary-key table with a base file and a delta file in each partition."""

    def __init__(self, wire: Wire, name: str, *, partitioned: bool) -> None:
        self._wire = wire
        columns = [catalog_pb2.Column(name="id", type="bigint", nullable=False)]
        columns += [catalog_pb2.Column(name="p", type="int", nullable=True)] * partitioned
        self._table_id = wire.create(
            catalog_pb2.Table(
                name=name,
                columns=columns,
                partition_columns=["p"] * partitioned,
                primary_key=["id"],
                buckets=1,
                properties={"key.scope": "partition"},
            )
        )
        self._inputs: dict[str, list[str]] = {}
        for class_ in ("INSERT_OVERWRITE", "INSERT_INTO"):
            partitions = ("1", "2") if partitioned else ("",)
            txn = wire.begin(self._table_id, OPERATIONS[class_])
            wire.commit_unopposed(txn, self._change(txn, class_, partitions), "the first files")
            for partition in partitions:
                self._inputs.setdefault(partition, []).append(txn.path(f"f{partition}"))

    def run(self, earlier: str, later: str, *places: tuple[str, ...]) -> list[str]:
        """Both begin at once; the later one commits once the earlier one has its answer."""
        begun, answered = threading.Barrier(2), threading.Event()

        def client(class_: str, partitions: tuple[str, ...], *, first: bool) -> str:
            txn = self._wire.begin(self._table_id, OPERATIONS[class_])
            change = self._change(txn, class_, partitions)
            begun.wait(WAIT_S)
            if not first:
                assert answered.wait(WAIT_S)
            try:
                return outcome_of(self._wire.commit(txn, change))
            finally:
                answered.set()

        with ThreadPoolExecutor(2) as clients:
            running = [
                clients.submit(client, earlier, places[0], first=True),
                clients.submit(client, later, places[1], first=False),
            ]
            return [each.result(WAIT_S * 2) for each in running]

    def _change(self, txn: OpenTxn, class_: str, partitions: tuple[str, ...]) -> common_pb2.Change:
        change = common_pb2.Change(table_id=self._table_id)
        for partition in partitions:
            kind = "base" if class_ in {"INSERT_OVERWRITE", "MAJOR_COMPACT"} else "delta"
            change.files.append(self._file(txn, partition, kind))
        named = [partition_of(partition) for partition in partitions]
        if class_ == "INSERT_OVERWRITE":
            change.scope.named.partitions.extend(named)
        elif class_ == "UPDATE_DELETE":
            change.reads.append(common_pb2.Read(partitions=named))
        elif class_ in {"MINOR_COMPACT", "MAJOR_COMPACT"}:
            for partition in partitions:
                base, delta = self._inputs[partition]
                group = change.groups.add(partition=partition_of(partition), outputs=[txn.path(f"f{partition}")])
                group.inputs.extend([delta] if class_ == "MINOR_COMPACT" else [base, delta])
        return change

    def _file(self, txn: OpenTxn, partition: str, kind: str) -> common_pb2.DataFile:
        kinds = {"base": common_pb2.FILE_KIND_BASE, "delta": common_pb2.FILE_KIND_DELTA}
        return common_pb2.DataFile(
            path=txn.path(f"f{partition}"),
            partition=partition_of(partition),
            kind=kinds[kind],
            rows=ROWS,
            bytes=BYTES,
        )


def partition_of(partition: str) -> common_pb2.Partition:
    if not partition:
        return common_pb2.Partition()
    value = common_pb2.Value(integer=int(partition))
    return common_pb2.Partition(values=[common_pb2.PartitionValue(column="p", value=value)])
